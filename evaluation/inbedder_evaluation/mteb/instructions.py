"""INSTRUCTOR's 56 English sets of MTEB, with an instruction for each in several wordings (``prompts/mteb.yaml``).

The wordings follow the authors' code for their three models, and the INSTRUCTOR paper's experiments on robustness (section 4.2,
figure 4, table 6) and on the level of detail (section 4.3, figure 5).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from inbedder.errors import InputError
from inbedder.prompting.short_instructions import make_tag, shorten_instruction
from inbedder.prompting.templates import read_prompts

SIZES = ("large", "base", "xl")
"""The authors' wordings for each of their models."""
PARAPHRASES = tuple(f"paraphrase-{number}" for number in range(1, 6))
"""The wordings of the paper's table 6."""
NO_INSTRUCTION = "none"
WORDINGS = (*SIZES, NO_INSTRUCTION, "tag", "simple", *PARAPHRASES)
DUPLICATES = "CQADupstack"
"""Beginning of the names of twelve sets that count as one."""


@dataclass(frozen=True)
class InstructedSet:
    """A set of MTEB and what it is asked."""

    name: str
    """mteb's name of the set."""
    kind: str
    """mteb's type of the task."""
    wordings: Mapping[str, Any]
    """The set's entry in ``prompts/mteb.yaml``."""

    @property
    def group(self) -> str:
        """The name under which MTEB averages the set: its own, or CQADupstackRetrieval."""
        return f"{DUPLICATES}Retrieval" if self.name.startswith(DUPLICATES) else self.name

    def has_wording(self, wording: str) -> bool:
        """Return whether the set has instructions in a wording; only two sets have paraphrases."""
        return wording not in PARAPHRASES or "paraphrases" in self.wordings

    def get_instructions(self, wording: str) -> tuple[str, str]:
        """Get the instructions of a wording.

        Args:
            wording: One of ``WORDINGS``.

        Returns:
            The instruction for queries (and for all texts of a symmetric set) and that for documents; both end in a space.
            Two empty strings for ``none``.
        """
        if wording == NO_INSTRUCTION:
            return "", ""
        if wording == "tag":
            tag = make_tag(self.wordings.get("tag", self.name))
            return tag, tag
        if wording in PARAPHRASES:
            return _split_roles(self.wordings["paraphrases"][PARAPHRASES.index(wording)])
        query, document = _split_roles(self.wordings.get(wording, self.wordings["large"]))
        return (shorten_instruction(query), shorten_instruction(document)) if wording == "simple" else (query, document)


def _split_roles(instruction: str | Mapping[str, str]) -> tuple[str, str]:
    return (instruction, instruction) if isinstance(instruction, str) else (instruction["query"], instruction["document"])


@cache
def read_instructed_sets() -> tuple[InstructedSet, ...]:
    """Read all sets of ``prompts/mteb.yaml``, in file order."""
    content = read_prompts("mteb")
    return tuple(InstructedSet(name, kind, wordings) for kind, sets in content.items() for name, wordings in sets.items())


def select_sets(kinds: Sequence[str] = (), names: Sequence[str] = ()) -> list[InstructedSet]:
    """Select sets by kind or name.

    Args:
        kinds: mteb's types of tasks, such as STS.
        names: mteb's names of sets; CQADupstackRetrieval selects its twelve.

    Returns:
        The sets of any of the kinds or names, in file order; all sets when both are empty.

    Raises:
        InputError: If a kind or name is not in the list.
    """
    sets = read_instructed_sets()
    _check_known("kind", kinds, (known_set.kind for known_set in sets))
    _check_known("set", names, (name for known_set in sets for name in (known_set.group, known_set.name)))
    if not kinds and not names:
        return list(sets)
    return [each for each in sets if each.kind in kinds or each.name in names or each.group in names]


def _check_known(noun: str, choices: Sequence[str], known_names: Iterable[str]) -> None:
    distinct_names = list(dict.fromkeys(known_names))
    for choice in choices:
        if choice not in distinct_names:
            raise InputError(f"INSTRUCTOR's list of MTEB has no {noun} {choice!r}. Choose from: {', '.join(distinct_names)}.")
