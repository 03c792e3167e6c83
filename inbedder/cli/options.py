"""The options that commands share. Nothing heavy is imported here."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from inbedder.reencode import Reencoding

Input = Annotated[
    str, typer.Argument(metavar="INPUT", help="A .csv, .tsv, .jsonl, .parquet or .txt file, or - for lines on stdin.")
]
Instruction = Annotated[
    str | None, typer.Option("-i", "--instruction", help="What to ask of each text; @topic and the like are named.")
]
Instructions = Annotated[list[str], typer.Option("-i", "--instruction", help="What to group by; give several to compare.")]
TextColumn = Annotated[str | None, typer.Option(help="Column of the texts; guessed where only one can be meant.")]
SkipBad = Annotated[bool, typer.Option("--skip-bad", help="Leave out bad rows instead of stopping at the first.")]
Model = Annotated[str, typer.Option(help="mini (bundled), a hub id or a folder.")]
Pooling = Annotated[
    str | None,
    typer.Option(
        help="1st-gen, avg-gen, last-gen, avg-ppt, avg-all or re-enc; of embedding models text-mean, mean, cls or last-token."
    ),
]
Layer = Annotated[int, typer.Option(help="Layer of the hidden states; -1 is the last.")]
Template = Annotated[str | None, typer.Option(help="Prompt template: a name or a pattern.")]
MaxLength = Annotated[int, typer.Option(help="Longest prompt in tokens; longer texts are cut.")]
Quantization = Annotated[str | None, typer.Option(help="int8 or nf4 (bitsandbytes).")]
Precision = Annotated[str | None, typer.Option(help="float32, bfloat16, float16, or int8 (masked LMs on a CPU).")]
Device = Annotated[str | None, typer.Option(help="A torch device, such as cpu or cuda:1.")]
Cache = Annotated[Path | None, typer.Option(help="A folder that keeps vectors and answers for the next time.")]
Guided = Annotated[
    int | None, typer.Option(min=50, help="Read only so many texts under the instruction; map the others' vectors (fast).")
]
BatchSize = Annotated[int, typer.Option(min=1, help="Most texts in one pass.")]
Normalize = Annotated[bool, typer.Option("--normalize", help="Scale vectors to length 1.")]
Engine = Annotated[str, typer.Option(help="local (this process), or ray: workers, many machines, jobs that go on after a kill.")]
Workers = Annotated[int, typer.Option(min=1, help="With --engine ray: how many hold the model.")]
Threads = Annotated[int | None, typer.Option(min=1, help="With --engine ray: of each worker; cores divided by workers.")]
Address = Annotated[str | None, typer.Option(help="With --engine ray: of a running cluster; without it, this machine.")]
IdColumn = Annotated[str | None, typer.Option(help="With --engine ray: column of distinct ids; without it, row numbers.")]
Backbone = Annotated[
    str | None,
    typer.Option(help="causal, masked, seq2seq, instructor, or vllm and its options as in 'vllm: {tensor_parallel_size: 2}'."),
]
VectorsOutput = Annotated[
    Path,
    typer.Option("-o", "--output", help="A .npy or .parquet file; with --engine ray a folder, which goes on where it stopped."),
]
Number = Annotated[int, typer.Option("-n", "--n", min=1, help="Answers a text.")]
Temperature = Annotated[float, typer.Option(min=0.0, help="Of drawn answers; 0 is greedy.")]
TopP = Annotated[float, typer.Option(help="Nucleus of drawn answers.")]
Seed = Annotated[int, typer.Option(help="Seed of drawn answers.")]
MaxNewTokens = Annotated[int | None, typer.Option(min=1, help="Longest answer in tokens (not for masked LMs).")]
Subtract = Annotated[
    bool | None,
    typer.Option(
        "--subtract-instruction/--keep-instruction",
        help="Take away from each vector what the instruction alone says; by default as the model was measured to be best.",
        show_default=False,
    ),
]
ReEncoder = Annotated[str, typer.Option(help="With --pooling re-enc: the sentence-transformers model that embeds the answers.")]


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

    asked = Reencoding(*settings)  # type: ignore[arg-type]
    if asked != Reencoding() and (pooling in (None, *TEXT_POOLINGS) or parse_pooling(pooling)[0] != "re-enc"):
        names = "--n, --temperature, --top-p, --seed, --re-encoder"
        raise typer.BadParameter("they are for --pooling re-enc.", param_hint=names)
    return asked
