"""The books of a campaign: kinds of faults, what became of each fault, the table and the json."""

from __future__ import annotations

import math
import random
import shutil
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

FULL_MINUTES = 15.0
"""How long all faults take on 2 cores; a shorter campaign takes an even part of each kind."""


class Lost(Exception):  # noqa: N818 - an outcome
    """Work or data were lost, a file was left over, or nobody was told what to do: a wrong exit code, a raw error."""


class UndetectedError(Exception):
    """A result that is not the right one came without an error."""


class NotPossible(Exception):  # noqa: N818 - an outcome
    """This machine cannot make the fault."""


@dataclass
class Fault:
    """One fault, decided by the campaign's seed, its kind and its number."""

    kind: str
    """Name of its kind."""
    number: int
    """From 0."""
    seed: int
    """The campaign's."""
    folder: Path
    """A folder of its own, removed afterwards."""
    notes: list[str] = field(default_factory=list)
    """What was done, for the description."""

    def __post_init__(self) -> None:
        """Make the stream of random numbers."""
        self.draw = random.Random(f"{self.seed}/{self.kind}/{self.number}")

    def note(self, text: str) -> None:
        """Write down what is done, so that a bad end can be described."""
        self.notes.append(text)


@dataclass(frozen=True)
class Kind:
    """A kind of fault."""

    name: str
    """For the table."""
    count: int
    """Faults in a full campaign."""
    do: Callable[[Fault], None]
    """Does one: returns when it was survived, else raises one of the outcomes; anything else that it raises is a loss."""
    thinned: bool = True
    """Whether a shorter campaign takes fewer."""

    def numbers(self, minutes: float) -> list[int]:
        """Which faults a campaign of so many minutes takes: evenly spread, at least one."""
        if not self.thinned:
            return list(range(self.count))
        count = min(self.count, max(1, math.ceil(self.count * minutes / FULL_MINUTES)))
        return [i * self.count // count for i in range(count)]


@dataclass
class Tally:
    """What became of the faults of a kind."""

    kind: str
    """Name of the kind."""
    attempts: int = 0
    """Faults that were made."""
    survived: int = 0
    """Those after which all was right."""
    lost: list[str] = field(default_factory=list)
    """Descriptions of those that lost something."""
    undetected: list[str] = field(default_factory=list)
    """Descriptions of those that gave a wrong result without an error."""
    not_possible: str = ""
    """Why some or all could not be made."""
    left_out: int = 0
    """Faults for which no time was left."""
    seconds: float = 0.0
    """How long they took."""

    def to_json(self) -> dict[str, Any]:
        """As a table of json."""
        counts: dict[str, Any] = {"kind": self.kind, "attempts": self.attempts, "survived": self.survived}
        counts |= {"lost": len(self.lost), "undetected": len(self.undetected), "seconds": round(self.seconds, 1)}
        if self.not_possible:
            counts["not_possible_here"] = self.not_possible
        if self.left_out:
            counts["no_time_left_for"] = self.left_out
        return counts


def run_kind(kind: Kind, numbers: Iterable[int], seed: int, folder: Path, end: float = math.inf) -> Tally:
    """Make faults of a kind, one after the other.

    Args:
        kind: The kind.
        numbers: Which of its faults.
        seed: The campaign's.
        folder: Where each fault gets a folder of its own.
        end: Time of ``time.monotonic`` after which none is begun.

    Returns:
        What became of them.
    """
    return next(take_turns([(kind, numbers)], seed, folder, end))


def take_turns(kinds: Iterable[tuple[Kind, Iterable[int]]], seed: int, folder: Path, end: float = math.inf) -> Iterator[Tally]:
    """Make faults of several kinds: the next one is of the kind that has taken the least time so far.

    Args:
        kinds: Each kind, and which of its faults.
        seed: The campaign's.
        folder: Where each fault gets a folder of its own.
        end: Time of ``time.monotonic`` after which none is begun.

    Yields:
        What became of a kind's faults, when it has no more.
    """
    waiting = [(Tally(kind.name), kind, deque(numbers)) for kind, numbers in kinds]
    while waiting:
        place = min(range(len(waiting)), key=lambda i: waiting[i][0].seconds)
        tally, kind, numbers = waiting[place]
        started = time.monotonic()
        if started > end:
            tally.left_out = len(numbers)
            numbers.clear()
        if numbers:
            _make(kind, numbers.popleft(), seed, folder, tally)
            tally.seconds += time.monotonic() - started
        if not numbers:
            yield waiting.pop(place)[0]


def _make(kind: Kind, number: int, seed: int, folder: Path, tally: Tally) -> None:
    fault = Fault(kind.name, number, seed, folder / f"{kind.name.replace(' ', '-').replace('/', '-')}-{number}")
    fault.folder.mkdir(parents=True)
    _judge(kind, fault, tally)
    shutil.rmtree(fault.folder, ignore_errors=True)


def _judge(kind: Kind, fault: Fault, tally: Tally) -> None:
    """Make one fault and count it."""
    try:
        kind.do(fault)
    except NotPossible as reason:
        tally.not_possible = str(reason)
        return
    except UndetectedError as reason:
        tally.undetected.append(_description(fault, str(reason)))
    except Lost as reason:
        tally.lost.append(_description(fault, str(reason)))
    except Exception as error:  # a raw error tells nobody what to do
        tally.lost.append(_description(fault, f"raised {type(error).__name__}: {' '.join(str(error).split())[:300]}"))
    else:
        tally.survived += 1
    tally.attempts += 1


def _description(fault: Fault, reason: str) -> str:
    command = f"--seed {fault.seed} --only '{fault.kind}' --number {fault.number}"
    return f"{'; '.join(fault.notes)}: {reason} (again: python -m tests.faults {command})"


def table_of(tallies: Sequence[Tally]) -> str:
    """The results as text, one row per kind.

    Args:
        tallies: Of all kinds.

    Returns:
        Lines of equal columns; below them the descriptions of what was lost or wrong.
    """
    width = max([len(tally.kind) for tally in tallies] + [13])
    lines = [f"{'kind of fault':{width}}  {'attempts':>6} {'survived':>9} {'lost':>5} {'undetected':>15} {'seconds':>8}"]
    for tally in tallies:
        counts = f"{tally.attempts:6d} {tally.survived:9d} {len(tally.lost):5d} {len(tally.undetected):15d} {tally.seconds:8.0f}"
        reasons = f"  not possible here: {tally.not_possible}" if tally.not_possible else ""
        reasons += f"  no time left for {tally.left_out}" if tally.left_out else ""
        lines.append(f"{tally.kind:{width}}  {counts}{reasons}")
    total = total_of(tallies)
    lines.append(f"{'all':{width}}  {total['attempts']:6d} {total['survived']:9d} {total['lost']:5d} {total['undetected']:15d}")
    lines += [f"lost: {case}" for tally in tallies for case in tally.lost]
    lines += [f"undetected: {case}" for tally in tallies for case in tally.undetected]
    return "\n".join(lines)


def total_of(tallies: Sequence[Tally]) -> dict[str, int]:
    """Sums over all kinds."""
    return {
        "attempts": sum(tally.attempts for tally in tallies),
        "survived": sum(tally.survived for tally in tallies),
        "lost": sum(len(tally.lost) for tally in tallies),
        "undetected": sum(len(tally.undetected) for tally in tallies),
    }
