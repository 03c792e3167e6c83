"""Batching across requests: one thread runs a model, and each of its passes may serve several waiting requests.

Each request runs in its own thread with an ``InBedder`` whose backbone is a ``QueuedBackbone``: the thread tokenizes, reads the
cache and normalizes; only passes through the model go to the queue. Every second pass begins with the submission that has waited
longest, the others with that of the request that has submitted the fewest prompts, so that a small request waits for two passes
and not for all large requests before it. Submissions of similar length join the pass, up to the batch size and the token budget.
If a pass fails, its submissions are retried one by one, so that only the faulty request fails.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, Future
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

from opentelemetry.context import Context, get_current
from torch import Tensor

from inbedder.backbones.confidence import ScoredAnswer
from inbedder.backbones.forks import call_after_fork
from inbedder.backbones.protocol import AnsweredVector, Backbone, JointReading
from inbedder.options import Sampling
from inbedder.prompting.batching import CPU_TOKEN_BUDGET
from inbedder.prompting.tokenization import PromptTokens
from inbedder.runtime.threads import limit_threads_of_pass
from inbedder.server.tracing import record_pass


class QueueClosedError(Exception):
    """An error of requests that wait while the server shuts down."""


class Ticket:
    """The state of one request: whether its client still waits, and how much it sent to the model."""

    def __init__(self, slots: threading.Semaphore | None = None) -> None:
        """Start a request; ``slots`` bounds how many compute at a time, and is released while it waits for a pass."""
        self.slots = slots or threading.Semaphore()
        self.is_cancelled = False
        self.submitted_prompts = 0
        self.texts = self.tokens = 0
        self.future: Future[Any] | None = None

    def cancel(self) -> None:
        """Leave the queue, because the client disconnected."""
        self.is_cancelled = True
        if self.future is not None:
            self.future.cancel()

    def check(self) -> None:
        """Raise CancelledError if the client disconnected."""
        if self.is_cancelled:
            raise CancelledError


TICKET: ContextVar[Ticket | None] = ContextVar("ticket", default=None)
"""The request of this thread."""


@dataclass(eq=False)
class Submission:
    """Prompts of one request that wait for a pass."""

    backbone: Backbone
    """The model."""
    method: str
    """"embed" or "answer"."""
    settings: tuple[Any, ...]
    """The method's other arguments; submissions with equal settings may share a pass."""
    prompts: Sequence[PromptTokens]
    """The prompts."""
    request_size: int
    """Number of prompts that the request has submitted, these included."""
    future: Future[Any] = field(default_factory=Future)
    """The result: a row of vectors or a list of answers per prompt."""
    submitted_at: int = field(default_factory=time.time_ns)
    """When it was submitted, in nanoseconds since the epoch."""
    context: Context = field(default_factory=get_current)
    """The trace of the request."""

    @property
    def longest(self) -> int:
        """Number of tokens of the longest prompt."""
        return max(len(prompt.ids) for prompt in self.prompts)

    def can_share_pass(self, candidate: Submission) -> bool:
        """Return whether both call the same method of the same model with the same settings."""
        key, candidate_key = (self.method, self.settings), (candidate.method, candidate.settings)
        return self.backbone is candidate.backbone and key == candidate_key


class BatchQueue:
    """The queue of submissions, and the only thread that runs a model and its base encoder."""

    def __init__(
        self, batch_size: int = 32, on_pass: Callable[[int], None] = lambda rows: None, max_tokens: int = CPU_TOKEN_BUDGET
    ) -> None:
        """Set the maximum prompts and padded tokens of a pass, and what is called with each pass's number of prompts."""
        self.batch_size, self.max_tokens, self._on_pass = batch_size, max_tokens, on_pass
        self._parameters: WeakKeyDictionary[Backbone, int] = WeakKeyDictionary()
        self._closed = False
        self._is_oldest_first = False
        self._reset()
        call_after_fork(self._reset)

    def _reset(self) -> None:
        """Wait for the first submission; threads and their submissions do not survive a fork."""
        self._waiting: list[Submission] = []
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    def __len__(self) -> int:
        """Count the waiting prompts."""
        with self._changed:
            return sum(len(submission.prompts) for submission in self._waiting)

    def submit(self, backbone: Backbone, method: str, settings: tuple[Any, ...], prompts: Sequence[PromptTokens]) -> Any:
        """Wait for a pass of a method ("embed" or "answer"); CancelledError: the client left; QueueClosedError: shutdown."""
        ticket = TICKET.get() or Ticket()
        ticket.submitted_prompts += len(prompts)
        submission = Submission(backbone, method, settings, prompts, ticket.submitted_prompts)
        ticket.future = submission.future
        ticket.check()
        with self._changed:
            if self._closed:
                raise QueueClosedError
            if self._thread is None:
                self._thread = threading.Thread(target=self._run_passes, name="model", daemon=True)
                self._thread.start()
            self._waiting.append(submission)
            self._changed.notify()
        ticket.slots.release()
        try:
            return submission.future.result()
        finally:
            ticket.slots.acquire()

    def close(self, timeout: float = 5.0) -> None:
        """Fail waiting submissions, and end the thread after its current pass.

        Args:
            timeout: Maximum seconds to wait for the thread.
        """
        with self._changed:
            self._closed = True
            waiting, self._waiting = self._waiting, []
            self._changed.notify()
        for submission in waiting:
            if submission.future.set_running_or_notify_cancel():
                submission.future.set_exception(QueueClosedError())
        if self._thread is not None:
            self._thread.join(timeout)

    def _run_passes(self) -> None:
        while True:
            with self._changed:
                while not self._waiting and not self._closed:
                    self._changed.wait()
                if self._closed:
                    return
                batch = self._take_batch()
            batch = [submission for submission in batch if submission.future.set_running_or_notify_cancel()]
            if batch:
                self._run_batch(batch)

    def _take_batch(self) -> list[Submission]:
        """Take the next batch: the oldest submission or that of the smallest request, by turns, and others of similar length."""
        self._waiting = [submission for submission in self._waiting if not submission.future.cancelled()]
        if not self._waiting:
            return []
        self._is_oldest_first = not self._is_oldest_first
        oldest, smallest = self._waiting[0], min(self._waiting, key=lambda submission: submission.request_size)
        first = oldest if self._is_oldest_first else smallest
        batch, rows, longest = [first], len(first.prompts), first.longest
        candidates = [submission for submission in self._waiting if submission is not first and submission.can_share_pass(first)]
        for candidate in sorted(candidates, key=lambda submission: abs(submission.longest - first.longest)):
            total_rows, width = rows + len(candidate.prompts), max(longest, candidate.longest)
            if total_rows <= self.batch_size and total_rows * width <= self.max_tokens:
                batch, rows, longest = [*batch, candidate], total_rows, width
        batch_ids = set(map(id, batch))
        self._waiting = [submission for submission in self._waiting if id(submission) not in batch_ids]
        return batch

    def _count_parameters(self, backbone: Backbone) -> int:
        """Count a model's parameters without its embeddings, once; those of an engine are not known here."""
        if backbone not in self._parameters:
            count = getattr(backbone.model, "num_parameters", None)
            self._parameters[backbone] = 0 if count is None else count(exclude_embeddings=True)
        return self._parameters[backbone]

    def _run_batch(self, batch: list[Submission]) -> None:
        """Run one pass and hand out its results; when it fails, run its submissions one by one."""
        pass_start = time.time_ns()
        try:
            prompts = [prompt for submission in batch for prompt in submission.prompts]
            self._on_pass(len(prompts))
            tokens = sum(len(prompt.ids) for prompt in prompts)
            with limit_threads_of_pass(tokens * self._count_parameters(batch[0].backbone)):
                results = getattr(batch[0].backbone, batch[0].method)(prompts, *batch[0].settings)
            results = results.cpu() if isinstance(results, Tensor) else results
        except Exception as error:
            if len(batch) == 1:
                batch[0].future.set_exception(error)
                return
            for submission in batch:
                self._run_batch([submission])
            return
        record_pass(batch, pass_start)
        start = 0
        for submission in batch:
            end = start + len(submission.prompts)
            submission.future.set_result(results[start:end])
            start = end


class QueuedBackbone:
    """A backbone whose passes go through a queue; everything else is delegated to the model's backbone."""

    runs_side_by_side = False

    def __init__(self, backbone: Backbone, queue: BatchQueue) -> None:
        """Wrap a backbone."""
        self._backbone, self._queue = backbone, queue

    def __getattr__(self, name: str) -> Any:
        """Delegate everything but passes."""
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._backbone, name)

    def embed(
        self, prompts: Sequence[PromptTokens], pooling: str, layer: int, sampling: Sampling, filter_ids: Sequence[int] = ()
    ) -> Tensor:
        """Embed prompts in a pass that other requests may share."""
        pooled: Tensor = self._queue.submit(self._backbone, "embed", (pooling, layer, sampling, tuple(filter_ids)), prompts)
        return pooled

    def answer(self, prompts: Sequence[PromptTokens], sampling: Sampling) -> list[list[ScoredAnswer]]:
        """Answer prompts in a pass that other requests may share."""
        answers: list[list[ScoredAnswer]] = self._queue.submit(self._backbone, "answer", (sampling,), prompts)
        return answers

    def embed_and_answer(
        self, prompts: Sequence[PromptTokens], reading: JointReading, **_cached_texts: Any
    ) -> list[AnsweredVector]:
        """Embed and answer prompts in a pass that other requests may share."""
        results: list[AnsweredVector] = self._queue.submit(self._backbone, "embed_and_answer", (reading,), prompts)
        return results
