"""The pipeline of a model, from texts and instructions to vectors and answers.

    options -> backbone (weights) -> tokenizer (prompts) -> runner (batches, cache) -> vectors

    v(x, i) = s(x, i)                                        the pooled states of text x under instruction i
    v(x, i) = v(x, i) - s("", i)                             subtract_instruction
    v(x, i) = [unit(v(x, i)), unit(u(x, i))]                 beside: u is the second model
    truncated, normalized and quantized                      VectorFormat

A variant (another pooling, another cache, a queue before the backbone) shares the weights and builds everything else anew, so
that no old setting survives. Its base encoder and its second model change with it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property, partial
from typing import Any

import numpy as np
import torch

from inbedder.backbones.confidence import ScoredAnswer
from inbedder.backbones.families import load_backbone
from inbedder.backbones.hub import Settings
from inbedder.backbones.protocol import Backbone, check_answers
from inbedder.backbones.revision import get_files_revision, get_weights_revision, hash_settings
from inbedder.backbones.shared_prefix import make_kv_cache
from inbedder.backbones.transformer import get_dtype_name, select_distinct_words
from inbedder.cache.store import Store
from inbedder.encoding.default_options import check_truncate_dim, resolve_encoding, uses_default_reading, with_mask_options
from inbedder.encoding.instruction_vectors import InstructionVectors
from inbedder.encoding.language_scope import check_language_once
from inbedder.encoding.lazy_model import LazyModel
from inbedder.encoding.prompt_runner import PromptRunner, RunOptions
from inbedder.encoding.protocols import Encoder
from inbedder.encoding.reencode import ReencodedVectors, check_encoder, find_reencoder_revision, reencode
from inbedder.errors import InputError, ModelError
from inbedder.options import NO_SECOND_MODEL, ModelOptions, Options, Sampling
from inbedder.prompting.templates import DefaultInstructions, PromptTemplate, choose_default_instructions, resolve_instruction
from inbedder.prompting.tokenization import PromptTokenizer
from inbedder.vector_spec import VectorSpec
from inbedder.vectors.precision import check_precision
from inbedder.vectors.vectors import (
    MIN_RELATIVE_COARSE_SUM,
    MIN_RELATIVE_SUM,
    VectorFormat,
    Vectors,
    check_finite,
    concatenate_vectors,
)

REPLACEABLE_MODEL_OPTIONS = {"cache", "cache_size", "text_memory"}
"""Fields of ``ModelOptions`` that can change without loading the weights again."""
LoadModel = Callable[..., Encoder]
"""A function that loads another model: the class ``InBedder``."""


@dataclass(frozen=True)
class EncodingPipeline:
    """A loaded model: everything that ``InBedder`` computes with."""

    requested: Options
    """The requested options."""
    options: Options
    """The options with every default filled in."""
    settings: Settings
    """The settings that training stored with the weights."""
    backbone: Backbone
    """The language model."""
    tokenizer: PromptTokenizer
    """The tokenizer of prompts."""
    store: Store | None
    """The cache on disk."""
    base: LazyModel | None
    """The model that reads texts without an instruction; None if this model reads them itself."""
    second_model: Encoder | None
    """The model whose vectors are appended."""
    instruction_vectors: InstructionVectors = field(default_factory=InstructionVectors)
    """The vectors of instructions on their own, computed once."""

    def __post_init__(self) -> None:
        _ = self.runner  # built before threads share it

    @classmethod
    def load(cls, requested: Options, load_model: LoadModel) -> EncodingPipeline:
        """Load a model, its cache and its base encoder."""
        store = open_store(requested.model)
        backbone, settings = load_backbone(requested.model)
        base_name, shared = settings.base_encoder, requested.get_shared_options()
        base = LazyModel(lambda: load_model(base_name, backbone="embedding", **shared)) if base_name else None
        return cls.compose(requested, settings, backbone, store, base, None, load_model)

    @classmethod
    def compose(
        cls,
        requested: Options,
        settings: Settings,
        backbone: Backbone,
        store: Store | None,
        base: LazyModel | None,
        second_model: Encoder | None,
        load_model: LoadModel,
    ) -> EncodingPipeline:
        """Build the pipeline on a loaded backbone."""
        encoding = resolve_encoding(requested.encoding, backbone, settings, requested.model.model)
        backbone = with_mask_options(backbone, encoding)
        assert isinstance(encoding.template, PromptTemplate)
        reading = (encoding.template, encoding.max_length, encoding.mask_length or 0, encoding.truncation_side)
        tokenizer = PromptTokenizer(backbone.tokenizer, *reading)
        if second_model is None and encoding.beside != NO_SECOND_MODEL:
            second_model = load_model(encoding.beside, beside=NO_SECOND_MODEL, **requested.get_shared_options())
        options = Options(requested.model, encoding)
        return cls(requested, options, settings, backbone, tokenizer, store, base, second_model)

    def replace(self, load_model: LoadModel, **changes: Any) -> EncodingPipeline:
        """Return a variant with other options, which shares the weights."""
        fixed_options = {option.name for option in dataclasses.fields(ModelOptions)} - REPLACEABLE_MODEL_OPTIONS
        if names := sorted(fixed_options & changes.keys()):
            model = self.options.model.model
            raise InputError(f"{', '.join(names)} cannot be replaced. Load the model with it: InBedder({model!r}, ...).")
        requested = self.requested.replace(**changes)
        store = open_store(requested.model) if {"cache", "cache_size"} & changes.keys() else self.store
        shared = {name: value for name, value in requested.get_shared_options().items() if name in changes}
        base, second_model = self.base, None if "beside" in changes else self.second_model
        if shared and base is not None:
            base = base.wrap(lambda model: model.replace(**shared))
        if shared and second_model is not None:
            second_model = second_model.replace(**shared)
        return self.compose(requested, self.settings, self.backbone, store, base, second_model, load_model)

    def wrap(self, wrap_backbone: Callable[[Backbone], Any]) -> EncodingPipeline:
        """Return a variant with wrapped backbones, such as a request queue, also in its base encoder and second model."""

        def wrap_model(model: Encoder) -> Encoder:
            return model.from_pipeline(model.pipeline.wrap(wrap_backbone))

        return dataclasses.replace(
            self,
            backbone=wrap_backbone(self.backbone),
            base=self.base and self.base.wrap(wrap_model),
            second_model=self.second_model and wrap_model(self.second_model),
        )

    @property
    def template(self) -> PromptTemplate:
        """The prompt template."""
        assert isinstance(self.options.encoding.template, PromptTemplate)
        return self.options.encoding.template

    @property
    def base_encoder(self) -> Encoder | None:
        """The model that reads texts without an instruction, loaded on first use."""
        return None if self.base is None else _get_on_device(self.backbone, self.base)

    @cached_property
    def defaults(self) -> DefaultInstructions:
        """The instructions of calls without one."""
        return choose_default_instructions(self.template, self.settings.prompts)

    @cached_property
    def runner(self) -> PromptRunner:
        """The runner, which reads prompts in batches and through the cache."""
        encoding = self.options.encoding
        kv_cache = make_kv_cache(self.backbone, str(encoding.pooling), self.template, self.options.model.text_memory)
        return PromptRunner(self.backbone, self.tokenizer, encoding, self.store, self._make_spec, kv_cache)

    @property
    def appended_model(self) -> Encoder | None:
        """The second model, if its vectors are appended: with another pooling or layer they are not."""
        is_default = uses_default_reading(self.options.encoding, self.backbone, self.settings)
        return self.second_model if is_default else None

    @property
    def spec(self) -> VectorSpec:
        """Everything that determines a vector."""
        return self._make_spec()

    @cached_property
    def _make_spec(self) -> Callable[[], VectorSpec]:
        """A function that computes the spec once. It does not refer to the pipeline, so that unused weights are freed at once."""
        return cache(partial(describe_model, self.options, self.settings, self.backbone, self.second_model))

    def choose_format(self, normalize_embeddings: bool, truncate_dim: int | None, precision: str | None) -> VectorFormat:
        """Choose the format of vectors: an argument of ``encode`` at its default takes the model's option.

        Args:
            normalize_embeddings: True scales vectors to length 1; False takes the option.
            truncate_dim: The number of dimensions; None takes the option.
            precision: The precision; None takes the option.

        Returns:
            The format, checked.

        Raises:
            InputError: If the model's vectors cannot be truncated, or an argument is out of range.
        """
        encoding = self.options.encoding
        check_truncate_dim(truncate_dim, encoding.beside, self.backbone, self.settings, self.options.model.model)
        return VectorFormat(
            encoding.truncate_dim if truncate_dim is None else truncate_dim,
            normalize_embeddings or bool(encoding.normalize_embeddings),
            encoding.precision if precision is None else check_precision("precision", precision),
        )

    def embed(
        self,
        texts: Sequence[str],
        instructions: Sequence[tuple[str, ...]],
        filter_words: Sequence[str],
        run_options: RunOptions,
        vector_format: VectorFormat,
    ) -> Vectors:
        """Embed texts by their pooled states.

        Args:
            texts: n texts, n at least 1.
            instructions: n tuples of m instructions.
            filter_words: Words whose hidden states are left out; with any, no second model's vectors are appended.
            run_options: Batch size and progress bar.
            vector_format: Length, normalization and precision of the vectors.

        Returns:
            Shape (m, n, d), in the dtype of the precision.

        Raises:
            ModelError: If a vector contains NaN or infinite values.
        """
        vectors = self.runner.pool(texts, instructions, filter_words, run_options)
        return self._finish(vectors, texts, instructions, filter_words, run_options, vector_format)

    def embed_and_answer(
        self,
        texts: Sequence[str],
        instructions: Sequence[str],
        answering: Sampling,
        run_options: RunOptions,
        vector_format: VectorFormat,
    ) -> tuple[Vectors, list[list[ScoredAnswer]]]:
        """Embed n texts and answer their instructions: shape (n, d), as from ``embed``, and n lists of answers."""
        vectors, answers = self.runner.pool_and_answer(texts, instructions, answering, run_options)
        single_instructions = [(instruction,) for instruction in instructions]
        return self._finish(vectors, texts, single_instructions, (), run_options, vector_format)[0], answers

    def _finish(
        self,
        vectors: Vectors,
        texts: Sequence[str],
        instructions: Sequence[tuple[str, ...]],
        filter_words: Sequence[str],
        run_options: RunOptions,
        vector_format: VectorFormat,
    ) -> Vectors:
        """Subtract the instruction's vector from pooled states, append the second model's vectors, and format them."""
        if self.options.encoding.subtract_instruction:
            is_exact = self.backbone.compute_dtype.startswith(("float32", "float64"))
            self.instruction_vectors.subtract(
                vectors,
                instructions,
                filter_words,
                resolve_instruction(self.defaults.any),
                MIN_RELATIVE_SUM if is_exact else MIN_RELATIVE_COARSE_SUM,
                lambda new: self.runner.pool([""] * len(new), [(each,) for each in new], filter_words, RunOptions(32, False))[0],
            )
        if not filter_words and (second_model := self.appended_model) is not None:
            second_vectors = _embed_with_second_model(second_model, texts, instructions, run_options)
            vectors = concatenate_vectors(vectors, second_vectors)
        formatted: Vectors = vector_format.apply(check_finite(vectors))
        return formatted

    def embed_answers(
        self,
        texts: Sequence[str],
        instructions: Sequence[str],
        filter_words: Sequence[str],
        run_options: RunOptions,
        vector_format: VectorFormat,
    ) -> ReencodedVectors:
        """Embed n texts by the mean vectors of their sampled answers: shape (n, d), in the dtype of the precision."""
        encoding, device = self.options.encoding, str(self.backbone.model.device)
        assert encoding.reencoding is not None
        sampling = encoding.reencoding.make_sampling(encoding.sampling.max_new_tokens, filter_words)
        check_encoder(encoding.reencoding.encoder, store=self.store, device=device)
        check_answers(self.backbone, self.options.model.model)
        answers = self.runner.answer(texts, instructions, sampling, run_options)
        texts_of_answers = [[answer.text for answer in row] for row in answers]  # no vector depends on min_confidence
        vectors = reencode(texts_of_answers, encoding.reencoding.encoder, store=self.store, device=device)
        formatted: ReencodedVectors = vectors.with_values(vector_format.apply(vectors))
        return formatted

    def decode_words(self, vectors: Vectors, top: int, get_dimension: Callable[[], int]) -> list[list[str]]:
        """Decode vectors with the model's answer head; empty lists if it does not read such vectors, as truncated ones."""
        encoding, backbone = self.options.encoding, self.backbone
        is_last = encoding.layer in (-1, backbone.num_layers)
        is_whole = is_last and encoding.truncate_dim is None
        if not is_whole or encoding.pooling in ("avg-ppt", "re-enc") or not backbone.answers:
            return [[] for _ in vectors]
        if (second_model := self.appended_model) is not None:  # the head reads only this model's states
            if vectors.shape[1] != get_dimension():  # no head reads general-purpose vectors
                return [[] for _ in vectors]
            vectors = np.ascontiguousarray(vectors[:, : -second_model.dimension])
        return [select_distinct_words(words, top) for words in backbone.read_vectors(torch.from_numpy(vectors), 5 * top)]

    def cached_vectors(self, keys: Sequence[bytes]) -> dict[bytes, Vectors]:
        """Look up pooled states in the cache by their keys, with those of a second model appended."""
        vectors = self.runner.cached_vectors(keys)
        if (second_model := self.appended_model) is None:
            return vectors
        appended = second_model.pipeline.cached_vectors(list(vectors))
        return {key: concatenate_vectors(vectors[key], second) for key, second in appended.items()}

    def move(self, device: str | torch.device) -> EncodingPipeline:
        """Move the weights, which all variants share, to another device."""
        try:
            if torch.device(device) == self.backbone.model.device:
                return self
        except RuntimeError as error:
            raise ModelError(f"There is no device {device!r} ({error}).") from None
        name, weights = self.options.model.model, self.backbone.model
        if (
            not isinstance(weights, torch.nn.Module)
            or self.options.model.quantization
            or self.backbone.compute_dtype != get_dtype_name(weights)
        ):
            raise ModelError(
                f"{name} cannot be moved after loading. Load it on the device: InBedder({name!r}, device={str(device)!r})."
            )
        try:
            for part in (weights, *(getattr(self.backbone, name, None) for name in ("output_layers", "text_model"))):
                if isinstance(part, torch.nn.Module):
                    part.to(device)
        except (RuntimeError, AssertionError) as error:
            raise ModelError(f"{name} cannot be moved to {device} ({error}).") from error
        for companion in (None if self.base is None else self.base.loaded, self.second_model):
            if companion is not None:
                companion.to(device)
        change = {"device": str(device)}
        return dataclasses.replace(self, requested=self.requested.replace(**change), options=self.options.replace(**change))


def _embed_with_second_model(
    model: Encoder, texts: Sequence[str], instructions: Sequence[tuple[str, ...]], run_options: RunOptions
) -> Vectors:
    """Embed the same texts and instructions with the second model: shape (m, n, k)."""
    options = dataclasses.asdict(run_options)
    with check_language_once(is_checked=True):
        if len(set(instructions)) == 1 and len(instructions[0]) > 1:
            return model.encode_many(texts, list(instructions[0]), **options)
        return np.stack([model.encode(texts, list(column), **options) for column in zip(*instructions, strict=True)])


def describe_model(options: Options, settings: Settings, backbone: Backbone, second_model: Encoder | None) -> VectorSpec:
    """Describe everything that determines the vectors of a loaded model."""
    model, encoding = options
    return VectorSpec(
        model=model.model,
        hub_revision=model.revision,
        backbone="onnx" if model.is_onnx else backbone.kind,
        quantization=model.quantization,
        weights=get_weights_revision(backbone),
        files=hash_settings(backbone),
        compute_dtype=backbone.compute_dtype,
        encoding=encoding,
        base_encoder=None if settings.base_encoder is None else get_files_revision(settings.base_encoder),
        reencoder=None if encoding.reencoding is None else find_reencoder_revision(encoding.reencoding.encoder),
        second_model=None if second_model is None else second_model.spec,
        base_revision=backbone.weight_files.commit if backbone.adapter is not None else None,
    )


def _get_on_device(backbone: Backbone, base: LazyModel) -> Encoder:
    """Return the base encoder, on the device of the backbone."""
    return base.get().to(backbone.model.device)


def open_store(options: ModelOptions) -> Store | None:
    """Open the cache that the options name; None without one."""
    return None if options.cache is None else Store(options.cache, options.cache_size)
