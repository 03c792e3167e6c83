"""Options of the command line that say what answers, how, and how often."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from inbedder.reencode import Reencoding

Backbone = Annotated[
    str | None, typer.Option(help="causal, masked, seq2seq or vllm, with its options as in 'vllm: {tensor_parallel_size: 2}'.")
]
Guided = Annotated[
    int | None, typer.Option(min=50, help="Read only so many texts under the instruction; map the others' vectors (fast).")
]
Number = Annotated[int, typer.Option("-n", "--n", min=1, help="Answers a text.")]
Temperature = Annotated[float, typer.Option(min=0.0, help="Of drawn answers; 0 is greedy.")]
TopP = Annotated[float, typer.Option(help="Nucleus of drawn answers.")]
Seed = Annotated[int, typer.Option(help="Seed of drawn answers.")]
MaxNewTokens = Annotated[int, typer.Option(min=1, help="Longest answer in tokens (not for masked LMs).")]
ReEncoder = Annotated[str, typer.Option(help="With --pooling re-enc: the sentence-transformers model that embeds the answers.")]


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
    from inbedder.pooling import parse_pooling
    from inbedder.reencode import Reencoding

    asked = Reencoding(*settings)  # type: ignore[arg-type]
    if asked != Reencoding() and (pooling is None or parse_pooling(pooling)[0] != "re-enc"):
        names = "--n, --temperature, --top-p, --seed, --re-encoder"
        raise typer.BadParameter("they are for --pooling re-enc.", param_hint=names)
    return asked
