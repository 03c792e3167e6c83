"""The options that commands share. Nothing heavy is imported here."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from inbedder.reencode import Reencoding

INPUT, MODEL, ANSWERS, SPEED, JOBS = "Input", "Model", "Answers", "Speed", "Jobs"
"""Groups of options in --help; what stands in none comes first."""

Input = Annotated[
    str,
    typer.Argument(
        metavar="INPUT", help="A .csv, .tsv, .jsonl, .json, .txt (also .gz) or .parquet file, or - for lines on standard input."
    ),
]
Instruction = Annotated[
    str | None, typer.Option("-i", "--instruction", help="The question to ask of each text, or a named one such as @topic.")
]
Instructions = Annotated[
    list[str], typer.Option("-i", "--instruction", help="The question to group by; repeat to compare several groupings.")
]
TextColumn = Annotated[str | None, typer.Option(help="Column with the texts; required if several columns contain text.")]
Model = Annotated[str, typer.Option(help="mini (bundled), small (inbedder models install small), a folder or a hub id.")]
VectorsOutput = Annotated[
    Path,
    typer.Option("-o", "--output", help="A .npy or .parquet file; with --engine ray a folder, which a second run completes."),
]

SkipBad = Annotated[
    bool, typer.Option("--skip-bad", help="Leave out unreadable rows instead of stopping at the first.", rich_help_panel=INPUT)
]
IdColumn = Annotated[
    str | None,
    typer.Option(help="With --engine ray: column of unique ids; by default the row number.", rich_help_panel=JOBS),
]

Pooling = Annotated[
    str | None,
    typer.Option(
        help="Which hidden states become the vector. 1st-gen: the state that predicts the answer's first word (default of "
        "decoders); avg-gen: the mean over the answer (default of masked LMs); last-gen: the answer's last state; avg-ppt: the "
        "mean over the prompt; avg-all: over prompt and answer; re-enc: the answers themselves, embedded. Embedding models: "
        "text-mean, mean, cls or last-token.",
        rich_help_panel=MODEL,
    ),
]
Layer = Annotated[int, typer.Option(help="Layer of the hidden states; -1 is the last.", rich_help_panel=MODEL)]
Template = Annotated[str | None, typer.Option(help="Prompt template: a name or a pattern.", rich_help_panel=MODEL)]
MaxLength = Annotated[
    int, typer.Option(help="Longest prompt in tokens; longer texts are cut at their end.", rich_help_panel=MODEL)
]
Quantization = Annotated[str | None, typer.Option(help="int8 or nf4 weights (bitsandbytes).", rich_help_panel=MODEL)]
Dtype = Annotated[
    str | None,
    typer.Option(
        "--dtype",
        "--precision",
        help="float32, bfloat16 or float16; by default the fastest of equal quality on this device.",
        rich_help_panel=MODEL,
    ),
]
Backbone = Annotated[
    str | None,
    typer.Option(
        help="causal, masked, seq2seq, embedding, onnx (masked LMs as int8 on a CPU), or vllm with its options, as in "
        "'vllm: {tensor_parallel_size: 2}'; by default read from the model's files.",
        rich_help_panel=MODEL,
    ),
]
Device = Annotated[str | None, typer.Option(help="A torch device, such as cpu or cuda:1.", rich_help_panel=MODEL)]
Subtract = Annotated[
    bool | None,
    typer.Option(
        "--subtract-instruction/--keep-instruction",
        help="Subtract the vector of an empty text from each vector; by default as was measured to be best for the model.",
        show_default=False,
        rich_help_panel=MODEL,
    ),
]
Normalize = Annotated[bool, typer.Option("--normalize", help="Scale vectors to length 1.", rich_help_panel=MODEL)]

Number = Annotated[
    int, typer.Option("-n", "--n", min=1, help="Answers per text (embed: for --pooling re-enc).", rich_help_panel=ANSWERS)
]
Temperature = Annotated[
    float,
    typer.Option(min=0.0, help="Temperature of sampled answers; 0 is greedy (embed: for re-enc).", rich_help_panel=ANSWERS),
]
TopP = Annotated[float, typer.Option(help="Nucleus (top-p) of sampled answers (embed: for re-enc).", rich_help_panel=ANSWERS)]
Seed = Annotated[int, typer.Option(help="Seed of sampled answers (embed: for re-enc).", rich_help_panel=ANSWERS)]
MaxNewTokens = Annotated[
    int | None, typer.Option(min=1, help="Longest answer in tokens (not for masked LMs).", rich_help_panel=ANSWERS)
]
ReEncoder = Annotated[
    str,
    typer.Option(help="For --pooling re-enc: the sentence-transformers model that embeds answers.", rich_help_panel=ANSWERS),
]

BatchSize = Annotated[int, typer.Option(min=1, help="Most texts in one pass.", rich_help_panel=SPEED)]
Cache = Annotated[
    Path | None,
    typer.Option(
        help="A folder that keeps vectors and answers, so that the next run computes only what is new.", rich_help_panel=SPEED
    ),
]
CacheSize = Annotated[
    str | None,
    typer.Option(
        help="Most room for --cache, such as 500M or 5G (or unlimited); what was used least recently goes first. The cache "
        "remembers it.",
        rich_help_panel=SPEED,
    ),
]
Guided = Annotated[
    int | None,
    typer.Option(
        min=50, help="Faster: ask the question of N sampled texts and estimate the rest.", metavar="N", rich_help_panel=SPEED
    ),
]

Engine = Annotated[
    str,
    typer.Option(help="local (this process), or ray: several workers or machines; a killed job goes on.", rich_help_panel=JOBS),
]
Workers = Annotated[int, typer.Option(min=1, help="With --engine ray: processes that hold the model.", rich_help_panel=JOBS)]
Threads = Annotated[
    int | None,
    typer.Option(min=1, help="With --engine ray: threads per worker; by default cores divided by workers.", rich_help_panel=JOBS),
]
Address = Annotated[
    str | None,
    typer.Option(help="With --engine ray: address of a running cluster; by default this machine.", rich_help_panel=JOBS),
]


def say(message: str) -> None:
    """Tell the user, beside the output."""
    typer.echo(message, err=True)


def check_output(path: Path, allowed: tuple[str, ...]) -> None:
    """Refuse an output before the work that could not be written after it."""
    if path.suffix.lower() not in allowed:
        raise typer.BadParameter(f"{path}: give a file that ends in {', '.join(allowed)}.", param_hint="-o")
    if not path.absolute().parent.is_dir():
        raise typer.BadParameter(f"{path}: its folder does not exist.", param_hint="-o")
    from inbedder.outputs import check_writable

    check_writable(path)


def reencoding_of(pooling: str | None, *settings: int | float | str) -> Reencoding:
    """How re-enc is asked for.

    Args:
        pooling: The pooling asked for, or None.
        *settings: n, temperature, top_p, seed and re-encoder.

    Returns:
        The settings.

    Raises:
        BadParameter: When one is given that the pooling does not use.
    """
    from inbedder.pooling import TEXT_POOLINGS, parse_pooling
    from inbedder.reencode import Reencoding

    reencoding = Reencoding(*settings)  # type: ignore[arg-type]
    if reencoding != Reencoding() and (pooling in (None, *TEXT_POOLINGS) or parse_pooling(pooling)[0] != "re-enc"):
        names = "--n, --temperature, --top-p, --seed, --re-encoder"
        raise typer.BadParameter("they are for --pooling re-enc.", param_hint=names)
    return reencoding
