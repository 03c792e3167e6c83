"""The paper's poolings (section 4.1) as pure functions of hidden states and positions.

Every pooling is a mean of the states at some positions; they differ in which. With a prompt of N positions and G
generated tokens y_0 .. y_{G-1}, position N-1 predicts y_0 and position N-1+j predicts y_j:

- 1st-gen:  N-1
- avg-gen:  N-1 and the generated positions
- last-gen: the last generated position
- avg-ppt:  0 .. N-2
- avg-all:  0 .. N-1 and the generated positions

where the generated positions are those N-1+j, j >= 1, whose predicted y_j is not a special token; the first of them when
none remains; none at all when G = 1 (then last-gen is N-1). This matches the authors' code.

GIRCSE's pooling "soft-gen" generates no tokens but reads soft ones; see ``backbones/soft_tokens.py``.

Embedding models, which do not answer, have their own poolings: sentence-transformers' "mean", "cls" and "last-token", and
INSTRUCTOR's "text-mean" (its section 2.1); see ``backbones/embedding.py``.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from inbedder.errors import InputError

if TYPE_CHECKING:
    from torch import Tensor

KeepPositions = Callable[["Tensor", "Tensor"], "Tensor"]
"""From prompt positions, bool (batch, P), and generated ones, bool (batch, G - 1), to the pooled ones, (batch, P + G - 1)."""


@dataclass(frozen=True)
class Pooling:
    """One way to pool hidden states into a vector."""

    help: str
    """The states that it reads, for ``--help``."""
    families: tuple[str, ...]
    """Families of models that have the pooling; a family's default is the first pooling that lists it."""
    reads_answer: bool = False
    """Whether the pooling reads the states of a decoded answer."""
    keep: KeepPositions | None = None
    """The positions that the pooling averages over, for models that answer."""
    mode: str = "mean"
    """The pooling's name in sentence-transformers."""
    weigh: Callable[[Tensor], Tensor] = lambda mask: mask
    """From the pooled positions, 0 or 1, shape (batch, positions), to their weights in the mean."""


def _keep_first(prompt: Tensor, generated: Tensor) -> Tensor:
    return _join(keep_last_true(prompt), generated & False)


def _keep_prompt(prompt: Tensor, generated: Tensor) -> Tensor:
    first = keep_last_true(prompt)
    single = first & (prompt.sum(1, keepdim=True) == 1)
    return _join((prompt & ~first) | single, generated & False)


def _join(prompt: Tensor, generated: Tensor) -> Tensor:
    import torch

    return torch.cat([prompt, generated], 1)


TWO_LAYERS: Final = "two-layers"
"""The pooling that estimates start from: what a late layer has merged, such as judgements, an earlier one still holds."""
POOLINGS = {
    "1st-gen": Pooling(
        "the state that predicts the answer's first word (default of decoders)",
        ("causal", "seq2seq"),
        keep=_keep_first,
        mode="lasttoken",
    ),
    "avg-gen": Pooling(
        "the mean over the answer (default of masked LMs)",
        ("causal", "seq2seq", "masked"),
        reads_answer=True,
        keep=lambda prompt, generated: _join(keep_last_true(prompt), generated),
    ),
    "last-gen": Pooling(
        "the answer's last state",
        ("causal", "seq2seq"),
        reads_answer=True,
        keep=lambda prompt, generated: keep_last_true(_join(keep_last_true(prompt), generated)),
    ),
    "avg-ppt": Pooling("the mean over the prompt", ("causal", "seq2seq", "masked"), keep=_keep_prompt),
    "avg-all": Pooling("the mean over prompt and answer", ("causal", "masked"), reads_answer=True, keep=_join),
    "soft-gen": Pooling("the mean over max_new_tokens soft tokens, expected embeddings of the next token (GIRCSE)", ("causal",)),
    "re-enc": Pooling("the answers themselves, embedded", ()),
    "text-mean": Pooling("the mean over the text without its instruction", ("embedding",)),
    "mean": Pooling("the mean over all tokens", ("embedding",)),
    "weighted-mean": Pooling(
        "the mean over all tokens, with more weight on later ones (SGPT)",
        ("embedding",),
        mode="weightedmean",
        weigh=lambda mask: mask * mask.cumsum(1),
    ),
    "cls": Pooling("the first token", ("embedding",), mode="cls"),
    "last-token": Pooling("the last token", ("embedding",), mode="lasttoken"),
    TWO_LAYERS: Pooling("a base encoder's own pooling of its last layer, and of the layer at two thirds of its depth", ()),
}
"""All poolings by name; families, help texts and the export read this table."""


def list_poolings(family: str) -> tuple[str, ...]:
    """List the poolings of a family.

    Args:
        family: "causal", "seq2seq", "masked" or "embedding".

    Returns:
        Their names, the family's default first.
    """
    return tuple(name for name, pooling in POOLINGS.items() if family in pooling.families)


def describe_poolings() -> str:
    """Describe every pooling in one line, for ``--help``."""
    return "; ".join(f"{name}: {pooling.help}" for name, pooling in POOLINGS.items())


_AUTHORS_NAMES = {
    "fst_gen": "1st-gen",
    "first_gen": "1st-gen",
    "last_ppt": "1st-gen",
    "avg_gen": "avg-gen",
    "last_gen": "last-gen",
    "avg_ppt": "avg-ppt",
    "avg_all": "avg-all",
    "re_encode": "re-enc",
}


def parse_pooling(name: str) -> tuple[str, int | None]:
    """Parse a pooling name, or one of the authors' code such as ``fst_gen_layer_32``.

    Args:
        name: A name of ``POOLINGS`` or of the authors' code.

    Returns:
        The pooling and, if the name contains one, the layer.

    Raises:
        InputError: If the name is unknown.
    """
    if name in POOLINGS and "embedding" not in POOLINGS[name].families:
        return name, None
    match = re.fullmatch(r"([a-z]+_[a-z]+)(?:_layer_(\d+))?", name)
    if match and match[1] in _AUTHORS_NAMES:
        return _AUTHORS_NAMES[match[1]], int(match[2]) if match[2] else None
    embedding = list_poolings("embedding")
    answering = ", ".join(pooling for pooling in POOLINGS if pooling not in embedding)
    raise InputError(f"Unknown pooling {name!r}. Choose one of: {answering} (embedding models have {', '.join(embedding)}).")


def widen(states: Tensor) -> Tensor:
    """Convert states to float32; float64 stays."""
    return states if states.element_size() > 4 else states.float()


def weighted_mean(states: Tensor, weights: Tensor) -> Tensor:
    """Compute the weighted mean over positions, in float32 or float64.

    Args:
        states: Hidden states, shape (batch, positions, d).
        weights: Non-negative, shape (batch, positions), with at least one positive weight per row.

    Returns:
        Means, float32, or float64 for float64 states, shape (batch, d).
    """
    states = widen(states).masked_fill((weights == 0).unsqueeze(-1), 0.0)
    return (states * weights.unsqueeze(-1)).sum(1) / weights.sum(1, keepdim=True)


def masked_mean(states: Tensor, keep: Tensor) -> Tensor:
    """Compute the mean over the kept positions, in float32 or float64.

    Args:
        states: Hidden states, shape (batch, positions, d).
        keep: Positions that count, bool, shape (batch, positions); at least one per row.

    Returns:
        Means, float32, or float64 for float64 states, shape (batch, d).
    """
    weights = keep.unsqueeze(-1)
    return widen(states).masked_fill(~weights, 0.0).sum(1) / weights.sum(1)


def keep_last_true(mask: Tensor) -> Tensor:
    """Keep only the last True of each row, on whichever side the padding is.

    Args:
        mask: bool, shape (batch, positions).

    Returns:
        bool of the same shape, with at most one True per row.
    """
    remaining = mask.flip(1).cumsum(1).flip(1)
    return mask & (remaining == 1)


def mask_generated(predicted: Tensor, excluded: Tensor) -> Tensor:
    """Mark the generated positions that are pooled.

    Args:
        predicted: Generated token ids y_0 .. y_{G-1}, shape (batch, G).
        excluded: Ids of special tokens and filtered words, shape (k,).

    Returns:
        bool, shape (batch, G - 1): entry j is the position that predicted y_{j+1}; never all False, unless G = 1.
    """
    import torch

    keep = ~torch.isin(predicted[:, 1:], excluded)
    if keep.shape[1]:
        keep[:, 0] |= ~keep.any(1)
    return keep


def mask_positions(pooling: str, prompt: Tensor, generated: Tensor) -> Tensor:
    """Mark the positions that a pooling averages over, in a prompt followed by generated positions.

    Args:
        pooling: One of "1st-gen", "avg-gen", "last-gen", "avg-ppt", "avg-all".
        prompt: Prompt positions that are not padding, bool, shape (batch, P).
        generated: Generated positions, as ``mask_generated`` marks them, bool, shape (batch, G - 1).

    Returns:
        bool, shape (batch, P + G - 1).

    Raises:
        InputError: If the pooling does not read the hidden states of a prompt and its answer.
    """
    keep = POOLINGS[pooling].keep if pooling in POOLINGS else None
    if keep is None:
        raise InputError(f"{pooling!r} does not pool hidden states of a prompt and its answer.")
    return keep(prompt, generated)
