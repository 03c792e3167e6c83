"""A served model: each request runs in a thread of its own, within limits, and shares the model's queue."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError
from dataclasses import replace
from functools import partial
from typing import Any

import anyio
from anyio.to_thread import run_sync
from starlette.requests import Request

from inbedder.embedder import InBedder
from inbedder.encoding.language_scope import check_language_once
from inbedder.errors import InputError, ModelError, TemplateError
from inbedder.option_types import FormatKwargs, PrecisionName
from inbedder.prompting.batching import get_token_budget
from inbedder.prompting.templates import resolve_instruction, skip_blank
from inbedder.prompting.tokenization import PromptTokenizer, PromptTokens
from inbedder.runtime.cancellation import CANCELLATION_CHECK, check_cancelled
from inbedder.server.batch_queue import TICKET, BatchQueue, QueueClosedError, QueuedBackbone, Ticket
from inbedder.server.http_errors import CLIENT_CLOSED_REQUEST, RefusalError
from inbedder.server.prometheus import Metrics
from inbedder.server.settings import Settings
from inbedder.server.tracing import describe_request
from inbedder.vectors.vectors import Vectors

Instruction = str | Sequence[str] | None
TEXTS_PER_CHECK = 128
"""Number of texts that are tokenized before their tokens are counted."""


class PreparedPrompts:
    """A tokenizer that tokenizes each prompt of a request once, so that tokens are counted before the model runs."""

    def __init__(self, tokenizer: PromptTokenizer) -> None:
        """Start without prompts."""
        self._tokenizer = tokenizer
        self._prompts: dict[tuple[str, str], PromptTokens] = {}

    def __getattr__(self, name: str) -> Any:
        """Delegate everything else to the tokenizer."""
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._tokenizer, name)

    def __call__(self, texts: Sequence[str], instructions: Sequence[str]) -> list[PromptTokens]:
        """Tokenize prompts that are not tokenized yet, and return all."""
        pairs = list(zip(texts, instructions, strict=True))
        new = [pair for pair in dict.fromkeys(pairs) if pair not in self._prompts]
        prompts = self._tokenizer([text for text, _ in new], [instruction for _, instruction in new])
        self._prompts.update(zip(new, prompts, strict=True))
        return [self._prompts[pair] for pair in pairs]


class ServedModel:
    """A loaded model and its queue of requests."""

    def __init__(self, name: str, embedder: InBedder, settings: Settings, metrics: Metrics) -> None:
        """Wrap a model that requests call ``name``."""
        self.name, self.settings, self.metrics = name, settings, metrics
        self.queue = BatchQueue(settings.batch_size, metrics.passes.labels(name).observe, get_token_budget(embedder.device))
        if embedder.pipeline.store is not None:
            _ = embedder.spec  # computed once, before the first request
        self.embedder = embedder.from_pipeline(embedder.pipeline.wrap(lambda backbone: QueuedBackbone(backbone, self.queue)))
        self.base_encoder = self.embedder.base_encoder
        for encoder in (self.embedder, self.base_encoder):
            _ = encoder and encoder.dimension
        self.waiting = 0
        self.closing = False
        self._threads: anyio.CapacityLimiter | None = None
        self._slots = threading.Semaphore(settings.threads)

    def close(self) -> None:
        """Reject further requests and end the model's thread."""
        self.closing = True
        self.queue.close()

    async def run(self, request: Request, function: Callable[..., Any], *args: Any) -> Any:
        """Call a function with this model and ``args`` in a thread; reject too many requests, and all at shutdown."""
        if self.closing:
            raise RefusalError(503, "The server is shutting down. Try another server.", retry_after=1)
        if self.waiting >= self.settings.max_waiting:
            raise RefusalError(429, "Too many requests wait for this model. Try again later.", retry_after=1)
        self._threads = self._threads or anyio.CapacityLimiter(self.settings.max_waiting)
        ticket = Ticket(self._slots)
        TICKET.set(ticket)
        CANCELLATION_CHECK.set(ticket.check)
        watcher = asyncio.create_task(_watch_client(request, ticket))
        self.waiting += 1
        self.metrics.waiting.labels(self.name).set(self.waiting)
        try:
            call = partial(_call_safely, ticket, function, self, *args)
            return await run_sync(call, limiter=self._threads, abandon_on_cancel=True)
        finally:
            ticket.cancel()
            watcher.cancel()
            describe_request(self.name, ticket)
            self.waiting -= 1
            self.metrics.waiting.labels(self.name).set(self.waiting)
            self.metrics.queue.labels(self.name).set(len(self.queue))

    def select_encoder(self, instruction: Instruction) -> InBedder:
        """Select the base encoder for texts without an instruction, if there is one, else the model."""
        return self.base_encoder if instruction is None and self.base_encoder is not None else self.embedder

    def skip_blank(self, instruction: Instruction) -> Instruction:
        """Return None for a blank instruction of a model that answers; for an embedding model it is an empty prompt."""
        return skip_blank(instruction) if self.embedder.pipeline.defaults.asks else instruction

    def prepare_prompts(
        self, texts: Sequence[str], instruction: Instruction, truncate: str | None = None
    ) -> tuple[InBedder, int]:
        """Tokenize a request; return the model with the prompts, and their number of tokens. "NONE" rejects long texts."""
        instructions = self.check(texts, instruction)
        pipeline = self.select_encoder(instruction).pipeline
        tokenizer: Any = PreparedPrompts(pipeline.tokenizer)
        encoder = self.embedder.from_pipeline(replace(pipeline, tokenizer=tokenizer))
        prompts = self._tokenize(tokenizer, texts, instructions)
        tokens = sum(len(prompt.ids) for prompt in prompts)
        if truncate == "NONE" and (cut_indices := [index for index, prompt in enumerate(prompts) if prompt.is_cut]):
            limit, first = encoder.tokenizer.max_length, cut_indices[0]
            message = f"{len(cut_indices)} texts do not fit into {limit} tokens (first: number {first}). Shorten them."
            raise RefusalError(422, message)
        self.metrics.tokens.labels(self.name).inc(tokens)
        if (ticket := TICKET.get()) is not None:
            ticket.texts += len(texts)
            ticket.tokens += tokens
        return encoder, tokens

    def _tokenize(self, tokenizer: PromptTokenizer, texts: Sequence[str], instructions: Sequence[str]) -> list[PromptTokens]:
        """Tokenize prompts until they exceed the limit of tokens."""
        prompts: list[PromptTokens] = []
        tokens, limit = 0, self.settings.max_tokens
        for start in range(0, len(texts), TEXTS_PER_CHECK):
            check_cancelled()
            rows = slice(start, start + TEXTS_PER_CHECK)
            try:
                new_prompts = tokenizer(texts[rows], instructions[rows])
            except InputError:
                message = f"The instruction leaves no room for a text in {tokenizer.max_length} tokens. Shorten it."
                raise RefusalError(422, message) from None
            prompts += new_prompts
            tokens += sum(len(prompt.ids) for prompt in new_prompts)
            if tokens > limit:
                message = f"More than {limit:,} tokens in the first {len(prompts):,} texts. Send fewer texts per request."
                raise RefusalError(422, message)
        return prompts

    def check(self, texts: Sequence[str], instruction: Instruction) -> list[str]:
        """Check the sizes of a request of n texts, and return n instructions, named ones resolved."""
        settings = self.settings
        if not 1 <= len(texts) <= settings.max_items:
            raise RefusalError(422, f"{len(texts):,} texts. Send from 1 to {settings.max_items:,} per request.")
        if long_texts := [number for number, text in enumerate(texts) if len(text) > settings.max_characters]:
            raise RefusalError(422, f"Text {long_texts[0]} is longer than {settings.max_characters:,} characters. Split it.")
        if instruction is None:
            return [resolve_instruction(self.select_encoder(None).pipeline.defaults.any)] * len(texts)
        if isinstance(instruction, str):
            return [self._resolve_instruction(instruction)] * len(texts)
        if len(instruction) != len(texts):
            raise RefusalError(422, f"{len(texts)} texts but {len(instruction)} instructions. Send one, or one per text.")
        resolved = {name: self._resolve_instruction(name) for name in set(instruction)}
        return [resolved[name] for name in instruction]

    def _resolve_instruction(self, instruction: str) -> str:
        if len(instruction) > self.settings.max_instruction_characters:
            raise RefusalError(422, f"An instruction is longer than {self.settings.max_instruction_characters:,} characters.")
        try:
            return resolve_instruction(instruction)
        except TemplateError:
            raise RefusalError(422, "There is no instruction of that name. Write the question itself.") from None

    def read_texts(
        self,
        texts: Sequence[str],
        instruction: Instruction,
        *,
        truncate: str | None = None,
        normalized: bool = True,
        dimensions: int | None = None,
        precision: PrecisionName | None = None,
        return_answers: bool = False,
    ) -> tuple[Vectors, list[str] | None, int]:
        """Embed the texts of a request, and perhaps answer their instructions.

        Args:
            texts: n texts.
            instruction: One instruction for all texts, one per text, or None.
            truncate: "NONE" rejects texts that are too long; otherwise they are cut.
            normalized: Scale vectors to length 1.
            dimensions: Length of the vectors; None for the model's.
            precision: Precision of the vectors; None for the model's.
            return_answers: Whether to answer the instructions, too.

        Returns:
            Vectors, shape (n, d); n answers, or None without ``return_answers``; and the number of tokens.

        Raises:
            RefusalError: If the request exceeds a limit, or the vectors cannot have that length.
        """
        truncate_dim = self._check_dimensions(dimensions, instruction)
        encoder, tokens = self.prepare_prompts(texts, instruction, truncate)
        ticket = TICKET.get()
        before = 0 if ticket is None else ticket.submitted_prompts
        options: FormatKwargs = {"normalize_embeddings": normalized, "truncate_dim": truncate_dim, "precision": precision}
        options |= {"batch_size": self.settings.batch_size, "show_progress_bar": False}
        if return_answers:
            vectors, answers = encoder.encode(texts, instruction, return_answers=True, **options)
        else:
            vectors, answers = encoder.encode(texts, instruction, **options), None
        if ticket is not None and encoder.pipeline.store is not None:
            distinct_prompts = len(set(zip(texts, self.check(texts, instruction), strict=True)))
            self.metrics.hits.labels(self.name).inc(max(0, distinct_prompts - (ticket.submitted_prompts - before)))
        return vectors, answers, tokens

    def embed_texts(self, texts: Sequence[str], instruction: Instruction, **options: Any) -> tuple[Vectors, int]:
        """Embed the texts of a request: vectors, shape (n, d), and the number of tokens; options are those of ``read_texts``."""
        vectors, _, tokens = self.read_texts(texts, instruction, **options)
        return vectors, tokens

    def _check_dimensions(self, dimensions: int | None, instruction: Instruction) -> int | None:
        """Check a requested length of vectors, and return it for ``encode``: None for whole vectors."""
        encoder = self.select_encoder(instruction)
        if dimensions in (None, encoder.dimension):
            return None
        if dimensions > encoder.dimension:
            message = f"This model's vectors have {encoder.dimension} dimensions. Ask for at most that."
            raise RefusalError(400, message, field="dimensions")
        if encoder.pipeline.second_model is not None:
            message = f"This model's vectors are those of two models and cannot be cut. Ask for {encoder.dimension} dimensions."
            raise RefusalError(400, message, field="dimensions")
        return dimensions


def _call_safely(ticket: Ticket, function: Callable[..., Any], *args: Any) -> Any:
    """Call a function in a slot, and replace messages of its errors, which could contain a text or a path."""
    try:
        with ticket.slots, check_language_once(is_checked=False):
            ticket.check()
            return function(*args)
    except CancelledError:
        raise RefusalError(CLIENT_CLOSED_REQUEST, "The client disconnected.") from None
    except QueueClosedError:
        raise RefusalError(503, "The server is shutting down. Try another server.", retry_after=1) from None
    except InputError:
        raise RefusalError(422, "The model cannot take these inputs and options.") from None
    except ModelError as error:
        raise RefusalError(500, "The model returned values that are not finite, or does not support the request.") from error


async def _watch_client(request: Request, ticket: Ticket) -> None:
    """Cancel a request when its client disconnects."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
    ticket.cancel()
