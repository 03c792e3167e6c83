"""Work on many prompts: each text and its instructions once, found in a store or computed in batches of similar length.

They are taken in windows, so that the next window is tokenized in a thread while the model works on this one, and memory stays
bounded. Batches are planned over all of a window, what is kept too: a run that was interrupted goes on with the batches that the
whole run would have had, and its result is equal to the bit.
"""

from __future__ import annotations

import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from tqdm.auto import tqdm

from inbedder import vectors as arrays
from inbedder.arguments import whole_number
from inbedder.batching import TOKEN_BUDGET, length_sorted_batches, token_budget
from inbedder.cache import CacheSpace, Pair
from inbedder.errors import ModelError, TextCutWarning
from inbedder.tokenization import SIDES, PromptTokenizer, PromptTokens

LONG_WORK = 256  # from so many texts on, a progress bar is shown in a terminal
WINDOW = 16384
"""Prompts that are sorted by length together."""
V = TypeVar("V", bound=NDArray[np.float32])
Unit = tuple[str, tuple[str, ...]]
"""A text and the instructions that are asked of it together."""
Work = Callable[[Sequence[Sequence[PromptTokens]]], Sequence[Sequence[Any]]]
"""From a batch of units' prompts to each unit's results, one per prompt."""


def run(
    tokenizer: PromptTokenizer,
    texts: Sequence[str],
    questions: Sequence[tuple[str, ...]],
    work: Work,
    *,
    batch_size: int = 32,
    show_progress_bar: bool | None = None,
    verb: str = "Working",
    space: CacheSpace | None = None,
    stacklevel: int = 3,
) -> Iterator[tuple[list[int], Sequence[Any]]]:
    """Give every row its results.

    Args:
        tokenizer: The model's.
        texts: n texts.
        questions: n tuples of m instructions each.
        work: What is done with a batch.
        batch_size: Most prompts (or, where m is above 1, texts) in one batch.
        show_progress_bar: None shows one for long work in a terminal.
        verb: The progress bar's name.
        space: Where results are looked up and kept.
        stacklevel: Whose line the warning of cut texts shows; 3 is the caller's caller.

    Yields:
        The numbers of all rows of one text and its instructions, and their m results; together they hold every row once.

    Raises:
        InputError: When batch_size is below 1, or an instruction leaves no room for any text.
    """
    batch_size = whole_number("batch_size", batch_size, 1)
    rows: dict[Unit, list[int]] = defaultdict(list)
    for row, unit in enumerate(zip(texts, questions, strict=True)):
        rows[unit].append(row)
    hidden = not show_progress_bar if show_progress_bar is not None else (len(texts) < LONG_WORK or None)
    cut = 0
    with tqdm(total=len(texts), desc=verb, unit=" texts", disable=hidden) as bar:
        for unit, was_cut, results in _results(tokenizer, list(rows), work, batch_size, space):
            cut += len(rows[unit]) if was_cut else 0
            yield rows[unit], results
            bar.update(len(rows[unit]))
    if cut:
        side, limit = SIDES[tokenizer.truncation_side], tokenizer.max_length
        message = (
            f"{cut} of {len(texts)} texts were cut at their {side} to fit max_length={limit} tokens; "
            "raise max_length where the model allows it, or split long texts."
        )
        warnings.warn(TextCutWarning(message, cut), stacklevel=stacklevel)


def _results(
    tokenizer: PromptTokenizer, units: list[Unit], work: Work, batch_size: int, space: CacheSpace | None
) -> Iterator[tuple[Unit, bool, Sequence[Any]]]:
    """Each unit, whether its text was cut, and its results, window by window."""
    many = len(units[0][1]) if units else 1
    window = max(1, WINDOW // many)
    most_tokens = token_budget() if many == 1 else TOKEN_BUDGET  # what many instructions share is counted for each
    for window_units, known, prompts in _windows(tokenizer, units, window, space):
        for unit in known:
            yield unit, *known[unit]
        lengths = [len(row) * max(len(prompt.ids) for prompt in row) for row in prompts]
        for batch in length_sorted_batches(lengths, batch_size, most_tokens):
            todo = [number for number in batch.tolist() if window_units[number] not in known]
            if not todo:
                continue
            chosen = [prompts[number] for number in todo]
            results = work(chosen)
            if space:
                pairs = [pair for number in todo for pair in _pairs(window_units[number])]
                space.keep(pairs, [prompt.cut for prompt in _flat(chosen)], _flat(results))
            for number, row, result in zip(todo, chosen, results, strict=True):
                yield window_units[number], any(prompt.cut for prompt in row), result


def _windows(
    tokenizer: PromptTokenizer, units: list[Unit], window: int, space: CacheSpace | None
) -> Iterator[tuple[list[Unit], dict[Unit, tuple[bool, list[Any]]], list[list[PromptTokens]]]]:
    """Each window's units, what is kept of them, and their prompts; the next is tokenized in a thread meanwhile."""
    windows = [units[start : start + window] for start in range(0, len(units), window)]
    if len(windows) < 2:  # a thread costs more than a short text
        yield from ((alone, *_prepare(tokenizer, alone, space)) for alone in windows)
        return
    with ThreadPoolExecutor(1, thread_name_prefix="tokenize") as thread:
        ahead = thread.submit(_prepare, tokenizer, windows[0], space)
        for number, current in enumerate(windows):
            known, prompts = ahead.result()
            ahead = thread.submit(_prepare, tokenizer, windows[number + 1] if number + 1 < len(windows) else [], space)
            yield current, known, prompts


def _prepare(
    tokenizer: PromptTokenizer, units: Sequence[Unit], space: CacheSpace | None
) -> tuple[dict[Unit, tuple[bool, list[Any]]], list[list[PromptTokens]]]:
    """What is kept of some units, and, unless that is all, the prompts of all."""
    pairs = [pair for unit in units for pair in _pairs(unit)]
    kept = space.find(pairs) if space else {}
    known = {}
    for unit in units if kept else ():
        if all(pair in kept for pair in _pairs(unit)):
            found = [kept[pair] for pair in _pairs(unit)]
            known[unit] = (any(was_cut for was_cut, _ in found), [result for _, result in found])
    if len(known) == len(units):
        return known, []
    each = iter(tokenizer([text for text, _ in pairs], [instruction for _, instruction in pairs]))
    return known, [[next(each) for _ in questions] for _, questions in units]


def _pairs(unit: Unit) -> list[Pair]:
    text, questions = unit
    return [(text, instruction) for instruction in questions]


def _flat(rows: Sequence[Sequence[Any]]) -> list[Any]:
    return [item for row in rows for item in row]


def finished(vectors: V, normalize: bool) -> V:
    """Vectors as they leave.

    Args:
        vectors: float32, shape (m, n, d) or (n, d), of n texts; changed in place.
        normalize: Scale them to length 1.

    Returns:
        The same array.

    Raises:
        ModelError: When a text has NaN or infinite values.
    """
    bad = np.flatnonzero(~np.isfinite(vectors).all(axis=(*range(vectors.ndim - 2), -1)))
    if len(bad):
        raise ModelError(
            f"The model gave NaN or infinite values for {len(bad)} of {vectors.shape[-2]} texts (first: text {bad[0]}). "
            "Load it with dtype='float32'."
        )
    if normalize:
        vectors[...] = arrays.unit(vectors)
    return vectors
