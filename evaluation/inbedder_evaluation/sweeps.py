"""The paper's sweeps: each command writes results (.json, resumable) and a figure (.png) next to them.

    python -m inbedder_evaluation.sweeps poolings --model mini -o evaluation/results/poolings.json
    python -m inbedder_evaluation.sweeps first-words --model mini -i "What is it about?" texts.txt -o first_words.json
    python -m inbedder_evaluation.sweeps robustness results.json -o robustness.png

``poolings``, ``layers``, ``filter-words``, ``first-words`` and ``robustness`` draw figures 2, 6 and 3, table 4, and figures 4 and
7 of the InBedder paper. ``precisions`` compares float32, bfloat16 and int8. ``guided`` compares vectors mapped from a sample with
reading every text. ``gibberish`` compares real instructions with meaningless ones. ``models`` compares checkpoints, such as those
trained with other objectives.

All commands except ``first-words`` and ``robustness`` measure the shipped sets and, with ``--data``, the sets of a folder.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from inbedder.backbones.protocol import needs_decoding
from inbedder.embedder import InBedder
from inbedder.errors import InbedderError, InputError
from inbedder.io.files import atomic_write
from inbedder.options import BASE_NAME, Reencoding
from inbedder.prompting.templates import resolve_instruction
from inbedder.vectors import Vectors
from inbedder_evaluation.embedders import Embedder, make_embedders, use_training_prompts
from inbedder_evaluation.figures import draw_bars, draw_lines, draw_robustness_boxes, draw_word_table
from inbedder_evaluation.results import Cell, load_cells
from inbedder_evaluation.runner import format_command, run
from inbedder_evaluation.tasks import Data, build_tasks
from inbedder_evaluation.tasks.instruction_detail import make_gibberish
from inbedder_evaluation.tasks.task import fingerprint

AWARENESS = ("IntentEmotion", "InstructSTSB", "triplets", "NYT")
COMMON_WORDS = ("based", "input", "provided", "text", "answer", "given", "Based on ", "Sure! ")
"""Words of phrases that chat models begin answers with, such as "Based on the input provided" (paper, section 4.3). The authors'
code leaves out the last two, stopwords and the instruction."""
SAMPLES = ((1, 0.0), (1, 0.8), (10, 0.8))
"""Answers per text and temperature of re-encoding (figure 2; the authors' run with several answers uses 10 at 0.8)."""

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, help="The paper's sweeps.")
Model = Annotated[str, typer.Option(help="mini, a hub id or a folder.")]
Models = Annotated[list[str], typer.Option("--model", help="mini, a hub id or a folder; repeat to compare models side by side.")]
Output = Annotated[Path, typer.Option("-o", "--output", help="A .json file; the figure has the same name and ends in .png.")]
Source = Annotated[Path | None, typer.Option("--data", help="Folder of known sets, measured in addition to the shipped ones.")]
Task = Annotated[list[str], typer.Option(help="Only tasks whose name contains this; repeatable.")]
Template = Annotated[str | None, typer.Option(help="Prompt template, such as llama-2-chat-inst for the authors' chat baselines.")]
NewTokens = Annotated[
    int | None, typer.Option(min=1, help="Maximum length of an answer in tokens; 40 for the authors' chat baselines.")
]
Temperature = Annotated[
    float, typer.Option(min=0, help="Sampling temperature; 0 is greedy decoding. The authors' Llama runs use 0.6.")
]
TopP = Annotated[float, typer.Option(help="Nucleus sampling threshold; the authors' Llama runs use 0.9.")]
Limit = Annotated[int | None, typer.Option(min=10, help="Maximum number of rows per set of the folder.")]


@app.command()
def poolings(
    output: Output,
    models: Models = ["mini"],  # noqa: B006 - typer copies defaults
    template: Template = None,
    max_new_tokens: NewTokens = None,
    temperature: Temperature = 0.0,
    top_p: TopP = 1.0,
    re_encoder: Annotated[
        str, typer.Option(help="Encoder of the answers (re-enc); the paper uses intfloat/e5-large-v2.")
    ] = BASE_NAME,
    data: Source = None,
    task: Task = list(AWARENESS),  # noqa: B006
    limit: Limit = None,
) -> None:
    """Compare all poolings of the model's family at the last layer, and embeddings of the generated answers (re-enc)."""
    embedders = []
    for model in models:
        loaded = InBedder(model, template=template, max_new_tokens=max_new_tokens, beside="none")
        for pooling in loaded.backbone.poolings:
            sampling_options: dict[str, Any] = (
                {"temperature": temperature, "top_p": top_p} if needs_decoding(loaded.backbone, pooling) else {}
            )
            embedders.append(make_embedders(loaded, pooling=pooling, **sampling_options)[0])
        for count, heat in SAMPLES if loaded.backbone.answers else ():
            reencoding = Reencoding(count, heat, encoder=re_encoder)
            embedders.append(make_embedders(loaded, pooling="re-enc", reencoding=reencoding)[0])
    cells = _measure(embedders, output, data, task, limit)
    draw_bars(_group_by_model(cells), output.with_suffix(".png"), f"{' and '.join(models)} by aggregation")


@app.command()
def layers(
    output: Output,
    models: Models = ["mini"],  # noqa: B006
    pooling: Annotated[str | None, typer.Option(help="Pooling; default: that of the model's family.")] = None,
    every: Annotated[int, typer.Option(min=1, help="Step between layers, counted from the last.")] = 1,
    data: Source = None,
    task: Task = list(AWARENESS),  # noqa: B006
    limit: Limit = None,
) -> None:
    """Compare layers, from the token embeddings (0) to the last block."""
    embedders: dict[str, dict[int, Embedder]] = {}
    for model in models:
        loaded = InBedder(model, beside="none")
        layer_numbers = sorted(range(loaded.backbone.num_layers, -1, -every))
        embedders[model] = {layer: make_embedders(loaded, pooling=pooling, layer=layer)[0] for layer in layer_numbers}
    cells = _measure([embedder for of_model in embedders.values() for embedder in of_model.values()], output, data, task, limit)
    scores = _group_by_model(cells)
    panels = {
        f"{model} by layer": {layer: scores[embedder.name] for layer, embedder in of_model.items()}
        for model, of_model in embedders.items()
    }
    draw_lines(panels, output.with_suffix(".png"))


@app.command("filter-words")
def filter_words(
    output: Output,
    model: Model = "mini",
    template: Template = None,
    max_new_tokens: NewTokens = None,
    data: Source = None,
    task: Task = list(AWARENESS),  # noqa: B006
    limit: Limit = None,
) -> None:
    """Compare avg-gen with and without the states of uninformative words (stopwords, the instruction's words, "based on")."""
    loaded = InBedder(model, template=template, max_new_tokens=max_new_tokens, beside="none")
    embedders = [
        make_embedders(loaded, pooling="avg-gen", uninformative=choice)[0] for choice in (None, list_uninformative_words)
    ]
    cells = _measure(embedders, output, data, task, limit)
    draw_bars(_group_by_model(cells), output.with_suffix(".png"), f"{model}, uninformative words in the answer")


@app.command()
def precisions(
    output: Output,
    model: Model = "mini",
    precision: Annotated[list[str], typer.Option(help="float32, bfloat16, float16 or int8; repeatable.")] = ["float32", "int8"],  # noqa: B006
    data: Source = None,
    task: Task = list(AWARENESS),  # noqa: B006
    limit: Limit = None,
) -> None:
    """Compare the same weights in several precisions."""
    loaded = [InBedder(model, **({"backbone": "onnx"} if name == "int8" else {"dtype": name})) for name in precision]
    embedders = [replace(make_embedders(name)[0], name=f"{model}, {name.precision}") for name in loaded]
    cells = _measure(embedders, output, data, task, limit)
    draw_bars(_group_by_model(cells), output.with_suffix(".png"), f"{model} by precision")


@app.command()
def guided(
    output: Output,
    model: Model = "mini",
    sample: Annotated[int, typer.Option(min=50, help="Number of texts read under each instruction.")] = 1000,
    data: Source = None,
    task: Task = ["triplets", "two-criteria"],  # noqa: B006
    limit: Limit = 3000,
) -> None:
    """Compare reading every text under the instruction with reading a sample and mapping the rest (``encode_guided``)."""
    loaded = InBedder(model)
    embedders = [make_embedders(loaded, guided=size)[0] for size in (None, sample)]
    cells = _measure(embedders, output, data, task, limit)
    draw_bars(_group_by_model(cells), output.with_suffix(".png"), f"{model}: all texts read, or {sample}")


@app.command()
def gibberish(
    output: Output,
    model: Annotated[list[str], typer.Option(help="Name, hub id or folder of a model; repeatable.")],
    data: Source = None,
    task: Task = ["texteval"],  # noqa: B006
    limit: Limit = None,
) -> None:
    """Compare real instructions, meaningless ones of the same shape, and none (reproduction study of INSTRUCTOR)."""
    embedders = []
    for name in model:
        loaded = InBedder(name)
        real, without_instruction = make_embedders(loaded)
        as_written = make_embedders(loaded, verbatim=True)[0]
        embedders += [real, use_training_prompts(_make_gibberish_embedder(as_written), loaded), without_instruction]
    cells = _measure(embedders, output, data, task, limit)
    draw_bars(_group_by_model(cells), output.with_suffix(".png"), "instructions, gibberish, none")


def _make_gibberish_embedder(embedder: Embedder) -> Embedder:
    def encode(texts: Sequence[str], instruction: str | Sequence[str]) -> Vectors:
        return embedder.encode(
            texts, make_gibberish([instruction])[0] if isinstance(instruction, str) else make_gibberish(instruction)
        )

    def render_prompt(text: str, instruction: str) -> str:
        return embedder.prompt(text, make_gibberish([instruction])[0])

    name, revision = f"{embedder.name}, gibberish", fingerprint([], [embedder.revision, "gibberish"])
    return replace(embedder, name=name, revision=revision, encode=encode, prompt=render_prompt, verbatim=False)


@app.command()
def models(
    output: Output,
    model: Annotated[list[str], typer.Option(help="Name, hub id or folder of a checkpoint; repeatable.")],
    data: Source = None,
    task: Task = list(AWARENESS),  # noqa: B006
    limit: Limit = None,
) -> None:
    """Compare checkpoints, such as the same recipe trained with other objectives."""
    embedders = [make_embedders(model_name)[0] for model_name in model]
    names = {embedder.name: Path(embedder.name).name for embedder in embedders}
    if len(set(names.values())) < len(names):
        names = {name: name for name in names}
    cells = _measure(embedders, output, data, task, limit)
    draw_bars({names[name]: scores for name, scores in _group_by_model(cells).items()}, output.with_suffix(".png"), "checkpoints")


@app.command("first-words")
def first_words(
    texts: Annotated[Path, typer.Argument(help="A .txt file, one text per line.")],
    output: Output,
    instruction: Annotated[list[str], typer.Option("-i", "--instruction", help="Instruction; repeatable.")],
    model: Model = "mini",
    top: Annotated[int, typer.Option(min=1, help="Number of words per text and instruction.")] = 10,
) -> None:
    """List the likeliest words at the answer's first position (masked LMs: at the mean of the masks)."""
    rows = [line for line in texts.read_text(encoding="utf-8").splitlines() if line.strip()]
    if not rows:
        raise InputError(f"{texts} holds no text.")
    loaded = InBedder(model)
    table = [["text", "instruction", f"the {top} likeliest words"]]
    for question in instruction:
        words = loaded.nearest_words(loaded.encode(rows, question), top)
        table += [[text, resolve_instruction(question), ", ".join(nearest)] for text, nearest in zip(rows, words, strict=True)]
    records = [dict(zip(("text", "instruction", "words"), row, strict=True)) for row in table[1:]]
    with atomic_write(output) as temporary:
        content = {"command": format_command(), "model": model, "revision": loaded.revision, "rows": records}
        temporary.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    draw_word_table([[_shorten(text), *cells_of_row] for text, *cells_of_row in table], output.with_suffix(".png"))


@app.command()
def robustness(
    results: Annotated[Path, typer.Argument(help="Results file of inbedder evaluate with robustness tasks.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="A .png file.")],
) -> None:
    """Draw box plots of correct, implicit and incorrect instructions."""
    draw_robustness_boxes(load_cells(results), output)


def list_uninformative_words(instruction: str) -> list[str]:
    """List words that carry no information about the text: stopwords, words of the instruction and of common phrases.

    Args:
        instruction: The instruction.

    Returns:
        Words in lower case and as the instruction spells them, and whole phrases, whose tokens are left out one by one.
    """
    from inbedder.prompting.stopwords import load_stopwords

    return sorted({*load_stopwords(), *COMMON_WORDS, *re.findall(r"\w+", instruction), instruction} - {""})


def _measure(
    embedders: Sequence[Embedder], output: Path, data: Path | None, task: Sequence[str], limit: int | None
) -> list[Cell]:
    if output.suffix != ".json":
        raise InputError(f"{output} must be a .json file; the figure is written next to it.")
    return run(embedders, build_tasks(Data(data, limit=limit), task), output, seeds=range(1))


def _group_by_model(cells: Sequence[Cell]) -> dict[str, dict[str, Any]]:
    scores: dict[str, dict[str, Any]] = {}
    for cell in cells:
        if cell.vectors == "raw":
            scores.setdefault(cell.model, {})[cell.task] = cell.scores[cell.main_score]
    return scores


def _shorten(text: str, most: int = 60) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


if __name__ == "__main__":
    try:
        app()
    except InbedderError as error:
        raise SystemExit(f"error: {error}") from error
