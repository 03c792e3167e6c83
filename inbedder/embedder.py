"""``InBedder``: the vector of a text under an instruction is the hidden state of the answer a language model would give.

A text's way through ``encode``: its prompt (``prompting``, ``tokenization``), the backbone's pooled states, in batches and
through the cache (``encoding.runner``), what is subtracted, added and appended (``encoding.combiner``), length 1 where asked.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
import torch

from inbedder.arguments import check_vectors
from inbedder.backbones.protocol import check_answers
from inbedder.backbones.revision import get_weights_revision
from inbedder.backbones.transformer import select_distinct_words
from inbedder.encoding.dataset_map import VectorMap
from inbedder.encoding.guided import GuidedVectors, encode_guided
from inbedder.encoding.parts import Parts
from inbedder.encoding.prompt_runner import RunOptions
from inbedder.encoding.reencode import ReencodedVectors, check_encoder, reencode
from inbedder.encoding.sentence_transformers_kwargs import encode_with_kwargs, has_prompt
from inbedder.errors import InputError
from inbedder.options import Options, Reencoding, Sampling, list_options
from inbedder.prompting.templates import PromptTemplate, check_strings, check_texts, resolve_instruction
from inbedder.vector_spec import VectorSpec
from inbedder.vectors import Vectors, concatenate_vectors, normalize_vectors, similarity

Instruction = str | Sequence[str] | None


class InBedder:
    """Embeds texts under an instruction, by answering it (InBedder paper, section 4).

    Example:
        >>> from inbedder import InBedder
        >>> model = InBedder()
        >>> model.encode(["I love cats", "I love dogs"], "What animals do they love?").shape
        (2, 384)
    """

    similarity = staticmethod(similarity)

    def __init__(self, model: str | os.PathLike[str] = "mini", **options: Any) -> None:
        """Load a model.

        Args:
            model: ``mini`` (bundled, CPU, no network), a hub id or a folder; the folder or id of a peft adapter loads its base.
            **options: Fields of ``ModelOptions`` (what is loaded: backbone, device, dtype, revision, trust_remote_code,
                quantization, cache, cache_size, text_memory) and of ``EncodingOptions`` (how a text becomes a vector: pooling,
                layer, template, max_length, ...); ``docs/options.md`` has them all, and ``help(InBedder)`` their defaults.

        Raises:
            ModelError: When the model cannot be loaded or has no such layer or pooling.
            InputError: When there is no such option, one has no meaning for the model, or the cache's folder cannot be used.
        """
        self._hold(Parts.load(Options.parse(model=model, **options), type(self)))

    def _hold(self, parts: Parts) -> None:
        """Take parts; those that others read have a name of their own here."""
        self.parts = parts
        self.options, self.backbone, self.tokenizer, self.store = parts.options, parts.backbone, parts.tokenizer, parts.store
        self.second_model, self.defaults = parts.second_model, parts.defaults
        self.runner, self.combiner = parts.runner, parts.combiner

    def with_parts(self, parts: Parts) -> InBedder:
        """Return a variant of the model.

        Args:
            parts: Its parts, such as ``model.parts.wrap(...)`` gives.

        Returns:
            Another InBedder.
        """
        other = object.__new__(type(self))
        other._hold(parts)
        return other

    def replace(self, **options: Any) -> InBedder:
        """Return another reader of the same weights.

        Args:
            **options: Fields of ``EncodingOptions``, and cache, cache_size and text_memory.

        Returns:
            Another InBedder, which shares this one's weights.

        Raises:
            InputError: When there is no such option, or it is one of what is loaded.
            ModelError: When the model has no such layer or pooling.

        Example:
            >>> from inbedder import InBedder
            >>> InBedder().replace(pooling="avg-all", max_length=64).pooling
            'avg-all'
        """
        return self.with_parts(self.parts.replace(type(self), **options))

    def with_pooling(
        self,
        pooling: str | None = None,
        layer: int = -1,
        *,
        reencoding: Reencoding | None = None,
        temperature: float = 0.0,
        top_p: float = 1.0,
        seed: int = 0,
    ) -> InBedder:
        """Return the same model, its weights shared, read by another pooling: ``replace`` with these options.

        Args:
            pooling: As ``InBedder`` takes it.
            layer: As ``InBedder`` takes it.
            reencoding: How "re-enc" samples and embeds answers; None leaves it as it is.
            temperature: Of the answer whose states avg-gen, last-gen and avg-all read; 0 is greedy, the authors' Llama runs take
                0.6 with top_p=0.9.
            top_p: Nucleus of that answer.
            seed: Seed of that answer.

        Returns:
            Another InBedder.
        """
        reencoding = reencoding or self.parts.requested.encoding.reencoding
        return self.replace(pooling=pooling, layer=layer, reencoding=reencoding, temperature=temperature, top_p=top_p, seed=seed)

    @property
    def name(self) -> str:
        """The model's name, as the user gave it."""
        return self.options.model.model

    @property
    def pooling(self) -> str:
        """How its states become a vector."""
        return str(self.options.encoding.pooling)

    @property
    def layer(self) -> int:
        """The layer that is read."""
        return self.options.encoding.layer

    @property
    def template(self) -> PromptTemplate:
        """The pattern of its prompts."""
        return self.parts.template

    @property
    def precision(self) -> str:
        """What it computes in."""
        return self.backbone.precision

    @property
    def device(self) -> torch.device:
        """The model's device."""
        return self.backbone.model.device

    @property
    def base_encoder(self) -> InBedder | None:
        """The model that reads texts without a question, loaded when it is first needed; None where this model does so itself."""
        base = self.parts.base_encoder
        assert base is None or isinstance(base, InBedder)
        return base

    @cached_property
    def dimension(self) -> int:
        """Length of a vector under a question."""
        return len(self.encode("", self.defaults.any))

    @property
    def spec(self) -> VectorSpec:
        """Everything that decides a vector."""
        return self.parts.spec

    @property
    def revision(self) -> str:
        """What identifies the weights: the hub's commit, or a hash of the files; ``spec`` says all that decides a vector."""
        return get_weights_revision(self.backbone)

    def prompt(self, text: str, instruction: str | None = None) -> str:
        """Return what the model reads of a text (before any cut) and an instruction.

        Args:
            text: The text.
            instruction: A question, ``@name``, or None as for ``encode``.

        Returns:
            The rendered template; without a question, where a base encoder reads it, the text.
        """
        if instruction is None and self.parts.base is not None:
            return text
        return self.template.render(text, resolve_instruction(self.defaults.any if instruction is None else instruction)).string

    def encode(
        self,
        texts: str | Sequence[str] | None = None,
        instruction: Instruction = None,
        *,
        batch_size: int = 32,
        normalize_embeddings: bool = False,
        show_progress_bar: bool | None = None,
        filter_words: Sequence[str] = (),
        **kwargs: Any,
    ) -> Vectors:
        """Embed texts under an instruction.

        Args:
            texts: One text or n texts; an empty text is embedded as such.
            instruction: One for all texts, or one per text. ``@name`` is a named instruction. None is no question: the
                general-purpose vector, of the model's base encoder where it has one (``mini``, ``small``), under the
                checkpoint's default prompt for embedding models, else under ``@generic``.
            batch_size: Maximum number of texts in one pass.
            normalize_embeddings: Scale vectors to length 1, which bundled models do in any case.
            show_progress_bar: None shows one for long work in a terminal.
            filter_words: Words whose answer states are left out (paper, section 4.3).
            **kwargs: sentence-transformers' own: ``sentences``, ``prompt`` and ``prompt_name`` (instructions),
                ``convert_to_tensor``, ``convert_to_numpy``, ``device``. Others are refused.

        Returns:
            float32, shape (n, d), or (d,) for one string. Row i belongs to text i. With "re-enc", ``ReencodedVectors``.

        Raises:
            InputError: When a text is not a string, instructions and texts do not match in number, or a keyword is not known.
            ModelError: When the model gives NaN or infinite values.

        Example:
            >>> from inbedder import InBedder
            >>> InBedder().encode("The soup was cold.", "What is the complaint about?").shape
            (384,)
        """
        options: dict[str, Any] = {"batch_size": batch_size, "show_progress_bar": show_progress_bar}
        options["normalize_embeddings"] = normalize_embeddings or bool(self.options.encoding.normalize)
        if kwargs:
            with_kwargs: Vectors = encode_with_kwargs(self, texts, instruction, kwargs, {**options, "filter_words": filter_words})
            return with_kwargs
        words = check_strings("filter_words", filter_words) or list(self.options.encoding.filter_words)
        if instruction is None and self.base_encoder is not None:
            if words:
                raise InputError(
                    "filter_words leaves words out of an answer, and without a question there is no answer. Ask one."
                )
            return self.base_encoder.encode(texts, **options)
        rows, instructions = check_texts(texts, self.defaults.any if instruction is None else instruction)
        pace = RunOptions(batch_size, show_progress_bar)
        normalize = bool(options["normalize_embeddings"])
        if self.pooling == "re-enc":
            reencoded = self._reencode(rows, instructions, words, pace, normalize)
            return reencoded.select_first() if isinstance(texts, str) else reencoded
        vectors = self._read(rows, [(question,) for question in instructions], words, pace, normalize)[0]
        first: Vectors = vectors[0] if isinstance(texts, str) else vectors
        return first

    def encode_many(
        self,
        texts: str | Sequence[str],
        instructions: Sequence[str],
        *,
        batch_size: int = 32,
        normalize_embeddings: bool = False,
        show_progress_bar: bool | None = None,
    ) -> Vectors:
        """Embed the same texts under several instructions; models that can read each text once (``backbones/shared_prefix.py``).

        Args:
            texts: One text or n texts.
            instructions: m instructions.
            batch_size: Maximum number of texts in one pass.
            normalize_embeddings: Scale vectors to length 1, which bundled models do in any case.
            show_progress_bar: None shows one for long work in a terminal.

        Returns:
            float32, shape (m, n, d), or (m, d) for one string.

        Raises:
            InputError: As ``encode`` does, and when no list of instructions is given.
        """
        rows, _ = check_texts(texts, None)
        questions = tuple(resolve_instruction(instruction) for instruction in check_strings("instructions", instructions))
        if not questions:
            raise InputError("encode_many takes a list of instructions, and this one is empty.")
        if not rows:
            return np.empty((len(questions), 0, self.dimension), dtype=np.float32)
        pace, words = RunOptions(batch_size, show_progress_bar), self.options.encoding.filter_words
        normalize = normalize_embeddings or bool(self.options.encoding.normalize)
        if self.pooling == "re-enc":
            each = (self._reencode(rows, [question] * len(rows), words, pace, normalize) for question in questions)
            vectors: Vectors = np.stack([np.asarray(reencoded) for reencoded in each])
        else:
            vectors = self._read(rows, [questions] * len(rows), words, pace, normalize)
        return vectors[:, 0] if isinstance(texts, str) else vectors

    def _read(
        self, rows: list[str], questions: Sequence[tuple[str, ...]], words: Sequence[str], pace: RunOptions, normalize: bool
    ) -> Vectors:
        """Vectors of n texts under m questions each, shape (m, n, d)."""
        if not rows:
            return np.empty((1, 0, self.dimension), dtype=np.float32)
        pooled = self.runner.pool(rows, questions, words, pace)
        vectors = self.combiner.combine(pooled, rows, questions, words, pace)
        return normalize_vectors(vectors) if normalize else vectors

    def _reencode(
        self, rows: list[str], instructions: Sequence[str], words: Sequence[str], pace: RunOptions, normalize: bool
    ) -> ReencodedVectors:
        """Mean vectors of sampled answers, shape (n, d)."""
        encoding, device = self.options.encoding, str(self.device)
        assert encoding.reencoding is not None
        sampling = encoding.reencoding.make_sampling(encoding.sampling.max_new_tokens, words)
        check_encoder(encoding.reencoding.encoder, store=self.store, device=device)
        check_answers(self.backbone, self.name)
        answers = self.runner.answer(rows, instructions, sampling, pace)
        vectors = reencode(answers, encoding.reencoding.encoder, store=self.store, device=device)
        if normalize:
            vectors[...] = normalize_vectors(vectors)
        return vectors

    def encode_query(self, texts: str | Sequence[str] | None = None, instruction: Instruction = None, **options: Any) -> Vectors:
        """Embed what is searched for.

        Args:
            texts: One text or n texts.
            instruction: As for ``encode``. None is the checkpoint's own prompt of a query; for INSTRUCTOR models without one
                "Represent the question for retrieving supporting documents:"; for models that answer no question.
            **options: Keyword arguments of ``encode``.

        Returns:
            float32, shape (n, d), or (d,) for one string.
        """
        question = self.defaults.query if instruction is None and not has_prompt(options) else instruction
        return self.encode(texts, question, **options)

    def encode_document(
        self, texts: str | Sequence[str] | None = None, instruction: Instruction = None, **options: Any
    ) -> Vectors:
        """Embed what is searched through.

        Args:
            texts: One text or n texts.
            instruction: As for ``encode``. None is the checkpoint's own prompt of a document; for INSTRUCTOR models without one
                "Represent the document for retrieval:"; none at all for E5-instruct and Qwen3-Embedding; for models that answer
                no question, so that documents are read once, whatever is asked later.
            **options: Keyword arguments of ``encode``.

        Returns:
            float32, shape (n, d), or (d,) for one string.
        """
        question = self.defaults.document if instruction is None and not has_prompt(options) else instruction
        return self.encode(texts, question, **options)

    def encode_guided(
        self,
        texts: Sequence[str],
        instruction: str | None,
        *,
        sample: int = 1000,
        generic: Vectors | None = None,
        seed: int = 0,
        batch_size: int = 32,
        show_progress_bar: bool | None = None,
    ) -> GuidedVectors:
        """Embed texts under a new instruction without reading them all again: a map from generic vectors, fitted on a sample.

        Args:
            texts: n texts.
            instruction: The new instruction.
            sample: How many texts are read under it.
            generic: Vectors of the texts, shape (n, k), of any model; None is ``encode(texts)``, which a cache makes free.
            seed: Seed of the sample.
            batch_size: Maximum number of texts in one pass.
            show_progress_bar: None shows one for long work in a terminal.

        Returns:
            float32, shape (n, d), with the map's held-out ``cosine`` and the rows of the ``sample``; where the cosine is too
            low every text is read, and a log message says so.

        Raises:
            InputError: When the sample is below 50, or generic vectors and texts differ in number.
        """
        rows, _ = check_texts(texts, None)
        if isinstance(texts, str):
            raise InputError("encode_guided takes a list of texts.")
        options: dict[str, Any] = {"batch_size": batch_size, "show_progress_bar": show_progress_bar}
        known = self.encode(rows, **options) if generic is None else check_vectors("generic", generic, len(rows))
        vectors = encode_guided(
            lambda indices: self.encode([rows[i] for i in indices], instruction, **options), known, sample=sample, seed=seed
        )
        if self.options.encoding.normalize:
            vectors[...] = normalize_vectors(vectors)
        return vectors

    def answer(
        self,
        texts: str | Sequence[str],
        instruction: Instruction = None,
        *,
        n: int = 1,
        temperature: float = 0.0,
        top_p: float = 1.0,
        seed: int = 0,
        batch_size: int = 32,
        show_progress_bar: bool | None = None,
    ) -> list[str] | list[list[str]]:
        """Answer the instruction for each text, in the few words that the vectors stand for.

        Args:
            texts: One text or several.
            instruction: One for all texts, or one per text. ``@name`` is a named instruction, such as ``@generic``.
            n: Answers per text; more than one differ only where temperature is above 0.
            temperature: 0 is greedy.
            top_p: Nucleus, in (0, 1].
            seed: Seed of sampled answers; they depend on it, the text and the instruction, and not on batch_size.
            batch_size: Maximum number of texts in one pass.
            show_progress_bar: None shows one for long work in a terminal.

        Returns:
            One answer per text, or with n > 1 a list of n answers per text.

        Raises:
            InputError: When there is no instruction, a text is not a string, or an option is out of range.
            ModelError: When the model's language-model head was never trained.

        Example:
            >>> from inbedder import InBedder
            >>> len(InBedder().answer(["The soup was cold."], "What is the complaint about?"))
            1
        """
        if instruction is None:
            raise InputError('There is nothing to answer without an instruction. Ask a question, or "@generic".')
        rows, instructions = check_texts(texts, instruction)
        max_new_tokens = self.options.encoding.sampling.max_new_tokens
        sampling = Sampling(max_new_tokens, n, temperature, top_p, seed if temperature else 0)
        check_answers(self.backbone, self.name)
        answers = self.runner.answer(rows, instructions, sampling, RunOptions(batch_size, show_progress_bar))
        return answers if n > 1 else [answer[0] for answer in answers]

    def nearest_words(self, vectors: Vectors, top: int = 10) -> list[list[str]]:
        """Read vectors of the last layer with the model's answer head, as the authors' second cluster explanation does.

        Args:
            vectors: float32, shape (m, d), such as cluster means minus the corpus mean.
            top: Maximum number of words per vector.

        Returns:
            The likeliest words of each vector; empty lists where the layer or pooling is not one that the head reads.
        """
        last = self.layer in (-1, self.backbone.num_layers)
        if not last or self.pooling in ("avg-ppt", "re-enc") or not self.backbone.answers:
            return [[] for _ in vectors]
        if self.combiner.second_model is not None:  # the head reads this model's own states
            if vectors.shape[1] != self.dimension:  # general-purpose vectors, which no head reads
                return [[] for _ in vectors]
            vectors = np.ascontiguousarray(vectors[:, : -self.combiner.second_model.dimension])
        return [select_distinct_words(word, top) for word in self.backbone.read_vectors(torch.from_numpy(vectors), 5 * top)]

    def cached_vectors(self, keys: Sequence[bytes]) -> dict[bytes, Vectors]:
        """Look vectors up in the cache without their texts.

        Args:
            keys: What ``cache.entry_key`` makes of a text and its instruction, named ones resolved.

        Returns:
            float32, shape (d,), by key, as the backbone gave them, a second model's appended; those that are not cached are left
            out.
        """
        vectors = self.runner.cached_vectors(keys)
        if self.combiner.second_model is None:
            return vectors
        appended = self.combiner.second_model.cached_vectors(list(vectors))
        return {key: concatenate_vectors(vectors[key], second) for key, second in appended.items()}

    def to(self, device: str | torch.device) -> InBedder:
        """Move the model, and all readers that share its weights, to another device.

        Args:
            device: A torch device.

        Returns:
            The model itself.

        Raises:
            ModelError: When it is held by an engine or quantized, or there is no such device.
        """
        if (parts := self.parts.move(device)) is not self.parts:
            self._hold(parts)
        return self

    def get_sentence_embedding_dimension(self) -> int:
        """Return the length of a vector, under sentence-transformers' name."""
        return int(self.dimension)

    def as_map(self, instruction: str | None = None, *, column: str = "text", to: str = "vector", **options: Any) -> VectorMap:
        """Return a function for ``map`` of Hugging Face datasets: ``dataset.map(model.as_map("@topic"), batched=True)``.

        Args:
            instruction: As for ``encode``.
            column: The column of texts.
            to: The new column of vectors.
            **options: Keyword arguments of ``encode``.

        Returns:
            From a batch of rows to their new column. datasets caches what it gives by the model's ``spec``.
        """
        return VectorMap(self, self.spec.key(), instruction, column, to, tuple(sorted(options.items())))

    def save_sentence_transformer(self, folder: str | os.PathLike[str]) -> None:
        """Write a folder that ``SentenceTransformer(folder)`` loads.

        ``inbedder.encoding.sentence_transformers_export`` says which models need inbedder to be installed there.

        Args:
            folder: A new or empty folder.

        Raises:
            InputError: When the folder is not empty.
            ModelError: When the weights cannot be written.
            MissingExtraError: When sentence-transformers is not installed.
        """
        from inbedder.encoding.sentence_transformers_export import export_model

        export_model(self.parts, folder)

    def __copy__(self) -> InBedder:
        return self.replace()

    def __deepcopy__(self, _memo: Any) -> InBedder:
        return self.replace()

    def __reduce__(self) -> tuple[Any, ...]:
        return _load_again, (type(self), self.parts.requested.get_changed_options())

    def __repr__(self) -> str:
        """One line: the model and how it is read."""
        shown = {"backbone": self.backbone.kind, "pooling": self.pooling, "layer": self.layer}
        shown |= {"device": str(self.device), "dtype": self.precision}
        return f"{type(self).__name__}({self.name!r}, {', '.join(f'{name}={value!r}' for name, value in shown.items())})"


def _load_again(kind: type[InBedder], options: dict[str, Any]) -> InBedder:
    """Load a pickled model, which holds no weights, as it was loaded."""
    return kind(**options)


def _signature() -> inspect.Signature:
    """The constructor's keywords, from the options' fields."""
    parameters = [inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)]
    for option in list_options():
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD if option.name == "model" else inspect.Parameter.KEYWORD_ONLY
        parameters.append(inspect.Parameter(option.name, kind, default=option.default, annotation=option.type))
    return inspect.Signature(parameters)


InBedder.__init__.__signature__ = _signature()  # type: ignore[attr-defined]
