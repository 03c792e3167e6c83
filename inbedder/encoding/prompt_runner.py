"""Runs of many prompts: each distinct text is looked up in the cache or computed, in batches of similar length.

Prompts are processed in windows: a thread tokenizes the next window while the model computes, and memory stays bounded. Batches
are planned over a whole window, cached prompts included. A rerun after an interruption therefore uses the same batches as an
uninterrupted run, and its results are bit-equal.
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
from inbedder.backbones.confidence import ScoredAnswer
from inbedder.backbones.kv_cache import KVCache
from inbedder.backbones.protocol import Backbone, JointReading
from inbedder.backbones.shared_prefix import embed_shared, explain_not_shared
from inbedder.cache.store import CacheSpace, JointSpace, Pair, Store
from inbedder.errors import InputError, TextCutWarning
from inbedder.options import TRUNCATION_SIDES, EncodingOptions, Sampling
from inbedder.prompting.batching import TOKEN_BUDGET, get_token_budget, split_into_batches
from inbedder.prompting.tokenization import PromptTokenizer, PromptTokens
from inbedder.runtime.threads import map_side_by_side
from inbedder.runtime.timings import time_items
from inbedder.vector_spec import VectorSpec
from inbedder.vectors.vectors import Vectors, pack_vector, unpack_vector

logger = logging.getLogger(__name__)

MIN_PROGRESS_TEXTS = 256
"""Minimum number of texts for a progress bar in a terminal."""
PROMPTS_PER_WINDOW = 16384
"""Number of prompts that are tokenized and sorted by length together."""
SCORED_ANSWERS = "answers and confidences"
"""Name of cached answers; the threshold of confidence is applied to them later, so that it may change."""
PACKAGE_FOLDER = Path(__file__).parents[1]
Unit = tuple[str, tuple[str, ...]]
"""A text and its instructions."""
RunBatch = Callable[[Sequence[Sequence[PromptTokens]]], Sequence[Sequence[Any]]]
"""From a batch of units' prompts to each unit's results, one per prompt."""


@dataclass(frozen=True)
class RunOptions:
    """Batch size and progress bar of a run."""

    batch_size: int = 32
    """Maximum number of texts in one pass."""
    show_progress_bar: bool | None = None
    """Whether to show a progress bar; None shows it for long runs in a terminal."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "batch_size", check_integer("batch_size", self.batch_size, 1))


def run_prompts(
    tokenizer: PromptTokenizer,
    texts: Sequence[str],
    instructions: Sequence[tuple[str, ...]],
    run_batch: RunBatch,
    run_options: RunOptions,
    *,
    max_tokens: int,
    verb: str = "Working",
    space: CacheSpace | JointSpace | None = None,
    side_by_side: bool = False,
) -> Iterator[tuple[list[int], Sequence[Any]]]:
    """Compute or look up the results of all prompts.

    Args:
        tokenizer: The model's tokenizer of prompts.
        texts: n texts.
        instructions: n tuples of m instructions each.
        run_batch: Computes the results of a batch.
        run_options: Batch size (in prompts, or in texts if m is above 1) and progress bar.
        max_tokens: Maximum number of padded tokens in one batch.
        verb: The progress bar's label.
        space: The cache in which results are looked up and stored.
        side_by_side: Whether several batches are computed at a time, each in a thread.

    Yields:
        The rows of one text and its instructions, and their m results. Together they contain every row once.

    Raises:
        InputError: If an instruction leaves no room for any text.
    """
    rows: dict[Unit, list[int]] = defaultdict(list)
    for row, unit in enumerate(zip(texts, instructions, strict=True)):
        rows[unit].append(row)
    show = run_options.show_progress_bar
    is_hidden = not show if show is not None else (len(texts) < MIN_PROGRESS_TEXTS or None)
    num_cut = 0
    with tqdm(total=len(texts), desc=verb, unit=" texts", disable=is_hidden) as bar:
        for unit, is_cut, results in _iterate_results(
            tokenizer, list(rows), run_batch, run_options.batch_size, max_tokens, space, side_by_side
        ):
            num_cut += len(rows[unit]) if is_cut else 0
            yield rows[unit], results
            bar.update(len(rows[unit]))
    if num_cut:
        side, limit = TRUNCATION_SIDES[tokenizer.truncation_side], tokenizer.max_length
        message = (
            f"{num_cut} of {len(texts)} texts were cut at their {side} to fit max_length={limit} tokens; "
            "raise max_length if the model allows it, or split long texts (inbedder cluster --split)."
        )
        warnings.warn(TextCutWarning(message, num_cut), stacklevel=_find_caller_level())


def _find_caller_level() -> int:
    """Return the stack level of the first caller outside this package, for ``warnings.warn``."""
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
    space: CacheSpace | JointSpace | None,
    side_by_side: bool,
) -> Iterator[tuple[Unit, bool, Sequence[Any]]]:
    """Yield each unit, whether its text was cut, and its results, window by window."""
    window_size = max(1, PROMPTS_PER_WINDOW // (len(units[0][1]) if units else 1))
    windows = _iterate_windows(tokenizer, units, window_size, space)
    for window, cached_results, prompts in time_items(windows, "tokenizing"):
        for unit in cached_results:
            yield unit, *cached_results[unit]
        lengths = [len(row) * max(len(prompt.ids) for prompt in row) for row in prompts]
        batches = [batch.tolist() for batch in split_into_batches(lengths, batch_size, max_tokens)]
        new_batches = [[number for number in batch if window[number] not in cached_results] for batch in batches]
        prompts_of_batches = [[prompts[number] for number in numbers] for numbers in new_batches]
        map_batches = map_side_by_side if side_by_side else map
        results_of_batches = map_batches(lambda batch: run_batch(batch) if batch else (), prompts_of_batches)
        timed_results = time_items(results_of_batches, "model")
        for numbers, batch_prompts, results in zip(new_batches, prompts_of_batches, timed_results, strict=True):
            if not numbers:
                continue
            if space:
                pairs = [pair for number in numbers for pair in _list_pairs(window[number])]
                space.put(pairs, [prompt.is_cut for prompt in _flatten(batch_prompts)], _flatten(results))
            for number, row, result in zip(numbers, batch_prompts, results, strict=True):
                yield window[number], any(prompt.is_cut for prompt in row), result


def _iterate_windows(
    tokenizer: PromptTokenizer, units: list[Unit], window_size: int, space: CacheSpace | JointSpace | None
) -> Iterator[tuple[list[Unit], dict[Unit, tuple[bool, list[Any]]], list[list[PromptTokens]]]]:
    """Yield each window's units, cached results and prompts, while a thread tokenizes the next window."""
    windows = [units[start : start + window_size] for start in range(0, len(units), window_size)]
    if len(windows) < 2:  # a thread costs more than tokenizing a short text
        yield from ((window, *_prepare(tokenizer, window, space)) for window in windows)
        return
    with ThreadPoolExecutor(1, thread_name_prefix="tokenize") as thread:
        future = thread.submit(_prepare, tokenizer, windows[0], space)
        for number, window in enumerate(windows):
            cached_results, prompts = future.result()
            future = thread.submit(_prepare, tokenizer, windows[number + 1] if number + 1 < len(windows) else [], space)
            yield window, cached_results, prompts


def _prepare(
    tokenizer: PromptTokenizer, units: Sequence[Unit], space: CacheSpace | JointSpace | None
) -> tuple[dict[Unit, tuple[bool, list[Any]]], list[list[PromptTokens]]]:
    """Look up the cached results of units, and, unless all are cached, tokenize the prompts of all."""
    pairs = [pair for unit in units for pair in _list_pairs(unit)]
    cached_pairs = space.find(pairs) if space else {}
    cached_results = {}
    for unit in units if cached_pairs else ():
        if all(pair in cached_pairs for pair in _list_pairs(unit)):
            entries = [cached_pairs[pair] for pair in _list_pairs(unit)]
            cached_results[unit] = (any(is_cut for is_cut, _ in entries), [result for _, result in entries])
    if len(cached_results) == len(units):
        return cached_results, []
    prompts = iter(tokenizer([text for text, _ in pairs], [instruction for _, instruction in pairs]))
    return cached_results, [[next(prompts) for _ in instructions] for _, instructions in units]


def _list_pairs(unit: Unit) -> list[Pair]:
    """List a unit's pairs of text and instruction."""
    text, instructions = unit
    return [(text, instruction) for instruction in instructions]


def _flatten(rows: Sequence[Sequence[Any]]) -> list[Any]:
    return [item for row in rows for item in row]


def _strip(answers: Sequence[ScoredAnswer]) -> list[ScoredAnswer]:
    return [answer._replace(text=answer.text.strip()) for answer in answers]


class PromptRunner:
    """Reads prompts with a backbone and caches the results."""

    def __init__(
        self,
        backbone: Backbone,
        tokenizer: PromptTokenizer,
        encoding: EncodingOptions,
        store: Store | None,
        make_spec: Callable[[], VectorSpec],
        kv_cache: KVCache | None = None,
    ) -> None:
        """Set the parts.

        Args:
            backbone: The model.
            tokenizer: The tokenizer of prompts.
            encoding: How a text becomes a vector, with every default filled in.
            store: The cache on disk, or None.
            make_spec: Returns the spec of the vectors; called only with a cache on disk.
            kv_cache: The key-value cache of texts, for 1st-gen and soft-gen of a causal LM.
        """
        self.backbone, self.tokenizer, self.encoding = backbone, tokenizer, encoding
        self.store, self._make_spec, self.kv_cache = store, make_spec, kv_cache
        self._spaces: dict[tuple[Any, ...], dict[str, Any]] = {}

    @property
    def max_batch_tokens(self) -> int:
        """Maximum number of padded tokens in one pass."""
        return self.encoding.max_batch_tokens or get_token_budget(self.backbone.model.device)

    @property
    def _runs_side_by_side(self) -> bool:
        return self.backbone.runs_side_by_side and self.backbone.model.device.type == "cpu"

    @property
    def _cached_texts(self) -> dict[str, Any]:
        """The argument of causal models that cache texts."""
        return {} if self.kv_cache is None else {"kv_cache": self.kv_cache}

    def pool(
        self,
        texts: Sequence[str],
        instructions: Sequence[tuple[str, ...]],
        filter_words: Sequence[str],
        run_options: RunOptions,
    ) -> Vectors:
        """Pool the states of n texts under m instructions each.

        Args:
            texts: n texts, n at least 1.
            instructions: n tuples of m instructions.
            filter_words: Words whose hidden states are left out of an answer's mean.
            run_options: Batch size and progress bar.

        Returns:
            float32, shape (m, n, d). Models that can read a text once for all its instructions do so.

        Raises:
            InputError: If an instruction leaves no room for a text.
        """
        count = len(instructions[0])
        if count > 1 and (reason := explain_not_shared(self.backbone, str(self.encoding.pooling), self.tokenizer.template)):
            logger.info("Each instruction reads the texts again: %s.", reason)
            single_instructions = [[(row[number],) for row in instructions] for number in range(count)]
            return np.concatenate([self.pool(texts, column, filter_words, run_options) for column in single_instructions])
        filter_ids = self.tokenizer.find_token_ids(filter_words)
        budget = self.max_batch_tokens if count == 1 else TOKEN_BUDGET  # shared states are counted once each
        run_batch = self._embed_shared if count > 1 else lambda batch: self._embed(batch, filter_ids)
        space = self._get_vector_space(filter_words)
        options: dict[str, Any] = {"max_tokens": budget, "space": space, "side_by_side": self._runs_side_by_side}
        results = run_prompts(self.tokenizer, texts, instructions, run_batch, run_options, verb="Embedding", **options)
        vectors = np.empty((count, 0, 0), dtype=np.float32)
        for rows, row_vectors in results:
            if not vectors.shape[1]:
                vectors = np.empty((count, len(texts), len(row_vectors[0])), dtype=np.float32)
            for number, vector in enumerate(row_vectors):
                vectors[number, rows] = vector
        return vectors

    def _embed(self, batch: Sequence[Sequence[PromptTokens]], filter_ids: Sequence[int]) -> Any:
        prompts, encoding = [prompt for (prompt,) in batch], self.encoding
        arguments = (prompts, str(encoding.pooling), encoding.layer, encoding.sampling, filter_ids)
        return self.backbone.embed(*arguments, **self._cached_texts).cpu().numpy()[:, None]

    def _embed_shared(self, batch: Sequence[Sequence[PromptTokens]]) -> Any:
        encoding = self.encoding
        arguments = (self.backbone, batch, str(encoding.pooling), encoding.layer, encoding.sampling)
        return embed_shared(*arguments, kv_cache=self.kv_cache).cpu().numpy()

    def answer(
        self, texts: Sequence[str], instructions: Sequence[str], sampling: Sampling, run_options: RunOptions
    ) -> list[list[ScoredAnswer]]:
        """Answer each text's instruction: n lists of ``sampling.n`` answers with their confidences."""

        def answer_batch(batch: Sequence[Sequence[PromptTokens]]) -> list[list[list[ScoredAnswer]]]:
            prompts = [prompt for (prompt,) in batch]
            return [[answers] for answers in self.backbone.answer(prompts, sampling, **self._cached_texts)]

        single_instructions, budget = [(instruction,) for instruction in instructions], self.max_batch_tokens
        answers: list[list[ScoredAnswer]] = [[] for _ in texts]
        space = self._get_answer_space(sampling)
        options: dict[str, Any] = {"max_tokens": budget, "space": space, "side_by_side": self._runs_side_by_side}
        results = run_prompts(self.tokenizer, texts, single_instructions, answer_batch, run_options, verb="Answering", **options)
        for rows, (row_answers,) in results:
            for row in rows:
                answers[row] = _strip(row_answers)
        return answers

    def pool_and_answer(
        self, texts: Sequence[str], instructions: Sequence[str], answering: Sampling, run_options: RunOptions
    ) -> tuple[Vectors, list[list[ScoredAnswer]]]:
        """Pool each text's states under its instruction, and answer it, in one pass where the model can.

        Args:
            texts: n texts, n at least 1.
            instructions: n instructions.
            answering: Length and number of answers, and how they are sampled.
            run_options: Batch size and progress bar.

        Returns:
            Vectors as from ``pool``, shape (1, n, d), and answers as from ``answer``.
        """
        single_instructions = [(instruction,) for instruction in instructions]
        encoding = self.encoding
        reading = JointReading(str(encoding.pooling), encoding.layer, encoding.sampling, answering)

        def run_batch(batch: Sequence[Sequence[PromptTokens]]) -> list[list[tuple[Vectors, list[ScoredAnswer]]]]:
            results = self.backbone.embed_and_answer([prompt for (prompt,) in batch], reading, **self._cached_texts)
            return [[(vector.cpu().numpy(), answers)] for vector, answers in results]

        vector_space, answer_space = self._get_vector_space(), self._get_answer_space(answering)
        space = JointSpace(vector_space, answer_space) if vector_space and answer_space else None
        budget = self.max_batch_tokens
        options: dict[str, Any] = {"max_tokens": budget, "space": space, "side_by_side": self._runs_side_by_side}
        results = run_prompts(self.tokenizer, texts, single_instructions, run_batch, run_options, verb="Reading", **options)
        row_vectors: list[Any] = [None] * len(texts)
        row_answers: list[list[ScoredAnswer]] = [[] for _ in texts]
        for rows, ((vector, scored_answers),) in results:
            for row in rows:
                row_vectors[row], row_answers[row] = vector, _strip(scored_answers)
        return np.stack(row_vectors).astype(np.float32, copy=False)[None], row_answers

    def cached_vectors(self, keys: Sequence[bytes]) -> dict[bytes, Vectors]:
        """Look up pooled states in the cache by their keys."""
        space = self._get_vector_space()
        entries = {} if space is None else space.store.get(space.description, keys)
        return {key: unpack_vector(data[1:]) for key, data in entries.items()}

    def _get_vector_space(self, filter_words: Sequence[str] = ()) -> CacheSpace | None:
        return self._get_space("vectors", pack_vector, unpack_vector, filter_words)

    def _get_answer_space(self, sampling: Sampling) -> CacheSpace | None:
        def unpack(data: bytes) -> list[ScoredAnswer]:
            return [ScoredAnswer(*pair) for pair in json.loads(data)]

        return self._get_space(SCORED_ANSWERS, lambda pairs: json.dumps(pairs).encode(), unpack, sampling=sampling)

    def _get_space(
        self,
        kind: str,
        pack: Callable[[Any], bytes | None],
        unpack: Callable[[bytes], Any],
        filter_words: Sequence[str] = (),
        sampling: Sampling | None = None,
    ) -> CacheSpace | None:
        """Return the cache space of one kind of results; None without a cache."""
        if self.store is None:
            return None
        key = (kind, tuple(filter_words), sampling)
        if key not in self._spaces:
            self._spaces[key] = self._describe_space(*key)
        return CacheSpace(self.store, self._spaces[key], pack, unpack)

    def _describe_space(self, kind: str, filter_words: Sequence[str], sampling: Sampling | None) -> dict[str, Any]:
        """Describe everything, except text and instruction, that determines one kind of results."""
        spec = self._make_spec()
        if spec.weights == "unknown":
            raise InputError(
                f"The weights of {spec.model} have no revision, so cached vectors could be wrong. Load the model without a cache."
            )
        part = spec.of_pooled_states(filter_words) if sampling is None else spec.of_answers()
        description = {"results": kind, "model": spec.model, **part.contents()}
        return description if sampling is None else description | {"sampling": asdict(sampling)}
