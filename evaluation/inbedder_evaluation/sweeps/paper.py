"""The paper's sweeps: each command writes results (.json, resumable) and a figure (.png) next to them.

    python -m inbedder_evaluation.sweeps poolings --model mini -o evaluation/results/poolings.json
    python -m inbedder_evaluation.sweeps first-words --model mini -i "What is it about?" texts.txt -o first_words.json
    python -m inbedder_evaluation.sweeps robustness results.json -o robustness.png

``poolings``, ``layers``, ``filter-words``, ``first-words`` and ``robustness`` draw figures 2, 6 and 3, table 4, and figures 4 and
7 of the InBedder paper. ``precisions`` compares float32, bfloat16 and int8. ``guided`` compares vectors mapped from a sample with
reading every text. ``gibberish`` compares real instructions with meaningless ones. ``models`` compares checkpoints, such as those
trained with other objectives.

All commands except ``first-words`` and ``robustness`` measure the shipped sets, with ``--data`` the sets of a folder, and with
``--hub`` the paper's own sets. They take the options of a model that ``inbedder evaluate`` takes, except those that they vary.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from inbedder.cli.model_options import with_model_options
from inbedder.embedder import InBedder
from inbedder.errors import InputError
from inbedder.io.files import atomic_write
from inbedder.prompting.templates import resolve_instruction
from inbedder_evaluation.embedders import make_embedders
from inbedder_evaluation.figures import draw_bars, draw_lines, draw_robustness_boxes, draw_word_table
from inbedder_evaluation.results import load_cells
from inbedder_evaluation.runner import format_command
from inbedder_evaluation.sweeps.embedders import (
    make_filter_embedders,
    make_gibberish_embedders,
    make_layer_embedders,
    make_pooling_embedders,
)
from inbedder_evaluation.sweeps.options import Output, Sweep, with_sweep_options

REENCODING = ("re_enc_n", "re_enc_temperature", "re_enc_top_p", "re_enc_seed", "re_enc_encoder")
"""Parameters of re-enc, for commands that read states."""

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, help="The paper's sweeps.")
Model = Annotated[str, typer.Option(help="mini, a hub id or a folder.")]
Models = Annotated[list[str], typer.Option("--model", help="mini, a hub id or a folder; repeat to compare models side by side.")]
Checkpoints = Annotated[list[str], typer.Option("--model", help="Name, hub id or folder of a model; repeatable.")]
Temperature = Annotated[
    float, typer.Option(min=0, help="Sampling temperature; 0 is greedy decoding. The authors' Llama runs use 0.6.")
]
TopP = Annotated[float, typer.Option(help="Nucleus sampling threshold; the authors' Llama runs use 0.9.")]


@app.command()
@with_sweep_options(omitted_options=("pooling", "re_enc_n", "re_enc_temperature"))
def poolings(
    sweep: Sweep,
    models: Models = ["mini"],  # noqa: B006 - typer copies defaults
    temperature: Temperature = 0.0,
    top_p: TopP = 1.0,
) -> None:
    """Compare all poolings of the model's family, and embeddings of the generated answers (re-enc)."""
    sampling = {"temperature": temperature, "top_p": top_p}
    embedders = [embedder for model in models for embedder in make_pooling_embedders(model, sweep.model_options, sampling)]
    draw_bars(sweep.measure(embedders), sweep.figure, f"{' and '.join(models)} by aggregation")


@app.command()
@with_sweep_options(omitted_options=("layer",))
def layers(
    sweep: Sweep,
    models: Models = ["mini"],  # noqa: B006
    every: Annotated[int, typer.Option(min=1, help="Step between layers, counted from the last.")] = 1,
    temperature: Temperature = 0.0,
    top_p: TopP = 1.0,
) -> None:
    """Compare layers, from the token embeddings (0) to the last block."""
    sampling = {"temperature": temperature, "top_p": top_p}
    embedders = {model: make_layer_embedders(model, sweep.model_options, sampling, every) for model in models}
    scores = sweep.measure([embedder for by_layer in embedders.values() for embedder in by_layer.values()])
    panels = {
        f"{model} by layer": {layer: scores[embedder.name] for layer, embedder in by_layer.items()}
        for model, by_layer in embedders.items()
    }
    draw_lines(panels, sweep.figure)


@app.command("filter-words")
@with_sweep_options(omitted_options=("pooling", "filter_words", *REENCODING))
def filter_words(sweep: Sweep, model: Model = "mini", temperature: Temperature = 0.0, top_p: TopP = 1.0) -> None:
    """Compare avg-gen with and without the states of uninformative words (NLTK's stopwords, the instruction, "Based on")."""
    embedders = make_filter_embedders(model, sweep.model_options, {"temperature": temperature, "top_p": top_p})
    draw_bars(sweep.measure(embedders), sweep.figure, f"{model}, uninformative words in the answer")


@app.command()
@with_sweep_options(omitted_options=("backbone", "dtype", "precision"))
def precisions(
    sweep: Sweep,
    model: Model = "mini",
    precision: Annotated[list[str], typer.Option(help="float32, bfloat16, float16 or int8; repeatable.")] = ["float32", "int8"],  # noqa: B006
) -> None:
    """Compare the same weights in several precisions."""
    settings: list[dict[str, Any]] = [{"backbone": "onnx"} if name == "int8" else {"dtype": name} for name in precision]
    loaded = [InBedder(model, **sweep.model_options, **one) for one in settings]
    embedders = [replace(make_embedders(name)[0], name=f"{model}, {name.compute_dtype}") for name in loaded]
    draw_bars(sweep.measure(embedders), sweep.figure, f"{model} by precision")


@app.command()
@with_sweep_options(tasks=("triplets", "two-criteria"), limit=3000)
def guided(
    sweep: Sweep,
    model: Model = "mini",
    sample: Annotated[list[int], typer.Option(min=50, help="Number of texts read under each instruction; repeatable.")] = [1000],  # noqa: B006
) -> None:
    """Compare reading every text under the instruction with reading a sample and mapping the rest (``encode_guided``)."""
    loaded = InBedder(model, **sweep.model_options)
    embedders = [make_embedders(loaded, guided=size)[0] for size in (None, *sample)]
    draw_bars(sweep.measure(embedders), sweep.figure, f"{model}: all texts read, or {', '.join(map(str, sample))}")


@app.command()
@with_sweep_options(tasks=("texteval",))
def gibberish(sweep: Sweep, model: Checkpoints) -> None:
    """Compare real instructions, meaningless ones of the same shape, and none (reproduction study of INSTRUCTOR)."""
    embedders = [embedder for name in model for embedder in make_gibberish_embedders(name, sweep.model_options)]
    draw_bars(sweep.measure(embedders), sweep.figure, "instructions, gibberish, none")


@app.command()
@with_sweep_options()
def models(sweep: Sweep, model: Checkpoints) -> None:
    """Compare checkpoints, such as the same recipe trained with other objectives."""
    embedders = [make_embedders(model_name, **sweep.model_options)[0] for model_name in model]
    names = {embedder.name: Path(embedder.name).name for embedder in embedders}
    if len(set(names.values())) < len(names):
        names = {name: name for name in names}
    draw_bars({names[name]: scores for name, scores in sweep.measure(embedders).items()}, sweep.figure, "checkpoints")


@app.command("first-words")
@with_model_options
def first_words(
    texts: Annotated[Path, typer.Argument(help="A .txt file, one text per line.")],
    output: Output,
    instruction: Annotated[list[str], typer.Option("-i", "--instruction", help="Instruction; repeatable.")],
    model: Model = "mini",
    top: Annotated[int, typer.Option(min=1, help="Number of words per text and instruction.")] = 10,
    model_options: dict[str, Any] = {},  # noqa: B006
) -> None:
    """List the likeliest words at the answer's first position (masked LMs: at the mean of the masks)."""
    rows = [line for line in texts.read_text(encoding="utf-8").splitlines() if line.strip()]
    if not rows:
        raise InputError(f"{texts} holds no text.")
    loaded = InBedder(model, **model_options)
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


def _shorten(text: str, most: int = 60) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"
