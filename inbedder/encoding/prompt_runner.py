"""Runs many prompts: each text and its instructions once, looked up in the cache or computed in batches of similar length.

Prompts are taken in windows, so that the next window is tokenized in a thread while the model works on this one, and memory stays
bounded. Batches are planned over all of a window, cached prompts included: a run that was interrupted resumes with the batches
that the whole run would have had, and its result is equal to the bit.
"""

from __future__ import annotations

import json
import logging
import sys
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from tqdm.auto import tqdm

from inbedder.arguments import check_integer
from inbedder.backbones.causal import CausalBackbone
from inbedder.backbones.kv_cache import KVCache, embed_with_kv_cache
from inbedder.backbones.protocol import Backbone
from inbedder.backbones.shared_prefix import embed_shared, explain_not_shared
from inbedder.cache.store import CacheSpace, Pair, Store
from inbedder.errors import InputError, TextCutWarning
from inbedder.options import TRUNCATION_SIDES, EncodingOptions, Sampling
from inbedder.prompting.batching import TOKEN_BUDGET, get_token_budget, split_into_batches
from inbedder.prompting.tokenization import PromptTokenizer, PromptTokens
from inbedder.vector_spec import VectorSpec
from inbedder.vectors import Vectors, pack_vector, unpack_vector

logger = logging.getLogger(__name__)

MIN_PROGRESS_TEXTS = 256
"""Texts from which on a progress bar is shown in a terminal."""
PROMPTS_PER_WINDOW = 16384
"""Prompts that are sorted by length together."""
PACKAGE_FOLDER = Path(__file__).parents[1]
Unit = tuple[str, tuple[str, ...]]
"""A text and the instructions that are asked of it together."""
RunBatch = Callable[[Sequence[Sequence[PromptTokens]]], Sequence[Sequence[Any]]]
"""From a batch of units' prompts to each unit's results, one per prompt."""


@dataclass(frozen=True)
class RunOptions:
    """How a run is paced and shown."""

    batch_size: int = 32
    """Maximum number of texts in one pass."""
    show_progress_bar: bool | None = None
    """None shows one for long work in a terminal."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "batch_size", check_integer("batch_size", self.batch_size, 1))


def run_prompts(
    tokenizer: PromptTokenizer,
    texts: Sequence[str],
    questions: Sequence[tuple[str, ...]],
    run_batch: RunBatch,
    pace: RunOptions,
    *,
    max_tokens: int,
    verb: str = "Working",
    space: CacheSpace | None = None,
) -> Iterator[tuple[list[int], Sequence[Any]]]:
    """Give every row its results.

    Args:
        tokenizer: The model's.
        texts: n texts.
        questions: n tuples of m instructions each.
        run_batch: Computes the results of a batch.
        pace: Batch size (prompts, or, where m is above 1, texts) and progress bar.
        max_tokens: Maximum number of padded tokens in one batch.
        verb: The progress bar's name.
        space: Where results are looked up and stored.

    Yields:
        The numbers of all rows of one text and its instructions, and their m results; together they hold every row once.

    Raises:
        InputError: When an instruction leaves no room for any text.
    """
    rows: dict[Unit, list[int]] = defaultdict(list)
    for row, unit in enumerate(zip(texts, questions, strict=True)):
        rows[unit].append(row)
    show = pace.show_progress_bar
    hidden = not show if show is not None else (len(texts) < MIN_PROGRESS_TEXTS or None)
    cut = 0
    with tqdm(total=len(texts), desc=verb, unit=" texts", disable=hidden) as bar:
        for unit, was_cut, results in _iterate_results(tokenizer, list(rows), run_batch, pace.batch_size, max_tokens, space):
            cut += len(rows[unit]) if was_cut else 0
            yield rows[unit], results
            bar.update(len(rows[unit]))
    if cut:
        side, limit = TRUNCATION_SIDES[tokenizer.truncation_side], tokenizer.max_length
        message = (
            f"{cut} of {len(texts)} texts were cut at their {side} to fit max_length={limit} tokens; "
            "raise max_length where the model allows it, or split long texts."
        )
        warnings.warn(TextCutWarning(message, cut), stacklevel=_find_caller_level())


def _find_caller_level() -> int:
    """The stack level of the first line outside this package, as seen from the caller's ``warnings.warn``."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and Path(frame.f_code.co_filename).is_relative_to(PACKAGE_FOLDER):
        level, frame = level + 1, frame.f_back
    return level


def _iterate_results(
    tokenizer: PromptTokenizer,
    units: list[Unit],
    run_batch: RunBatch,
    batch_size: int,
    max_tokens: int,
    space: CacheSpace | None,
) -> Iterator[tuple[Unit, bool, Sequence[Any]]]:
    """Each unit, whether its text was cut, and its results, window by window."""
    window = max(1, PROMPTS_PER_WINDOW // (len(units[0][1]) if units else 1))
    for window_units, known, prompts in _iterate_windows(tokenizer, units, window, space):
        for unit in known:
            yield unit, *known[unit]
        lengths = [len(row) * max(len(prompt.ids) for prompt in row) for row in prompts]
        for batch in split_into_batches(lengths, batch_size, max_tokens):
            todo = [number for number in batch.tolist() if window_units[number] not in known]
            if not todo:
                continue
            chosen = [prompts[number] for number in todo]
            results = run_batch(chosen)
            if space:
                pairs = [pair for number in todo for pair in _list_pairs(window_units[number])]
                space.keep(pairs, [prompt.is_cut for prompt in _flatten(chosen)], _flatten(results))
            for number, row, result in zip(todo, chosen, results, strict=True):
                yield window_units[number], any(prompt.is_cut for prompt in row), result


def _iterate_windows(
    tokenizer: PromptTokenizer, units: list[Unit], window: int, space: CacheSpace | None
) -> Iterator[tuple[list[Unit], dict[Unit, tuple[bool, list[Any]]], list[list[PromptTokens]]]]:
    """Each window's units, what is cached of them, and their prompts; the next is tokenized in a thread meanwhile."""
    windows = [units[start : start + window] for start in range(0, len(units), window)]
    if len(windows) < 2:  # a thread costs more than a short text
        yield from ((only, *_prepare(tokenizer, only, space)) for only in windows)
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
    """What is cached of some units, and, unless that is all, the prompts of all."""
    pairs = [pair for unit in units for pair in _list_pairs(unit)]
    cached = space.find(pairs) if space else {}
    known = {}
    for unit in units if cached else ():
        if all(pair in cached for pair in _list_pairs(unit)):
            entries = [cached[pair] for pair in _list_pairs(unit)]
            known[unit] = (any(was_cut for was_cut, _ in entries), [result for _, result in entries])
    if len(known) == len(units):
        return known, []
    each = iter(tokenizer([text for text, _ in pairs], [instruction for _, instruction in pairs]))
    return known, [[next(each) for _ in questions] for _, questions in units]


def _list_pairs(unit: Unit) -> list[Pair]:
    text, questions = unit
    return [(text, instruction) for instruction in questions]


def _flatten(rows: Sequence[Sequence[Any]]) -> list[Any]:
    return [item for row in rows for item in row]


class PromptRunner:
    """Reads prompts with one backbone, in one way, and stores results in a cache."""

    def __init__(
        self,
        backbone: Backbone,
        tokenizer: PromptTokenizer,
        encoding: EncodingOptions,
        store: Store | None,
        spec: Callable[[], VectorSpec],
        text_memory: KVCache | None = None,
    ) -> None:
        """Bind a backbone to a way of reading.

        Args:
            backbone: The model.
            tokenizer: Makes its prompts.
            encoding: How it is read, no default left open.
            store: The cache, or None.
            spec: Gives what decides the vectors; it is asked for only where there is a cache.
            text_memory: Keys and values of texts, for 1st-gen of a causal LM.
        """
        self.backbone, self.tokenizer, self.encoding = backbone, tokenizer, encoding
        self.store, self._make_spec, self.text_memory = store, spec, text_memory
        self._spaces: dict[tuple[Any, ...], dict[str, Any]] = {}

    @property
    def max_batch_tokens(self) -> int:
        """Maximum number of padded tokens in one pass."""
        return self.encoding.max_batch_tokens or get_token_budget(self.backbone.model.device)

    def pool(
        self, texts: Sequence[str], questions: Sequence[tuple[str, ...]], filter_words: Sequence[str], pace: RunOptions
    ) -> Vectors:
        """Pool the states of n texts under m instructions each, as the backbone gives them.

        Args:
            texts: n texts, n at least 1.
            questions: n tuples of m instructions.
            filter_words: Words whose answer states are left out.
            pace: Batch size and progress bar.

        Returns:
            float32, shape (m, n, d). Models that can read a text once for all its instructions do so.

        Raises:
            InputError: When an instruction leaves no room for a text.
        """
        count = len(questions[0])
        if count > 1 and (reason := explain_not_shared(self.backbone, str(self.encoding.pooling), self.tokenizer.template)):
            logger.info("Each instruction reads the texts again: %s.", reason)
            each = [[(row[number],) for row in questions] for number in range(count)]
            return np.concatenate([self.pool(texts, single, filter_words, pace) for single in each])
        filter_ids = self.tokenizer.find_token_ids(filter_words)
        budget = self.max_batch_tokens if count == 1 else TOKEN_BUDGET  # shared states are counted once each
        run_batch = self._embed_shared if count > 1 else lambda batch: self._embed(batch, filter_ids)
        space = self._get_space("vectors", pack_vector, unpack_vector, filter_words)
        results = run_prompts(self.tokenizer, texts, questions, run_batch, pace, max_tokens=budget, verb="Embedding", space=space)
        vectors = np.empty((count, 0, 0), dtype=np.float32)
        for rows, row_vectors in results:
            if not vectors.shape[1]:
                vectors = np.empty((count, len(texts), len(row_vectors[0])), dtype=np.float32)
            for number, vector in enumerate(row_vectors):
                vectors[number, rows] = vector
        return vectors

    def _embed(self, batch: Sequence[Sequence[PromptTokens]], filter_ids: Sequence[int]) -> Any:
        prompts, encoding = [prompt for (prompt,) in batch], self.encoding
        if self.text_memory is not None and not filter_ids:
            assert isinstance(self.backbone, CausalBackbone)
            states = embed_with_kv_cache(self.backbone, prompts, encoding.layer, self.text_memory)
        else:
            states = self.backbone.embed(prompts, str(encoding.pooling), encoding.layer, encoding.sampling, filter_ids)
        return states.cpu().numpy()[:, None]

    def _embed_shared(self, batch: Sequence[Sequence[PromptTokens]]) -> Any:
        return embed_shared(self.backbone, batch, self.encoding.layer).cpu().numpy()

    def answer(self, texts: Sequence[str], instructions: Sequence[str], sampling: Sampling, pace: RunOptions) -> list[list[str]]:
        """Answer each text's instruction."""

        def answer_batch(batch: Sequence[Sequence[PromptTokens]]) -> list[list[list[str]]]:
            return [[answers] for answers in self.backbone.answer([prompt for (prompt,) in batch], sampling)]

        space = self._get_space("answers", lambda texts: json.dumps(texts).encode(), json.loads, sampling=sampling)
        questions, budget = [(instruction,) for instruction in instructions], self.max_batch_tokens
        answers: list[list[str]] = [[] for _ in texts]
        results = run_prompts(
            self.tokenizer, texts, questions, answer_batch, pace, max_tokens=budget, verb="Answering", space=space
        )
        for rows, (row_answers,) in results:
            for row in rows:
                answers[row] = [answer.strip() for answer in row_answers]
        return answers

    def cached_vectors(self, keys: Sequence[bytes]) -> dict[bytes, Vectors]:
        """Look vectors up without their texts."""
        space = self._get_space("vectors", pack_vector, unpack_vector)
        entries = {} if space is None else space.store.get(space.description, keys)
        return {key: unpack_vector(data[1:]) for key, data in entries.items()}

    def _get_space(
        self,
        kind: str,
        pack: Callable[[Any], bytes | None],
        unpack: Callable[[bytes], Any],
        filter_words: Sequence[str] = (),
        sampling: Sampling | None = None,
    ) -> CacheSpace | None:
        """Where results of one kind are stored; None without a cache."""
        if self.store is None:
            return None
        key = (kind, tuple(filter_words), sampling)
        if key not in self._spaces:
            self._spaces[key] = self._describe_space(*key)
        return CacheSpace(self.store, self._spaces[key], pack, unpack)

    def _describe_space(self, kind: str, filter_words: Sequence[str], sampling: Sampling | None) -> dict[str, Any]:
        """All that results of one kind depend on, beside text and instruction."""
        spec = self._make_spec()
        if spec.weights == "unknown":
            raise InputError(
                f"The weights of {spec.model} have no revision, so cached vectors could be wrong. Load it without a cache."
            )
        part = spec.of_pooled_states(filter_words) if sampling is None else spec.of_answers()
        description = {"results": kind, "model": spec.model, **part.contents()}
        return description if sampling is None else description | {"sampling": asdict(sampling)}
