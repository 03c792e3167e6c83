"""Embedding models: INSTRUCTOR, plain sentence-transformers checkpoints, E5-instruct, Qwen3-Embedding. They do not answer.

INSTRUCTOR (Su et al. 2023, section 2.1) encodes instruction and text as one sequence and takes the mean of the last hidden states
over the text's tokens: the text attends to the instruction, which is not pooled. The poolings are

- text-mean:  the text's tokens, and the special tokens after it; without an instruction all tokens
- mean:       all tokens, including the instruction's
- cls:        the first token
- last-token: the last token, or the last learned tokens (``learned_tokens``)

followed by the checkpoint's Dense and Normalize, if it has them. text-mean is sentence-transformers' mean with
``include_prompt=False``. The other poolings are those with ``include_prompt=True``. The vectors equal those of
sentence-transformers, with one exception.

sentence-transformers (and INSTRUCTOR's code) find the instruction's end by tokenizing the instruction without the text, and skip
that many tokens. This count is wrong if the tokenizer joins characters across the border: "Represent it: " ends in a token for
the space, but in "Represent it: cats" the space belongs to the token " cats" (byte-level and SentencePiece vocabularies). The
text's first token is then missing from the mean. Here the prompt is tokenized once, and its offsets show which tokens hold a
character of the text. A token that holds characters of both belongs to the text.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers.normalizers import Lowercase
from tokenizers.normalizers import Sequence as NormalizerSequence
from torch import Tensor
from torch.nn import functional as F

from inbedder.backbones.bert import BertConfig, BertModel
from inbedder.backbones.hub import SETTINGS_FILE, ModelFiles, Settings
from inbedder.backbones.learned_tokens import read_projections
from inbedder.backbones.padding_check import split_by_length
from inbedder.backbones.sentence_modules import SentenceModules, check_width, read_modules
from inbedder.backbones.traits import TransformersBackbone
from inbedder.backbones.transformer import capture_layer, check_layer
from inbedder.backbones.weights import LoadedModel, ResolvedModel
from inbedder.errors import InputError, ModelError
from inbedder.options import ModelOptions, Sampling
from inbedder.prompting.batching import pad
from inbedder.prompting.templates import get_template, list_template_names
from inbedder.prompting.tokenization import PromptTokens, count_special_edges
from inbedder.vectors.pooling import POOLINGS, TWO_LAYERS, list_poolings, weighted_mean

if TYPE_CHECKING:
    from transformers import PretrainedConfig, PreTrainedModel, PreTrainedTokenizerBase


def reject_answering(resolved: ResolvedModel) -> None:
    """Reject a fine-tuned model whose settings do not say that it is an embedding model."""
    files = ModelFiles(resolved.adapter) if resolved.adapter else resolved.base
    if files.find(SETTINGS_FILE) and resolved.settings.backbone != "embedding":
        raise ModelError(f"{files.name} was fine-tuned to answer, not as an embedding model. Leave out backbone.")


def build_embedding_backbone(loaded: LoadedModel, options: ModelOptions) -> tuple[EmbeddingBackbone, Settings]:
    """Build the backbone of a sentence-transformers checkpoint, or of any encoder with text-mean and Normalize."""
    files, settings = ModelFiles(loaded.adapter) if loaded.adapter else loaded.base, loaded.settings
    is_t5 = loaded.model.config.model_type == "t5"
    modules = (loaded.adapter and read_projections(loaded.adapter)) or read_modules(
        files, is_named=options.kind is not None, is_t5=is_t5
    )
    check_width(modules.output_layers, loaded.model.config.get_text_config().hidden_size, files.name)
    if modules.lowercase:
        tokenizer = loaded.tokenizer.backend_tokenizer
        tokenizer.normalizer = NormalizerSequence([Lowercase(), *([tokenizer.normalizer] if tokenizer.normalizer else [])])
    settings = replace(
        settings, template=settings.template or modules.template or _choose_template(modules), prompts=modules.prompts
    )
    return EmbeddingBackbone(loaded.model, loaded.tokenizer, modules), settings


def choose_encoder_class(config: PretrainedConfig) -> Any:
    """Choose the class that loads a model without its head, and only the encoder of an encoder-decoder."""
    if isinstance(config, BertConfig):
        return BertModel
    from transformers import AutoModel, AutoModelForTextEncoding
    from transformers.models.auto import modeling_auto

    if config.model_type in modeling_auto.MODEL_FOR_TEXT_ENCODING_MAPPING_NAMES:
        return AutoModelForTextEncoding
    if getattr(config, "is_encoder_decoder", False):
        raise ModelError(
            f"transformers cannot load only the encoder of {config.model_type!r}. Choose a T5 or an encoder-only model."
        )
    return AutoModel


def _choose_template(modules: SentenceModules) -> str:
    """Choose the template that renders the checkpoint's own query prompt, else one that puts the instruction before the text."""
    prompt = modules.prompts.get("query", "")
    for name in list_template_names() if prompt else ():
        template = get_template(name)
        if any(template.fixed_parts) and template.extract_instruction(prompt):
            return name
    return "instructor" if modules.pooling == "text-mean" else "prefix"


class EmbeddingBackbone(TransformersBackbone):
    """A model without a head, whose states are pooled to one vector."""

    kind = "embedding"
    display_name = "An embedding model"
    without_template = True
    answers = False

    def __init__(
        self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, modules: SentenceModules, padding_side: str = "right"
    ) -> None:
        """Wrap a loaded encoder or decoder without a head, and the modules that follow it; the padding side changes no vector."""
        super().__init__(model, tokenizer)
        self.output_layers = modules.output_layers.to(model.device).eval().requires_grad_(False)
        self.poolings = tuple(sorted(list_poolings("embedding"), key=lambda pooling: pooling != modules.pooling))
        self.poolings += (TWO_LAYERS,) if not list(self.output_layers.parameters()) else ()
        self.pooled_tokens = modules.pooled_tokens
        self.padding_side = padding_side
        self.num_layers = model.config.num_hidden_layers
        limits = (self.position_limit, modules.max_length or tokenizer.model_max_length)
        self.position_limit = min(limit for limit in limits if limit is not None)
        accepted = inspect.signature(model.forward).parameters
        self.settings = {"use_cache": False} if "use_cache" in accepted else {}
        self.takes_positions = "position_ids" in accepted and padding_side == "left"

    @cached_property
    def _special_edges(self) -> tuple[int, int]:
        """The numbers of special tokens before and after a prompt."""
        return count_special_edges(self.tokenizer("a").encodings[0])

    def _mark_pooled(self, prompt: PromptTokens, pooling: str) -> NDArray[np.int32]:
        """Mark the positions that a pooling averages with 1 and the others with 0, shape (positions,)."""
        is_pooled = np.zeros(max(1, len(prompt.ids)), dtype=np.int32)
        if pooling in ("cls", "last-token"):
            is_pooled[slice(1) if pooling == "cls" else slice(-self.pooled_tokens, None)] = 1
            return is_pooled
        opening, closing = self._special_edges
        start, end = prompt.text
        first = 0 if prompt.instruction[0] == prompt.instruction[1] and start <= opening else start
        is_pooled[first : max(end, opening if first == 0 else 0)] = 1
        is_pooled[len(prompt.ids) - closing :] = 1
        return np.ones_like(is_pooled) if pooling != "text-mean" or not is_pooled.any() else is_pooled

    @split_by_length
    @torch.inference_mode()
    def embed(
        self, prompts: Sequence[PromptTokens], pooling: str, layer: int, sampling: Sampling, filter_ids: Sequence[int] = ()
    ) -> Tensor:
        """Pool one batch in one pass, then apply Dense and Normalize; see ``Backbone.embed``.

        A prompt without tokens counts as one padding token, and an empty text-mean is a mean over all tokens. A Dense works with
        the last layer only, so any other layer raises ModelError.
        """
        layer = check_layer(layer, self.num_layers)
        own_pooling = self.poolings[0] if pooling == TWO_LAYERS else pooling
        if layer != self.num_layers and list(self.output_layers.parameters()):
            raise ModelError("This model's Dense was trained on its last layer. Use layer=-1.")
        if filter_ids:
            raise InputError("filter_words removes words from an answer, and an embedding model gives none. Leave it out.")
        rows = [prompt.ids if len(prompt.ids) else np.array([self.pad_id], dtype=np.int32) for prompt in prompts]
        ids, attention = pad(rows, self.pad_id, self.padding_side)
        is_pooled, _ = pad([self._mark_pooled(prompt, own_pooling) for prompt in prompts], 0, self.padding_side)
        inputs = {"input_ids": ids, "attention_mask": attention.long()}
        if self.takes_positions:
            inputs["position_ids"] = (attention.cumsum(1) - 1).clamp(min=0) + self._first_position
        device = self.model.device
        model, states = capture_layer(self.model, self.model, layer, self.num_layers)
        earlier_states: list[Tensor] = []
        if pooling == TWO_LAYERS:
            model, earlier_states = capture_layer(model, model, 2 * layer // 3, self.num_layers)
        model(**{name: tensor.to(device) for name, tensor in inputs.items()}, **self.settings)
        weights = POOLINGS[own_pooling].weigh(is_pooled).to(device)
        vectors: Tensor = self.output_layers(weighted_mean(states[0], weights))
        if earlier_states:
            vectors = torch.cat([vectors, F.normalize(weighted_mean(earlier_states[0], weights))], 1)
        return vectors

    @cached_property
    def _first_position(self) -> int:
        """The first position; RoBERTa's positions start after the padding index."""
        tables = (module for name, module in self.model.named_modules() if name.endswith("position_embeddings"))
        offset = getattr(next(tables, None), "padding_idx", None)
        return 0 if offset is None else int(offset) + 1

    def answer(self, prompts: Sequence[PromptTokens], sampling: Sampling) -> NoReturn:
        """Raise a ModelError: there is no answer head."""
        raise ModelError("Embedding models cannot generate answers. Choose a causal, masked or encoder-decoder model.")

    def read_vectors(self, vectors: Tensor, top: int) -> list[list[str]]:
        """Return m empty lists: there is no answer head."""
        return [[] for _ in vectors]
