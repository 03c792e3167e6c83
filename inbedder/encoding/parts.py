"""The parts of a model.

    options -> backbone (weights) -> tokenizer (prompts) -> runner (batches, cache) -> combiner (subtract, add, append)

A variant (another pooling, another cache, a queue before the backbone) shares the weights and builds all other parts anew, so
that no old setting survives. Its base encoder and its second model change with it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache, cached_property, partial
from typing import Any

import torch

from inbedder.backbones.families import load_backbone
from inbedder.backbones.hub import Settings
from inbedder.backbones.protocol import Backbone
from inbedder.backbones.revision import get_files_revision, get_weights_revision, hash_settings
from inbedder.backbones.shared_prefix import make_kv_cache
from inbedder.backbones.transformer import get_dtype_name
from inbedder.cache.store import Store
from inbedder.encoding.combiner import Combiner, QuestionVectors
from inbedder.encoding.default_options import resolve_encoding, uses_default_reading, with_mask_options
from inbedder.encoding.lazy_model import LazyModel
from inbedder.encoding.prompt_runner import PromptRunner
from inbedder.encoding.protocols import Encoder
from inbedder.encoding.reencode import find_reencoder_revision
from inbedder.errors import InputError, ModelError
from inbedder.options import NO_SECOND_MODEL, ModelOptions, Options
from inbedder.prompting.templates import DefaultInstructions, PromptTemplate, choose_default_instructions, resolve_instruction
from inbedder.prompting.tokenization import PromptTokenizer
from inbedder.vector_spec import VectorSpec
from inbedder.vectors.vectors import MIN_RELATIVE_COARSE_SUM, MIN_RELATIVE_SUM

REPLACEABLE_MODEL_OPTIONS = {"cache", "cache_size", "text_memory"}
"""Fields of ``ModelOptions`` that can change without loading the weights again."""
LoadModel = Callable[..., Encoder]
"""A function that loads another model: the class ``InBedder``."""


@dataclass(frozen=True)
class Parts:
    """The parts of a loaded model."""

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
    """The model that reads texts without a question; None if this model reads them itself."""
    second_model: Encoder | None
    """The model whose vectors are appended."""
    question_vectors: QuestionVectors = field(default_factory=QuestionVectors)
    """The vectors of questions on their own, computed once."""

    @classmethod
    def load(cls, requested: Options, load_model: LoadModel) -> Parts:
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
    ) -> Parts:
        """Build the parts on a loaded backbone."""
        encoding = resolve_encoding(requested.encoding, backbone, settings, requested.model.model)
        backbone = with_mask_options(backbone, encoding)
        assert isinstance(encoding.template, PromptTemplate)
        reading = (encoding.template, encoding.max_length, encoding.mask_length or 0, encoding.truncation_side)
        tokenizer = PromptTokenizer(backbone.tokenizer, *reading)
        if second_model is None and encoding.beside != NO_SECOND_MODEL:
            second_model = load_model(encoding.beside, beside=NO_SECOND_MODEL, **requested.get_shared_options())
        options = Options(requested.model, encoding)
        return cls(requested, options, settings, backbone, tokenizer, store, base, second_model)

    def replace(self, load_model: LoadModel, **changes: Any) -> Parts:
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

    def wrap(self, wrap_backbone: Callable[[Backbone], Any]) -> Parts:
        """Return a variant with wrapped backbones, such as a request queue, also in its base encoder and second model."""

        def wrap_model(model: Encoder) -> Encoder:
            return model.with_parts(model.parts.wrap(wrap_backbone))

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
        """The model that reads texts without a question, loaded on first use."""
        return None if self.base is None else _get_on_device(self.backbone, self.base)

    @cached_property
    def defaults(self) -> DefaultInstructions:
        """The instructions of calls without a question."""
        return choose_default_instructions(self.template, self.settings.prompts)

    @cached_property
    def runner(self) -> PromptRunner:
        """The runner, which reads prompts in batches and through the cache."""
        encoding = self.options.encoding
        kv_cache = make_kv_cache(self.backbone, str(encoding.pooling), self.template, self.options.model.text_memory)
        return PromptRunner(self.backbone, self.tokenizer, encoding, self.store, self._make_spec, kv_cache)

    @cached_property
    def combiner(self) -> Combiner:
        """The combiner, which computes vectors from pooled states."""
        encoding = self.options.encoding
        combines = uses_default_reading(encoding, self.backbone, self.settings)
        return Combiner(
            self.runner.pool,
            encoding,
            resolve_instruction(self.defaults.any),
            self.second_model if combines else None,
            self.question_vectors,
            MIN_RELATIVE_SUM if self.backbone.compute_dtype.startswith("float32") else MIN_RELATIVE_COARSE_SUM,
        )

    @property
    def spec(self) -> VectorSpec:
        """Everything that determines a vector."""
        return self._make_spec()

    @cached_property
    def _make_spec(self) -> Callable[[], VectorSpec]:
        """A function that computes the spec once. It does not refer to the parts, so that unused weights are freed at once."""
        return cache(partial(describe_model, self.options, self.settings, self.backbone, self.second_model))

    def move(self, device: str | torch.device) -> Parts:
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
