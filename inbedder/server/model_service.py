"""A model as requests use it: bounded, counted, through the queue, each request in a thread of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError
from dataclasses import replace
from functools import partial
from typing import Any

import anyio
from anyio.to_thread import run_sync
from starlette.requests import Request

from inbedder.embedder import InBedder
from inbedder.errors import InputError, ModelError, TemplateError
from inbedder.prompting.batching import token_budget
from inbedder.prompting.templates import resolve_instruction
from inbedder.prompting.tokenization import PromptTokenizer, PromptTokens
from inbedder.server.batch_queue import TICKET, BatchQueue, QueueClosedError, QueuedBackbone, Ticket
from inbedder.server.http_errors import RefusalError
from inbedder.server.middleware import GONE
from inbedder.server.prometheus import Metrics
from inbedder.server.settings import Settings
from inbedder.vectors import Vectors, unit

Instruction = str | Sequence[str] | None


class PreparedPrompts:
    """A tokenizer that tokenizes a request once, so that its tokens are counted before the model sees them."""

    def __init__(self, tokenizer: PromptTokenizer) -> None:
        """Nothing is prepared yet."""
        self._tokenizer = tokenizer
        self._known: dict[tuple[str, str], PromptTokens] = {}

    def __getattr__(self, name: str) -> Any:
        """All else is the tokenizer's."""
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._tokenizer, name)

    def __call__(self, texts: Sequence[str], instructions: Sequence[str]) -> list[PromptTokens]:
        """Tokenize prompts, or take those that are prepared."""
        pairs = list(zip(texts, instructions, strict=True))
        new = [pair for pair in dict.fromkeys(pairs) if pair not in self._known]
        prompts = self._tokenizer([text for text, _ in new], [instruction for _, instruction in new])
        self._known.update(zip(new, prompts, strict=True))
        return [self._known[pair] for pair in pairs]


class ServedModel:
    """A loaded model and what waits for it."""

    def __init__(self, name: str, embedder: InBedder, settings: Settings, metrics: Metrics) -> None:
        """Put a queue in front of a model that requests call ``name``."""
        self.name, self.settings, self.metrics = name, settings, metrics
        self.queue = BatchQueue(settings.batch_size, metrics.passes.labels(name).observe, token_budget(embedder.device))
        if embedder.store is not None:
            _ = embedder.spec  # what is found out once is found out before requests come
        self.embedder = embedder.with_parts(embedder.parts.wrap(lambda backbone: QueuedBackbone(backbone, self.queue)))
        self.base = self.embedder.base_encoder
        for reader in (self.embedder, self.base):
            _ = reader and reader.dimension
        self.waiting = 0
        self.closing = False
        self._threads: anyio.CapacityLimiter | None = None

    def close(self) -> None:
        """Take no more requests and end the model's thread."""
        self.closing = True
        self.queue.close()

    async def work(self, request: Request, function: Callable[..., Any], *args: Any) -> Any:
        """Run a function of a request in a thread, as long as its client waits.

        Args:
            request: The request.
            function: Called with this model and ``args``.
            *args: Its other arguments.

        Returns:
            What it returns.

        Raises:
            RefusalError: When too many requests wait, the server ends, or the model cannot do what is asked.
        """
        if self.closing:
            raise RefusalError(503, "The server is ending. Try another one.", retry_after=1)
        if self.waiting >= self.settings.max_waiting:
            raise RefusalError(429, "Too many requests wait for this model. Try again later.", retry_after=1)
        self._threads = self._threads or anyio.CapacityLimiter(self.settings.threads)
        ticket = Ticket()
        TICKET.set(ticket)
        watch = asyncio.create_task(_watch(request, ticket))
        self.waiting += 1
        self.metrics.waiting.labels(self.name).set(self.waiting)
        try:
            call = partial(_careful, function, self, *args)
            return await run_sync(call, limiter=self._threads, abandon_on_cancel=True)
        finally:
            ticket.cancel()
            watch.cancel()
            self.waiting -= 1
            self.metrics.waiting.labels(self.name).set(self.waiting)
            self.metrics.queue.labels(self.name).set(len(self.queue))

    def reader(self, instruction: Instruction) -> InBedder:
        """The model that reads texts under an instruction: where there is none, the base that knows no instructions."""
        return self.base if instruction is None and self.base is not None else self.embedder

    def prepared(self, texts: Sequence[str], instruction: Instruction, truncate: str | None = None) -> tuple[InBedder, int]:
        """Check a request and tokenize it.

        Args:
            texts: n texts.
            instruction: One for all, one per text, or None.
            truncate: "NONE" refuses texts that are too long; they are cut otherwise.

        Returns:
            The model with the prompts at hand, and how many tokens they have.

        Raises:
            RefusalError: When something is too long or too much.
        """
        instructions = self.check(texts, instruction)
        parts = self.reader(instruction).parts
        prepared: Any = PreparedPrompts(parts.tokenizer)
        reader = self.embedder.with_parts(replace(parts, tokenizer=prepared))
        try:
            tokenized = reader.tokenizer(texts, instructions)
        except InputError:
            most = reader.tokenizer.max_length
            raise RefusalError(422, f"The instruction leaves no room for a text in {most} tokens. Shorten it.") from None
        tokens = sum(len(prompt.ids) for prompt in tokenized)
        if tokens > self.settings.max_tokens:
            raise RefusalError(422, f"{tokens:,} tokens, more than {self.settings.max_tokens:,}. Send fewer texts per request.")
        if truncate == "NONE" and (cut := [number for number, prompt in enumerate(tokenized) if prompt.cut]):
            most = reader.tokenizer.max_length
            raise RefusalError(422, f"{len(cut)} texts do not fit into {most} tokens (first: number {cut[0]}). Shorten them.")
        self.metrics.tokens.labels(self.name).inc(tokens)
        return reader, tokens

    def check(self, texts: Sequence[str], instruction: Instruction) -> list[str]:
        """Check the sizes of a request.

        Args:
            texts: n texts.
            instruction: One for all, one per text, or None.

        Returns:
            n instructions, named ones resolved.

        Raises:
            RefusalError: When there is no text, too many, too long ones, or instructions that do not match them.
        """
        settings = self.settings
        if not 1 <= len(texts) <= settings.max_items:
            raise RefusalError(422, f"{len(texts):,} texts. Send from 1 to {settings.max_items:,} per request.")
        if long := [number for number, text in enumerate(texts) if len(text) > settings.max_characters]:
            raise RefusalError(422, f"Text {long[0]} is longer than {settings.max_characters:,} characters. Split it.")
        if instruction is None:
            return [resolve_instruction(self.reader(None).defaults.any)] * len(texts)
        if isinstance(instruction, str):
            return [self._instruction(instruction)] * len(texts)
        if len(instruction) != len(texts):
            raise RefusalError(422, f"{len(texts)} texts but {len(instruction)} instructions. Send one, or one per text.")
        known = {given: self._instruction(given) for given in set(instruction)}
        return [known[given] for given in instruction]

    def _instruction(self, given: str) -> str:
        if len(given) > self.settings.max_instruction_characters:
            raise RefusalError(422, f"An instruction is longer than {self.settings.max_instruction_characters:,} characters.")
        try:
            return resolve_instruction(given)
        except TemplateError:
            raise RefusalError(422, "There is no instruction of that name. Write the question itself.") from None

    def vectors(
        self, texts: Sequence[str], instruction: Instruction, *, truncate: str | None = None, normalized: bool = True
    ) -> tuple[Vectors, int]:
        """Embed the texts of a request.

        Args:
            texts: n texts.
            instruction: One for all, one per text, or None.
            truncate: As for ``prepared``.
            normalized: Scale vectors to length 1.

        Returns:
            float32, shape (n, d), and how many tokens were read.

        Raises:
            RefusalError: When something is too long or too much.
        """
        reader, tokens = self.prepared(texts, instruction, truncate)
        ticket = TICKET.get()
        before = 0 if ticket is None else ticket.computed
        options: dict[str, Any] = {"normalize_embeddings": normalized, "show_progress_bar": False}
        vectors = reader.encode(texts, instruction, batch_size=self.settings.batch_size, **options)
        if ticket is not None and reader.store is not None:
            pairs = len(set(zip(texts, self.check(texts, instruction), strict=True)))
            self.metrics.hits.labels(self.name).inc(max(0, pairs - (ticket.computed - before)))
        return vectors, tokens

    def shortened(self, vectors: Vectors, dimensions: int | None, *, normalized: bool = True) -> Vectors:
        """Vectors of the length that is asked for.

        Args:
            vectors: Shape (n, d).
            dimensions: d, or a length that the model was trained for (``matryoshka_dimensions`` of its config); None for d.
            normalized: Scale shortened vectors to length 1 again.

        Returns:
            Shape (n, dimensions).

        Raises:
            RefusalError: When the model has no vectors of that length.
        """
        full = vectors.shape[1]
        if dimensions in (None, full):
            return vectors
        trained = getattr(self.embedder.backbone.model.config, "matryoshka_dimensions", None) or []
        if dimensions not in trained:
            offered = ", ".join(str(length) for length in sorted({*trained, full}))
            raise RefusalError(400, f"This model has no vectors of that length. Choose one of: {offered}.", field="dimensions")
        short: Vectors = vectors[:, :dimensions]
        return unit(short) if normalized else short


def _careful(function: Callable[..., Any], *args: Any) -> Any:
    """Call a function; its errors leave without their messages, which could hold a text or a path."""
    ticket = TICKET.get()
    try:
        if ticket is not None:
            ticket.check()
        return function(*args)
    except CancelledError:
        raise RefusalError(GONE, "The client has gone.") from None
    except QueueClosedError:
        raise RefusalError(503, "The server is ending. Try another one.", retry_after=1) from None
    except InputError:
        raise RefusalError(422, "The model cannot take these inputs and options.") from None
    except ModelError as error:
        raise RefusalError(500, "The model gave no finite numbers, or cannot do what was asked.") from error


async def _watch(request: Request, ticket: Ticket) -> None:
    """Cancel a request whose client goes."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
    ticket.cancel()
