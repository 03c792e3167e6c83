"""Embedding models: INSTRUCTOR, plain sentence-transformers checkpoints, E5-instruct, Qwen3-Embedding. They answer nothing.

INSTRUCTOR (Su et al. 2023, section 2.1) encodes instruction and text as one sequence and takes the mean of the last hidden states
over the text's tokens: the instruction is attended to and not pooled. The poolings are

- text-mean:  the tokens that hold a character of the text, and the special tokens behind it; without an instruction all tokens
- mean:       all tokens, the instruction's too
- cls:        the first token
- last-token: the last token

and Dense and Normalize follow, where the checkpoint has them. text-mean is sentence-transformers' mean with
``include_prompt=False``, its other poolings are those with ``include_prompt=True``; vectors are equal to its own.

There is one exception. sentence-transformers (and INSTRUCTOR's code) find the instruction's end by tokenizing the instruction
once more without the text, and leave out as many tokens as it then has. Where the tokenizer joins characters across the border
that number is wrong: "Represent it: " alone ends in a token for the space, which in "Represent it: cats" belongs to the token
" cats" (byte-level and SentencePiece vocabularies), so the text's first token is lost from the mean. Here the whole is tokenized
once and its offsets tell which tokens hold a character of the text; a token that holds characters of both counts as the text's.
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
from transformers import AutoModel, AutoModelForTextEncoding
from transformers.models.auto import modeling_auto

from inbedder.backbones.hub import SETTINGS_FILE, Settings, hub_file
from inbedder.backbones.sentence_modules import SentenceModules, check_width, read_modules
from inbedder.backbones.transformer import check_layer, dtype_name, pad_id_of, position_limit, tapped
from inbedder.backbones.weights import Found, Loaded
from inbedder.errors import InputError, ModelError
from inbedder.options import ModelOptions, Sampling
from inbedder.pooling import POOLINGS, poolings_of, weighted_mean
from inbedder.prompting.batching import pad
from inbedder.prompting.templates import get_template, template_names
from inbedder.prompting.tokenization import PromptTokens, special_edges

if TYPE_CHECKING:
    from transformers import PretrainedConfig, PreTrainedModel, PreTrainedTokenizerBase


def refuse_answering(found: Found, options: ModelOptions) -> None:
    """Refuse a fine-tuned model whose settings do not say that it is an embedding model."""
    name = found.adapter or found.base
    if hub_file(name, SETTINGS_FILE, options.revision) and found.settings.backbone != "embedding":
        raise ModelError(f"{name} was fine-tuned to answer, not to embed beside an instruction. Leave the backbone out.")


def embedding_backbone(loaded: Loaded, options: ModelOptions) -> tuple[EmbeddingBackbone, Settings]:
    """Wrap a checkpoint of sentence-transformers, or any encoder, which then has text-mean and Normalize.

    Args:
        loaded: The loaded encoder.
        options: The user's options: whether the backbone was named, and the revision.

    Returns:
        The backbone, and the template and prompts that it wants.

    Raises:
        ModelError: When its modules are of an unknown form.
    """
    name, settings = loaded.adapter or loaded.base, loaded.settings
    modules = read_modules(name, options.revision, explicit=options.kind is not None)
    check_width(modules.after, loaded.model.config.get_text_config().hidden_size, name)
    if modules.lower:
        tokenizer = loaded.tokenizer.backend_tokenizer
        tokenizer.normalizer = NormalizerSequence([Lowercase(), *([tokenizer.normalizer] if tokenizer.normalizer else [])])
    wanted = replace(settings, template=settings.template or _template(modules), prompts=modules.prompts)
    return EmbeddingBackbone(loaded.model, loaded.tokenizer, modules), wanted


def encoder_class(config: PretrainedConfig) -> Any:
    """Choose the transformers class that loads a model without its head, and of an encoder-decoder only the encoder."""
    if config.model_type in modeling_auto.MODEL_FOR_TEXT_ENCODING_MAPPING_NAMES:
        return AutoModelForTextEncoding
    if getattr(config, "is_encoder_decoder", False):
        raise ModelError(f"transformers loads no encoder alone of {config.model_type!r}. Choose a T5 or an encoder-only model.")
    return AutoModel


def _template(modules: SentenceModules) -> str:
    """The named template that made the checkpoint's own prompt of a query; else the instruction stands directly in front."""
    prompt = modules.prompts.get("query", "")
    for name in template_names() if prompt else ():
        template = get_template(name)
        if any(template.fixed_parts) and template.instruction_of(prompt):
            return name
    return "instructor" if modules.pooling == "text-mean" else "prefix"


class EmbeddingBackbone:
    """A model without a head, its states pooled to one vector."""

    kind: str = "embedding"
    called = "An embedding model"
    continues_prompt = False
    bare = True
    mask_length = 0

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        modules: SentenceModules,
        padding_side: str = "right",
    ) -> None:
        """Wrap a loaded encoder or decoder without a head, and the modules that follow it; the padding side changes no vector."""
        self.model = model.eval()
        self.precision = dtype_name(model)
        self.tokenizer = tokenizer
        self.after = modules.after.to(model.device).eval().requires_grad_(False)
        self.poolings: tuple[str, ...] = tuple(sorted(poolings_of("embedding"), key=lambda pooling: pooling != modules.pooling))
        self.answers = False
        self.adapter: str | None = None
        self.weight_files: Any = None
        self.padding_side = padding_side
        self.pad_id = pad_id_of(tokenizer)
        self.num_layers: int = model.config.num_hidden_layers
        limits = (position_limit(model), modules.max_length or tokenizer.model_max_length)
        self.position_limit: int | None = min(limit for limit in limits if limit is not None)
        accepted = inspect.signature(model.forward).parameters
        self.settings = {"use_cache": False} if "use_cache" in accepted else {}
        self.takes_positions = "position_ids" in accepted and padding_side == "left"

    @cached_property
    def _edges(self) -> tuple[int, int]:
        """How many special tokens stand before and behind a prompt."""
        return special_edges(self.tokenizer("a").encodings[0])

    def _kept(self, prompt: PromptTokens, pooling: str) -> NDArray[np.int32]:
        """1 at the positions of a prompt that a pooling takes the mean of, else 0."""
        kept = np.zeros(max(1, len(prompt.ids)), dtype=np.int32)
        if pooling in ("cls", "last-token"):
            kept[0 if pooling == "cls" else -1] = 1
            return kept
        opening, closing = self._edges
        start, end = prompt.text
        first = 0 if prompt.instruction[0] == prompt.instruction[1] and start <= opening else start
        kept[first : max(end, opening if first == 0 else 0)] = 1
        kept[len(prompt.ids) - closing :] = 1
        return np.ones_like(kept) if pooling != "text-mean" or not kept.any() else kept

    @torch.inference_mode()
    def embed(
        self, prompts: Sequence[PromptTokens], pooling: str, layer: int, sampling: Sampling, filter_ids: Sequence[int] = ()
    ) -> Tensor:
        """Pool one batch in one pass, as ``Backbone.embed``; Dense and Normalize are applied.

        A prompt without any token counts as one padding token; a text-mean over nothing is a mean. A Dense was trained on the
        last layer, so with one ModelError refuses any other layer.
        """
        layer = check_layer(layer, self.num_layers)
        if layer != self.num_layers and list(self.after.parameters()):
            raise ModelError("This model's Dense was trained on its last layer. Leave layer=-1.")
        if filter_ids:
            raise InputError("filter_words leaves words out of an answer, and an embedding model gives none. Leave them out.")
        rows = [prompt.ids if len(prompt.ids) else np.array([self.pad_id], dtype=np.int32) for prompt in prompts]
        ids, attention = pad(rows, self.pad_id, self.padding_side)
        kept, _ = pad([self._kept(prompt, pooling) for prompt in prompts], 0, self.padding_side)
        inputs = {"input_ids": ids, "attention_mask": attention.long()}
        if self.takes_positions:
            inputs["position_ids"] = (attention.cumsum(1) - 1).clamp(min=0) + self._first_position
        device = self.model.device
        model, states = tapped(self.model, self.model, layer, self.num_layers)
        model(**{name: tensor.to(device) for name, tensor in inputs.items()}, **self.settings)
        vectors: Tensor = self.after(weighted_mean(states[0], POOLINGS[pooling].weigh(kept).to(device)))
        return vectors

    @cached_property
    def _first_position(self) -> int:
        """RoBERTa's positions start behind the padding index."""
        tables = (module for name, module in self.model.named_modules() if name.endswith("position_embeddings"))
        offset = getattr(next(tables, None), "padding_idx", None)
        return 0 if offset is None else int(offset) + 1

    def answer(self, prompts: Sequence[PromptTokens], sampling: Sampling) -> NoReturn:
        """Refuse with a ModelError: there is no answer head."""
        raise ModelError("An embedding model embeds and does not answer.")

    def read_vectors(self, vectors: Tensor, top: int) -> list[list[str]]:
        """Return m empty lists: there is no answer head."""
        return [[] for _ in vectors]
