"""``InBedder``: a text's vector under an instruction is the hidden state of the answer that a language model would give.

``encode`` checks its arguments and passes texts and instructions to ``encoding.pipeline``, which renders and tokenizes prompts,
pools the backbone's states in batches and through the cache, and subtracts, appends, truncates, normalizes and quantizes.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np
import torch

from inbedder.arguments import check_probability, check_vectors
from inbedder.backbones.protocol import Backbone, check_answers
from inbedder.backbones.revision import get_weights_revision
from inbedder.encoding.dataset_map import VectorMap
from inbedder.encoding.guided import GuidedVectors, encode_general, encode_guided
from inbedder.encoding.language_check import warn_of_unreadable
from inbedder.encoding.pipeline import EncodingPipeline
from inbedder.encoding.prompt_runner import RunOptions
from inbedder.encoding.saved_model import push_to_hub, save_pretrained
from inbedder.encoding.sentence_transformers_export import save_sentence_transformer
from inbedder.encoding.sentence_transformers_kwargs import encode_with_kwargs, has_prompt
from inbedder.errors import InputError
from inbedder.options import Options, Sampling, make_signature
from inbedder.prompting.templates import PromptTemplate, check_strings, check_texts, resolve_instruction, skip_blank
from inbedder.prompting.tokenization import PromptTokenizer
from inbedder.vector_spec import VectorSpec
from inbedder.vectors.vectors import Vector, VectorFormat, VectorRows, Vectors, similarity, similarity_pairwise

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from inbedder.option_types import (
        AnswerKwargs,
        ArrayKwargs,
        ChangeableKwargs,
        EncodeKwargs,
        FormatKwargs,
        ModelKwargs,
        PrecisionName,
    )

Texts = str | Sequence[str]
Instruction = str | Sequence[str] | None


class InBedder:
    """A model that embeds texts by answering an instruction about them (InBedder paper, section 4).

    Example:
        >>> from inbedder import InBedder
        >>> model = InBedder()
        >>> model.encode(["I love cats", "I love dogs"], "What animals do they love?").shape
        (2, 384)
    """

    similarity = staticmethod(similarity)
    similarity_pairwise = staticmethod(similarity_pairwise)
    save_pretrained = save_pretrained
    push_to_hub = push_to_hub
    save_sentence_transformer = save_sentence_transformer

    def __init__(self, model: str | os.PathLike[str] = "mini", **options: Unpack[ModelKwargs]) -> None:
        """Load a model.

        Args:
            model: ``mini`` (bundled, CPU, no network), another bundled model, a hub id or a folder; the id or folder of a peft
                adapter loads its base.
            **options: Fields of ``ModelOptions`` (what is loaded: backbone, device, dtype, revision, trust_remote_code,
                quantization, cache, cache_size, text_memory) and of ``EncodingOptions`` (how a text becomes a vector: pooling,
                layer, template, max_length, ...). ``docs/options.md`` lists all of them, ``help(InBedder)`` their defaults.

        Raises:
            ModelError: If the model cannot be loaded or lacks the layer or pooling.
            InputError: If an option is unknown, has a value of the wrong type or out of range, or does not apply to the model, or
                the cache folder cannot be used.
        """
        self.pipeline = EncodingPipeline.load(Options.parse(model=model, **options), type(self))
        if self.options.encoding.truncate_dim is not None:
            _ = self.dimension  # rejects a length above that of the vectors

    @classmethod
    def from_pipeline(cls, pipeline: EncodingPipeline) -> InBedder:
        """Build a model from a pipeline, such as a variant of ``model.pipeline``."""
        model = object.__new__(cls)
        model.pipeline = pipeline
        return model

    def replace(self, **options: Unpack[ChangeableKwargs]) -> InBedder:
        """Return a copy with other options, which shares the weights.

        Args:
            **options: Fields of ``EncodingOptions``, and cache, cache_size and text_memory.

        Returns:
            Another InBedder.

        Raises:
            InputError: If an option is unknown, or cannot change without loading the model again.
            ModelError: If the model lacks the layer or pooling.

        Example:
            >>> InBedder().replace(pooling="avg-all", max_length=64).pooling
            'avg-all'
        """
        return self.from_pipeline(self.pipeline.replace(type(self), **options))

    @property
    def options(self) -> Options:
        """All options, with every default filled in."""
        return self.pipeline.options

    @property
    def backbone(self) -> Backbone:
        """The language model."""
        return self.pipeline.backbone

    @property
    def tokenizer(self) -> PromptTokenizer:
        """The tokenizer of prompts."""
        return self.pipeline.tokenizer

    @property
    def name(self) -> str:
        """The model's name, as passed to ``InBedder``."""
        return self.options.model.model

    @property
    def pooling(self) -> str:
        """The pooling of the hidden states."""
        return str(self.options.encoding.pooling)

    @property
    def layer(self) -> int:
        """The layer of the hidden states."""
        return self.options.encoding.layer

    @property
    def max_seq_length(self) -> int:
        """The maximum length of a prompt in tokens, ``max_length``, under sentence-transformers' name; it can be set."""
        return self.options.encoding.max_length

    @max_seq_length.setter
    def max_seq_length(self, value: int) -> None:
        self.pipeline = self.replace(max_length=value).pipeline

    @property
    def template(self) -> PromptTemplate:
        """The prompt template."""
        return self.pipeline.template

    @property
    def compute_dtype(self) -> str:
        """The compute dtype."""
        return self.backbone.compute_dtype

    @property
    def device(self) -> torch.device:
        """The model's device."""
        return self.backbone.model.device

    @property
    def base_encoder(self) -> InBedder | None:
        """The model that reads texts without an instruction, loaded on first use; None if this model reads them itself."""
        base = self.pipeline.base_encoder
        assert base is None or isinstance(base, InBedder)
        return base

    @cached_property
    def dimension(self) -> int:
        """The number of dimensions of a vector, before any bits are packed."""
        return len(self.encode("", self.pipeline.defaults.any, precision="float32"))

    @property
    def spec(self) -> VectorSpec:
        """Everything that determines a vector: compare two specs to learn whether vectors are comparable."""
        return self.pipeline.spec

    @property
    def revision(self) -> str:
        """The revision of the weights: the hub's commit, or a hash of the files."""
        return get_weights_revision(self.backbone)

    def prompt(self, text: str, instruction: str | None = None) -> str:
        """Render the prompt of a text and an instruction, before any truncation.

        Args:
            text: The text.
            instruction: A question or ``@name``; None embeds the text without one.

        Returns:
            The rendered template. Without an instruction it is the text itself, if the model has a base encoder.

        Example:
            >>> "What is it about?" in InBedder().prompt("The soup was cold.", "What is it about?")
            True
        """
        if instruction is None and self.pipeline.base is not None:
            return text
        default = self.pipeline.defaults.any
        return self.template.render(text, resolve_instruction(default if instruction is None else instruction)).string

    @overload
    def encode(  # type: ignore[overload-overlap]  # a str is also a sequence of strings
        self, texts: str, instruction: Instruction = None, **options: Unpack[ArrayKwargs]
    ) -> Vector: ...
    @overload
    def encode(self, texts: Sequence[str], instruction: Instruction = None, **options: Unpack[ArrayKwargs]) -> VectorRows: ...
    @overload
    def encode(self, texts: None = None, instruction: Instruction = None, **options: Unpack[ArrayKwargs]) -> Vectors: ...
    @overload
    def encode(
        self, texts: Texts, instruction: Instruction, *, return_answers: Literal[True], **options: Unpack[FormatKwargs]
    ) -> tuple[Vectors, list[str]]: ...
    @overload
    def encode(
        self, texts: Texts, instruction: Instruction = None, *, convert_to_tensor: Literal[True], **options: Unpack[EncodeKwargs]
    ) -> torch.Tensor: ...
    @overload
    def encode(
        self, texts: Texts, instruction: Instruction = None, *, convert_to_numpy: Literal[False], **options: Unpack[EncodeKwargs]
    ) -> torch.Tensor | list[torch.Tensor]: ...
    def encode(
        self,
        texts: Texts | None = None,
        instruction: Instruction = None,
        *,
        batch_size: int = 32,
        normalize_embeddings: bool = False,
        truncate_dim: int | None = None,
        precision: PrecisionName | None = None,
        show_progress_bar: bool | None = None,
        filter_words: Sequence[str] = (),
        return_answers: bool = False,
        **kwargs: Any,
    ) -> Any:
        """Embed texts under an instruction.

        Args:
            texts: One text or n texts, which may be empty strings.
            instruction: One for all texts, or one per text. ``@name`` is a named instruction. None or "" asks no question and
                gives the general-purpose vector: of the model's base encoder if it has one (all bundled models), under the
                checkpoint's default prompt for embedding models, and under ``@generic`` for all others.
            batch_size: Maximum number of texts in one pass.
            normalize_embeddings: Whether to scale vectors to length 1; False takes the model's option (true for bundled models).
            truncate_dim: Number of leading dimensions to keep, cut before vectors are normalized; None takes the model's option.
            precision: "float32", "int8", "uint8", "binary" or "ubinary" (see ``precision.quantize_vectors``); None takes the
                model's option.
            show_progress_bar: Whether to show a progress bar; None shows it for long runs in a terminal.
            filter_words: Words whose hidden states are left out of an answer's mean (paper, section 4.3).
            return_answers: Whether to return the answers to the instruction, too. Masked LMs, and causal ones with 1st-gen,
                compute both in one pass, unless there is a cache.
            **kwargs: Keywords of sentence-transformers: ``sentences``, ``prompt`` and ``prompt_name`` (instructions),
                ``convert_to_tensor``, ``convert_to_numpy``, ``device``. All others raise an error.

        Returns:
            float32, shape (n, d), or (d,) for one string. Row i is the vector of text i. "re-enc" returns ``ReencodedVectors``.
            int8 or uint8 under another precision, and of binary ones a byte for eight dimensions. With ``return_answers`` a tuple
            of these vectors and the answers, a list of n strings as from ``answer``.

        Raises:
            InputError: If a text is not a string, the numbers of instructions and texts differ, a keyword is unknown, or
                vectors cannot be cut to ``truncate_dim``.
            ModelError: If the model returns NaN or infinite values.

        Example:
            >>> InBedder().encode("The soup was cold.", "What is the complaint about?").shape
            (384,)
        """
        vector_format = self.pipeline.choose_format(normalize_embeddings, truncate_dim, precision)
        run_options, defaults = RunOptions(batch_size, show_progress_bar), self.pipeline.defaults
        options = asdict(run_options) | asdict(vector_format)
        if return_answers:
            if kwargs or filter_words:
                raise InputError("return_answers takes no other keywords than those of the vectors. Leave them out.")
            return self._encode_and_answer(texts, instruction, run_options, vector_format)
        if kwargs:
            return encode_with_kwargs(self, defaults, texts, instruction, kwargs, options | {"filter_words": filter_words})
        instruction = skip_blank(instruction) if defaults.asks else instruction
        words = check_strings("filter_words", filter_words) or list(self.options.encoding.filter_words)
        if instruction is None and self.base_encoder is not None:
            if words:
                raise InputError(
                    "filter_words filters the words of an answer, and without an instruction there is no answer. Pass one."
                )
            return self.base_encoder.encode(texts, **options)
        rows, instructions = check_texts(texts, defaults.any if instruction is None else instruction)
        warn_of_unreadable(rows, self)
        if self.pooling == "re-enc":
            reencoded = self.pipeline.embed_answers(rows, instructions, words, run_options, vector_format)
            return reencoded.select_first() if isinstance(texts, str) else reencoded
        if not rows:
            return self.encode([""], defaults.any, **options)[:0]
        vectors = self.pipeline.embed(rows, [(each,) for each in instructions], words, run_options, vector_format)[0]
        return vectors[0] if isinstance(texts, str) else vectors

    def _encode_and_answer(
        self, texts: Texts | None, instruction: Instruction, run_options: RunOptions, vector_format: VectorFormat
    ) -> tuple[Vectors, list[str]]:
        """Embed and answer texts, in one pass unless words are filtered or answers re-encoded."""
        rows, instructions = self._check_question(texts, instruction)
        encoding = self.options.encoding
        if not rows or self.pooling == "re-enc" or encoding.filter_words:
            options = asdict(run_options)
            return self.encode(texts, instruction, **options, **asdict(vector_format)), self.answer(rows, instructions, **options)
        answering = Sampling(encoding.sampling.max_new_tokens)
        vectors, scored = self.pipeline.embed_and_answer(rows, instructions, answering, run_options, vector_format)
        threshold = float(encoding.min_confidence or 0)
        return vectors[0] if isinstance(texts, str) else vectors, [row[0].select_text(threshold) for row in scored]

    def _check_question(self, texts: Texts | None, instruction: Instruction) -> tuple[list[str], list[str]]:
        """Check texts and the instructions that a model is to answer: n texts and n instructions."""
        if instruction is None or (isinstance(instruction, str) and not instruction.strip()):
            raise InputError('An answer needs an instruction. Pass a question, or "@generic".')
        rows, instructions = check_texts(texts, instruction)
        warn_of_unreadable(rows, self)
        check_answers(self.backbone, self.name)
        return rows, instructions

    def encode_many(
        self,
        texts: Texts,
        instructions: Sequence[str],
        *,
        batch_size: int = 32,
        normalize_embeddings: bool = False,
        truncate_dim: int | None = None,
        precision: PrecisionName | None = None,
        show_progress_bar: bool | None = None,
    ) -> Vectors:
        """Embed the same texts under several instructions. Causal models that read the text first read each text once.

        Args:
            texts: One text or n texts.
            instructions: m instructions.
            batch_size: Maximum number of texts in one pass.
            normalize_embeddings: Whether to scale vectors to length 1; False takes the model's option.
            truncate_dim: Number of leading dimensions to keep; None takes the model's option.
            precision: The precision of the vectors, as in ``encode``.
            show_progress_bar: Whether to show a progress bar; None shows it for long runs in a terminal.

        Returns:
            Shape (m, n, d), or (m, d) for one string; float32, or the dtype of the precision.

        Raises:
            InputError: If a text is not a string, ``instructions`` is not a list or empty, or vectors cannot be cut to
                ``truncate_dim``.

        Example:
            >>> InBedder().encode_many(["Cats purr.", "Dogs bark."], ["Which animal?", "Which sound?", "@topic"]).shape
            (3, 2, 384)
        """
        rows, _ = check_texts(texts, None)
        resolved_instructions = tuple(
            resolve_instruction(instruction) for instruction in check_strings("instructions", instructions)
        )
        if not resolved_instructions:
            raise InputError("instructions is empty. Pass at least one instruction.")
        if self.pipeline.defaults.asks:
            skip_blank(resolved_instructions)
        warn_of_unreadable(rows, self)
        run_options, words = RunOptions(batch_size, show_progress_bar), self.options.encoding.filter_words
        vector_format = self.pipeline.choose_format(normalize_embeddings, truncate_dim, precision)
        if not rows:
            empty = self.encode([], self.pipeline.defaults.any, **asdict(vector_format))
            return np.repeat(empty[None], len(resolved_instructions), axis=0)
        if self.pooling == "re-enc":
            per_instruction = ([instruction] * len(rows) for instruction in resolved_instructions)
            arrays = (self.pipeline.embed_answers(rows, each, words, run_options, vector_format) for each in per_instruction)
            vectors: Vectors = np.stack([np.asarray(array) for array in arrays])
        else:
            vectors = self.pipeline.embed(rows, [resolved_instructions] * len(rows), words, run_options, vector_format)
        return vectors[:, 0] if isinstance(texts, str) else vectors

    @overload
    def encode_query(
        self, texts: Texts | None = None, instruction: Instruction = None, **options: Unpack[ArrayKwargs]
    ) -> Vectors: ...
    @overload
    def encode_query(
        self, texts: Texts, instruction: Instruction = None, *, convert_to_tensor: Literal[True], **options: Unpack[EncodeKwargs]
    ) -> torch.Tensor: ...
    def encode_query(self, texts: Texts | None = None, instruction: Instruction = None, **options: Any) -> Any:
        """Embed search queries.

        Args:
            texts: One text or n texts.
            instruction: One for all texts, or one per text. None takes the checkpoint's own query prompt; for INSTRUCTOR models
                without one it takes "Represent the question for retrieving supporting documents:"; models that answer ask no
                question.
            **options: Keyword arguments of ``encode``.

        Returns:
            float32, shape (n, d), or (d,) for one string.

        Example:
            >>> model = InBedder()
            >>> reviews = model.encode_document(["The soup was cold.", "Parking is easy."])
            >>> int(model.similarity(model.encode_query("temperature of the food"), reviews).argmax())
            0
        """
        if instruction is None and not has_prompt(options):
            instruction = self.pipeline.defaults.query
        return self.encode(texts, instruction, **options)

    @overload
    def encode_document(
        self, texts: Texts | None = None, instruction: Instruction = None, **options: Unpack[ArrayKwargs]
    ) -> Vectors: ...
    @overload
    def encode_document(
        self, texts: Texts, instruction: Instruction = None, *, convert_to_tensor: Literal[True], **options: Unpack[EncodeKwargs]
    ) -> torch.Tensor: ...
    def encode_document(self, texts: Texts | None = None, instruction: Instruction = None, **options: Any) -> Any:
        """Embed the documents of a search.

        Args:
            texts: One text or n texts.
            instruction: One for all texts, or one per text. None takes the checkpoint's own document prompt (E5-instruct and
                Qwen3-Embedding have none); for INSTRUCTOR models without one it takes "Represent the document for retrieval:";
                models that answer ask no question, so that one vector per document serves every query.
            **options: Keyword arguments of ``encode``.

        Returns:
            float32, shape (n, d), or (d,) for one string.

        Example:
            >>> InBedder().encode_document(["The soup was cold.", "Parking is easy."]).shape
            (2, 384)
        """
        if instruction is None and not has_prompt(options):
            instruction = self.pipeline.defaults.document
        return self.encode(texts, instruction, **options)

    def encode_guided(
        self,
        texts: Sequence[str],
        instruction: str | None,
        *,
        sample: int = 1000,
        generic: Vectors | None = None,
        seed: int = 0,
        batch_size: int = 32,
        normalize_embeddings: bool = False,
        truncate_dim: int | None = None,
        precision: PrecisionName | None = None,
        show_progress_bar: bool | None = None,
    ) -> GuidedVectors:
        """Embed texts under a new instruction by reading only a sample: fit a linear map from general-purpose vectors.

        A second model, such as that of ``small`` and ``medium``, is fast: it reads all texts under the instruction, and the map
        starts from its vectors, too.

        Args:
            texts: n texts.
            instruction: The new instruction.
            sample: Number of texts to read under the instruction.
            generic: General-purpose vectors of the texts, of any model, shape (n, k); None computes those of ``encode(texts)``
                with those of an earlier layer (``encode_general``).
            seed: Seed of the sample.
            batch_size: Maximum number of texts in one pass.
            normalize_embeddings: Whether to scale vectors to length 1; False takes the model's option.
            truncate_dim: Number of leading dimensions to keep; None takes the model's option.
            precision: The precision of the vectors, as in ``encode``; the map is fitted in float32.
            show_progress_bar: Whether to show a progress bar; None shows it for long runs in a terminal.

        Returns:
            float32, shape (n, d), with the map's held-out ``cosine`` and the rows of the ``sample``. If the cosine is too low,
            a warning is logged and every text is read.

        Raises:
            InputError: If ``sample`` is below 50, or the numbers of general-purpose vectors and texts differ.

        Example:
            >>> vectors = InBedder().encode_guided(["Cats purr.", "Dogs bark."], "Which animal?")
            >>> vectors.shape, vectors.cosine  # every text is in the sample
            ((2, 384), 1.0)
        """
        rows, _ = check_texts(texts, None)
        if isinstance(texts, str):
            raise InputError("encode_guided takes a list of texts, not one string.")
        vector_format = self.pipeline.choose_format(normalize_embeddings, truncate_dim, precision)
        run_options = asdict(RunOptions(batch_size, show_progress_bar))
        options = run_options | asdict(vector_format) | {"precision": "float32"}
        if generic is None:
            generic = encode_general(self, rows, **options)
        generic = check_vectors("generic", generic, rows)
        if (second_model := self.pipeline.second_model) is not None:  # it is fast, and reads every text under the instruction
            generic = np.hstack([generic, second_model.encode(rows, instruction, **run_options)])
        vectors = encode_guided(
            lambda indices: self.encode([rows[i] for i in indices], instruction, **options), generic, sample=sample, seed=seed
        )
        formatted: GuidedVectors = vectors.with_values(vector_format.apply(vectors))
        return formatted

    @overload
    def answer(  # type: ignore[overload-overlap]  # 1 is also an int
        self, texts: Texts, instruction: Instruction = None, *, n: Literal[1] = 1, **options: Unpack[AnswerKwargs]
    ) -> list[str]: ...
    @overload
    def answer(
        self, texts: Texts, instruction: Instruction = None, *, n: int, **options: Unpack[AnswerKwargs]
    ) -> list[list[str]]: ...
    def answer(
        self,
        texts: Texts,
        instruction: Instruction = None,
        *,
        n: int = 1,
        temperature: float = 0.0,
        top_p: float = 1.0,
        seed: int = 0,
        min_confidence: float | None = None,
        batch_size: int = 32,
        show_progress_bar: bool | None = None,
    ) -> list[str] | list[list[str]]:
        """Answer an instruction for each text, in the few words that the vectors represent.

        Args:
            texts: One text or several.
            instruction: One for all texts, or one per text. ``@name`` is a named instruction, such as ``@generic``.
            n: Number of answers per text; they differ only if the temperature is above 0.
            temperature: Sampling temperature; 0 decodes greedily.
            top_p: Probability mass of nucleus sampling, in (0, 1].
            seed: Seed of sampled answers, which depend on seed, text and instruction, but not on ``batch_size``.
            min_confidence: Minimum confidence, 0 to 1: the geometric mean of the probabilities that the model gives the tokens of
                its answer at a temperature of 1, the end token included. 0 shows every answer; None takes the model's option.
            batch_size: Maximum number of texts in one pass.
            show_progress_bar: Whether to show a progress bar; None shows it for long runs in a terminal.

        Returns:
            One answer per text, or with n > 1 a list of n answers per text. An answer is "" if the model is less confident, or if
            it is "none" and ``min_confidence`` is above 0.

        Raises:
            InputError: If the instruction is missing, a text is not a string, or an option is out of range.
            ModelError: If the model has no trained language-model head.

        Example:
            >>> len(InBedder().answer(["The soup was cold."], "What is the complaint about?"))
            1
        """
        rows, instructions = self._check_question(texts, instruction)
        max_new_tokens = self.options.encoding.sampling.max_new_tokens
        sampling = Sampling(max_new_tokens, n, temperature, top_p, seed if temperature else 0)
        threshold = check_probability("min_confidence", min_confidence)
        threshold = float(self.options.encoding.min_confidence or 0) if threshold is None else threshold
        scored = self.pipeline.runner.answer(rows, instructions, sampling, RunOptions(batch_size, show_progress_bar))
        answers = [[answer.select_text(threshold) for answer in row] for row in scored]
        return answers if n > 1 else [row[0] for row in answers]

    def nearest_words(self, vectors: Vectors, top: int = 10) -> list[list[str]]:
        """Decode vectors of the last layer with the model's answer head, as in the authors' second cluster explanation.

        Args:
            vectors: float32, shape (m, d), such as cluster means minus the corpus mean.
            top: Maximum number of words per vector.

        Returns:
            The likeliest words of each vector; empty lists if the head does not read this layer or pooling.

        Example:
            >>> model = InBedder()
            >>> [len(words) <= 3 for words in model.nearest_words(model.encode(["Cats purr."], "Which animal?"), top=3)]
            [True]
        """
        return self.pipeline.decode_words(vectors, top, lambda: self.dimension)

    def to(self, device: str | torch.device) -> InBedder:
        """Move the weights to another device, also for all models that share them.

        Args:
            device: A torch device.

        Returns:
            The model itself.

        Raises:
            ModelError: If the weights are quantized or belong to an engine, or the device does not exist.

        Example:
            >>> InBedder(device="cpu").to("cpu").device.type
            'cpu'
        """
        self.pipeline = self.pipeline.move(device)
        return self

    def get_embedding_dimension(self) -> int:
        """Return the length of a vector, under sentence-transformers' name of the method.

        Returns:
            d, the number of dimensions.

        Example:
            >>> InBedder().get_embedding_dimension()
            384
        """
        return int(self.dimension)

    get_sentence_embedding_dimension = get_embedding_dimension

    def as_map(
        self, instruction: str | None = None, *, column: str = "text", to: str = "vector", **options: Unpack[EncodeKwargs]
    ) -> VectorMap:
        """Create a function for ``map`` of Hugging Face datasets: ``dataset.map(model.as_map("@topic"), batched=True)``.

        Args:
            instruction: The instruction for all texts; None embeds them without one.
            column: The column of texts.
            to: The new column of vectors.
            **options: Keyword arguments of ``encode``.

        Returns:
            A function from a batch of rows to the new column. datasets caches its results by the model's ``spec``.

        Example:
            >>> InBedder().as_map("@topic", column="review")({"review": ["The soup was cold."]})["vector"].shape
            (1, 384)
        """
        return VectorMap(self, self.spec.key(), instruction, column, to, tuple(sorted(options.items())))

    def __copy__(self) -> InBedder:
        return self.replace()

    def __deepcopy__(self, _memo: Any) -> InBedder:
        return self.replace()

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(type(self), **self.pipeline.requested.get_changed_options()), ()  # options without weights

    def __repr__(self) -> str:
        settings = {"backbone": self.backbone.kind, "pooling": self.pooling, "layer": self.layer}
        settings |= {"device": str(self.device), "dtype": self.compute_dtype}
        return f"{type(self).__name__}({self.name!r}, {', '.join(f'{name}={value!r}' for name, value in settings.items())})"


InBedder.__init__.__signature__ = make_signature()  # type: ignore[attr-defined]
