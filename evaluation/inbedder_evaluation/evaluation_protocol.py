"""Protocols of evaluation: how texts are cut, how vectors are grouped, and how many seeds k-means takes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Protocol:
    """What a protocol fixes; its grouping is in ``metrics.group_vectors``."""

    model_options: Mapping[str, Any] = field(default_factory=dict)
    """Options of every model, unless the user sets them."""
    seeds: int | None = None
    """Number of k-means seeds; None leaves it to the user."""


PROTOCOLS = {"k-means": Protocol(), "paper": Protocol({"truncation_side": "prompt-left"}, seeds=1)}
"""The protocols by name; "paper" is that of the InBedder authors' code, whose tokenizers cut the start of a rendered prompt."""


def add_protocol_options(model_options: Mapping[str, Any], protocol: str) -> dict[str, Any]:
    """Add the options of a protocol to those that the user set.

    Args:
        model_options: Keyword arguments of ``InBedder``, which win.
        protocol: A name in ``PROTOCOLS``.

    Returns:
        Keyword arguments of ``InBedder``.
    """
    return {**PROTOCOLS[protocol].model_options, **model_options}
