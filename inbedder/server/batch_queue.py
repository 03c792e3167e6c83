"""Batches across requests: one thread runs a model, and each of its passes takes from all requests that wait.

A request works in a thread of its own with an ``InBedder`` whose backbone is a ``QueuedBackbone``: there it tokenizes, looks into
the cache and normalizes; only the passes through the model go to the queue. A pass takes the submission that waits longest and
others of similar length, as many as the batch size and the token budget allow. Where a pass fails, its submissions are tried one
by one, so that a poisoned one fails alone.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, Future
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from inbedder.backbones.protocol import Backbone
from inbedder.options import Sampling
from inbedder.prompting.batching import CPU_TOKEN_BUDGET
from inbedder.prompting.tokenization import PromptTokens


class QueueClosedError(Exception):
    """The server is being shut down."""


class Ticket:
    """One request on its way: whether it is still wanted, and how many prompts it gave to the model."""

    def __init__(self) -> None:
        """A request that just came."""
        self.cancelled = False
        self.computed = 0
        self.waits_for: Future[Any] | None = None

    def cancel(self) -> None:
        """The client has gone: leave the queue."""
        self.cancelled = True
        if self.waits_for is not None:
            self.waits_for.cancel()

    def check(self) -> None:
        """Raise CancelledError where the client has gone."""
        if self.cancelled:
            raise CancelledError


TICKET: ContextVar[Ticket | None] = ContextVar("ticket", default=None)
"""The request that this thread works for."""


@dataclass(eq=False)
class Submission:
    """Prompts of one request that wait for a pass."""

    backbone: Backbone
    """The model."""
    call: str
    """"embed" or "answer"."""
    settings: tuple[Any, ...]
    """The call's other arguments; submissions of equal ones share a pass."""
    prompts: Sequence[PromptTokens]
    """What the model reads."""
    future: Future[Any] = field(default_factory=Future)
    """The result, one row or list per prompt."""

    @property
    def longest(self) -> int:
        """Tokens of the longest prompt."""
        return max(len(prompt.ids) for prompt in self.prompts)

    def shares_a_pass_with(self, other: Submission) -> bool:
        """Whether both ask the same of the same model."""
        return self.backbone is other.backbone and (self.call, self.settings) == (other.call, other.settings)


class BatchQueue:
    """The only thread that runs a model and its base, and what waits for it."""

    def __init__(
        self, batch_size: int = 32, seen: Callable[[int], None] = lambda rows: None, max_tokens: int = CPU_TOKEN_BUDGET
    ) -> None:
        """Start the thread.

        Args:
            batch_size: Maximum number of prompts in a pass.
            seen: Called with the number of prompts of each pass.
            max_tokens: Maximum number of padded tokens in a pass.
        """
        self.batch_size, self.max_tokens, self._seen = batch_size, max_tokens, seen
        self._waiting: list[Submission] = []
        self._changed = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._work, name="model", daemon=True)
        self._thread.start()

    def __len__(self) -> int:
        """Prompts that wait."""
        with self._changed:
            return sum(len(submission.prompts) for submission in self._waiting)

    def submit(self, backbone: Backbone, call: str, settings: tuple[Any, ...], prompts: Sequence[PromptTokens]) -> Any:
        """Wait for a pass over some prompts.

        Args:
            backbone: The model.
            call: "embed" or "answer".
            settings: The call's other arguments.
            prompts: Of one request.

        Returns:
            What the backbone gives for them.

        Raises:
            CancelledError: When the request was given up meanwhile.
            QueueClosedError: When the queue is closed.
        """
        ticket = TICKET.get()
        submission = Submission(backbone, call, settings, prompts)
        if ticket is not None:
            ticket.computed += len(prompts)
            ticket.waits_for = submission.future
            ticket.check()
        with self._changed:
            if self._closed:
                raise QueueClosedError
            self._waiting.append(submission)
            self._changed.notify()
        return submission.future.result()

    def close(self, timeout: float = 5.0) -> None:
        """Fail what waits and end the thread after its pass.

        Args:
            timeout: Most seconds to wait for it.
        """
        with self._changed:
            self._closed = True
            left, self._waiting = self._waiting, []
            self._changed.notify()
        for submission in left:
            if submission.future.set_running_or_notify_cancel():
                submission.future.set_exception(QueueClosedError())
        self._thread.join(timeout)

    def _work(self) -> None:
        while True:
            with self._changed:
                while not self._waiting and not self._closed:
                    self._changed.wait()
                if self._closed:
                    return
                chosen = self._take()
            chosen = [submission for submission in chosen if submission.future.set_running_or_notify_cancel()]
            if chosen:
                self._run(chosen)

    def _take(self) -> list[Submission]:
        """The next pass: what waits longest, and others of similar length."""
        self._waiting = [submission for submission in self._waiting if not submission.future.cancelled()]
        if not self._waiting:
            return []
        oldest = self._waiting[0]
        chosen, rows, longest, budget = [oldest], len(oldest.prompts), oldest.longest, self.max_tokens
        alike = [other for other in self._waiting[1:] if other.shares_a_pass_with(oldest)]
        for other in sorted(alike, key=lambda submission: abs(submission.longest - oldest.longest)):
            together, width = rows + len(other.prompts), max(longest, other.longest)
            if together <= self.batch_size and together * width <= budget:
                chosen, rows, longest = [*chosen, other], together, width
        taken = set(map(id, chosen))
        self._waiting = [submission for submission in self._waiting if id(submission) not in taken]
        return chosen

    def _run(self, chosen: list[Submission]) -> None:
        try:
            prompts = [prompt for submission in chosen for prompt in submission.prompts]
            self._seen(len(prompts))
            results = getattr(chosen[0].backbone, chosen[0].call)(prompts, *chosen[0].settings)
            results = results.cpu() if isinstance(results, Tensor) else results
        except Exception as error:
            if len(chosen) == 1:
                chosen[0].future.set_exception(error)
                return
            for submission in chosen:
                self._run([submission])
            return
        start = 0
        for submission in chosen:
            end = start + len(submission.prompts)
            submission.future.set_result(results[start:end])
            start = end


class QueuedBackbone:
    """A backbone whose passes go through a queue; all else is the model's own."""

    def __init__(self, backbone: Backbone, queue: BatchQueue) -> None:
        """Put a queue in front of a model."""
        self._backbone, self._queue = backbone, queue

    def __getattr__(self, name: str) -> Any:
        """What is not a pass."""
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._backbone, name)

    def embed(
        self, prompts: Sequence[PromptTokens], pooling: str, layer: int, sampling: Sampling, filter_ids: Sequence[int] = ()
    ) -> Tensor:
        """As the backbone's, in a pass with other requests."""
        pooled: Tensor = self._queue.submit(self._backbone, "embed", (pooling, layer, sampling, tuple(filter_ids)), prompts)
        return pooled

    def answer(self, prompts: Sequence[PromptTokens], sampling: Sampling) -> list[list[str]]:
        """As the backbone's, in a pass with other requests."""
        answers: list[list[str]] = self._queue.submit(self._backbone, "answer", (sampling,), prompts)
        return answers
