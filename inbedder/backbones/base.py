"""What every backbone offers, and how a checkpoint becomes one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from inbedder.errors import InputError, ModelError
from inbedder.pooling import parse_pooling
from inbedder.tokenization import PromptTokens

if TYPE_CHECKING:
    from transformers import GenerationConfig, PretrainedConfig, PreTrainedModel, PreTrainedTokenizerBase


@dataclass(frozen=True)
class Sampling:
    """How answers are decoded."""

    max_new_tokens: int = 3
    """Longest answer in tokens."""
    n: int = 1
    """Answers a text."""
    temperature: float = 0.0
    """0 is greedy."""
    top_p: float = 1.0
    """Nucleus."""
    seed: int = 0
    """Seed of the drawn answers."""

    def __post_init__(self) -> None:
        if self.n < 1 or self.temperature < 0 or not 0 < self.top_p <= 1:
            raise InputError("Answers need n >= 1, temperature >= 0 and 0 < top_p <= 1.")


class Model(Protocol):
    """What is known of every language model, wherever its weights are."""

    @property
    def config(self) -> PretrainedConfig:
        """Its configuration."""
        ...

    @property
    def dtype(self) -> torch.dtype:
        """Of its weights."""
        ...

    @property
    def device(self) -> torch.device:
        """Where it computes."""
        ...


@runtime_checkable
class Backbone(Protocol):
    """A language model that embeds prompts and answers them."""

    kind: str
    """"causal", "masked", "seq2seq" or "instructor"."""
    poolings: tuple[str, ...]
    """The poolings of its hidden states, its default first; with answers it also has "re-enc"."""
    answers: bool
    """Whether its language-model head was trained; a random one says nothing."""
    adapter: str | None
    """Folder of the adapter that the weights were merged with, or None."""
    num_layers: int
    """L; layers are 0 (token embeddings) .. L (after the final norm)."""
    mask_length: int
    """How many mask tokens follow a prompt; 0 for other than masked LMs."""
    position_limit: int | None
    """Most positions that the model can take, or None."""
    precision: str
    """What it computes in, as "float32", and all else that decides a vector's last digits."""
    model: Model
    """The language model, or what is known of it where an engine holds it."""
    tokenizer: PreTrainedTokenizerBase
    """The model's own."""

    def embed(
        self, prompts: Sequence[PromptTokens], pooling: str, layer: int, sampling: Sampling, filter_ids: Sequence[int] = ()
    ) -> Tensor:
        """Pool the states of one batch: float32, shape (batch, d), on the model's device."""
        ...

    def answer(self, prompts: Sequence[PromptTokens], sampling: Sampling) -> list[list[str]]:
        """Answer one batch of prompts, ``sampling.n`` times each."""
        ...

    def read_vectors(self, vectors: Tensor, top: int) -> list[list[str]]:
        """Apply the answer head to vectors of the last layer, shape (m, d): the ``top`` likeliest tokens of each."""
        ...


def model_kind(config: PretrainedConfig) -> str:
    """Tell the kind of a model from its configuration, never from its name.

    Args:
        config: The checkpoint's configuration.

    Returns:
        "causal", "masked" or "seq2seq".

    Raises:
        ModelError: When the architecture has no language-model head in transformers.
    """
    from transformers.models.auto import modeling_auto

    architecture = (getattr(config, "architectures", None) or [""])[0]
    if getattr(config, "is_encoder_decoder", False):
        return "seq2seq"
    if architecture.endswith("ForMaskedLM"):
        return "masked"
    if architecture.endswith(("ForCausalLM", "LMHeadModel")):
        return "causal"
    if config.model_type in modeling_auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES:
        return "masked"
    if config.model_type in modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES:
        return "causal"
    raise ModelError(
        f"{config.model_type!r} ({architecture or 'no architecture named'}) is no causal, masked or encoder-decoder language "
        "model. Choose a model with a language-model head, or name the kind: InBedder(..., backbone='masked' or 'instructor')."
    )


def encoder_class(config: PretrainedConfig) -> Any:
    """The class that loads a model without its head, and of an encoder-decoder the encoder alone.

    Args:
        config: The checkpoint's configuration.

    Returns:
        A class of transformers with ``from_pretrained``.

    Raises:
        ModelError: When it is an encoder-decoder whose encoder transformers does not load alone.
    """
    from transformers import AutoModel, AutoModelForTextEncoding
    from transformers.models.auto import modeling_auto

    if config.model_type in modeling_auto.MODEL_FOR_TEXT_ENCODING_MAPPING_NAMES:
        return AutoModelForTextEncoding
    if getattr(config, "is_encoder_decoder", False):
        raise ModelError(f"transformers loads no encoder alone of {config.model_type!r}. Choose a T5 or an encoder-only model.")
    return AutoModel


def blocks_of(body: nn.Module, count: int) -> nn.ModuleList:
    """The transformer blocks of a model without its head.

    Args:
        body: The model.
        count: How many blocks the configuration promises.

    Returns:
        The blocks in order.

    Raises:
        ModelError: When no list of that many blocks is found.
    """
    for module in body.modules():
        if isinstance(module, nn.ModuleList) and len(module) == count:
            return module
    raise ModelError(f"{type(body).__name__} keeps its {count} blocks in no list; only its last layer can be used.")


def check_layer(layer: int, num_layers: int) -> int:
    """Count a negative layer from the end.

    Args:
        layer: -1 - num_layers .. num_layers.
        num_layers: L.

    Returns:
        0 .. num_layers.

    Raises:
        ModelError: When the model has no such layer.
    """
    if not -num_layers - 1 <= layer <= num_layers:
        raise ModelError(f"No layer {layer}: the model has layers 0 (embeddings) to {num_layers}, or -1 for the last.")
    return layer if layer >= 0 else num_layers + 1 + layer


def check_pooling(backbone: Backbone, pooling: str | None, layer: int) -> tuple[str, int]:
    """The pooling and the layer, the authors' names understood.

    Args:
        backbone: The model.
        pooling: One of its poolings, an old name such as ``fst_gen_layer_32``, or None for its default.
        layer: 0 .. L, or negative from the end.

    Returns:
        The pooling, and the layer as asked or as named.

    Raises:
        ModelError: When the model has no such pooling or layer.
    """
    asked, named_layer = pooling or backbone.poolings[0], None
    if asked not in backbone.poolings:
        asked, named_layer = parse_pooling(asked)
    offered = (*backbone.poolings, "re-enc") if backbone.answers else backbone.poolings
    if asked not in offered:
        model = "An embedding model" if backbone.kind == "instructor" else f"A {backbone.kind} LM"
        raise ModelError(f"{model} has no pooling {asked!r}. Choose one of: {', '.join(offered)}.")
    layer = layer if named_layer is None else named_layer
    check_layer(layer, getattr(backbone, "encoder_layers", backbone.num_layers) if asked == "avg-ppt" else backbone.num_layers)
    return asked, layer


def check_answers(backbone: Backbone, name: str) -> None:
    """Refuse to answer with a model that cannot.

    Args:
        backbone: The model.
        name: What the user calls it.

    Raises:
        ModelError: When it has no language-model head, or one that was never trained.
    """
    if backbone.kind == "instructor":
        raise ModelError(
            f"{name} is an embedding model: it embeds and does not answer. "
            "To answer choose a causal, masked or encoder-decoder LM, such as mini."
        )
    if not backbone.answers:
        raise ModelError(
            f"{name} brings no trained language-model head, so its answers would be random. "
            "It can embed and cluster; to answer choose a language model, or fine-tune this one."
        )


@contextmanager
def tapped(body: nn.Module, layer: int, num_layers: int) -> Iterator[list[Tensor]]:
    """Collect one layer's states at every forward pass of ``body``, and nothing else.

    Hidden state i < L is the input of block i; hidden state L is the output of the body, after the final norm. These are
    transformers' ``hidden_states``.

    Args:
        body: The model without its head.
        layer: 0 .. L.
        num_layers: L.

    Yields:
        A list that grows by one tensor, shape (batch, positions, d), at every pass.
    """
    states: list[Tensor] = []

    def keep_output(_module: nn.Module, _args: Any, output: Any) -> None:
        states.append(output[0])

    def keep_input(_module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        states.append(args[0] if args else kwargs["hidden_states"])

    if layer == num_layers:
        handle = body.register_forward_hook(keep_output)
    else:
        handle = blocks_of(body, num_layers)[layer].register_forward_pre_hook(keep_input, with_kwargs=True)
    try:
        yield states
    finally:
        handle.remove()


def special_ids(tokenizer: PreTrainedTokenizerBase, filter_ids: Sequence[int], device: torch.device) -> Tensor:
    """Ids whose hidden states are left out: special tokens and the words of section 4.3."""
    return torch.tensor(sorted({*tokenizer.all_special_ids, *filter_ids}), dtype=torch.long, device=device)


def position_limit(model: PreTrainedModel) -> int | None:
    """Most positions a model can take: RoBERTa's start behind the padding index, so it has fewer than its table's rows."""
    limit = getattr(model.config.get_text_config(), "max_position_embeddings", None)
    if limit is None:
        return None
    tables = [module for name, module in model.named_modules() if name.endswith("position_embeddings")]
    offset = tables[0].padding_idx if tables and isinstance(tables[0], nn.Embedding) else None
    return int(limit) if offset is None else int(limit) - int(offset) - 1


def pad_id_of(tokenizer: PreTrainedTokenizerBase) -> int:
    """The id to pad with; padding is masked, so any id serves where the tokenizer has none."""
    for one in (tokenizer.pad_token_id, tokenizer.eos_token_id):
        if one is not None:
            return int(one)
    return 0


def stop_ids(generation: GenerationConfig | None, tokenizer: PreTrainedTokenizerBase) -> list[int]:
    """Ids of the tokens that end an answer: those of the generation settings, else also the tokenizer's."""
    configured = getattr(generation, "eos_token_id", None)
    ids = configured if isinstance(configured, list) else [configured, tokenizer.eos_token_id]
    return sorted({one for one in ids if one is not None})


def dtype_name(model: PreTrainedModel) -> str:
    """The dtype of a model's weights, such as "float32"."""
    return str(model.dtype).removeprefix("torch.")


def likeliest_words(logits: Tensor, tokenizer: PreTrainedTokenizerBase, top: int) -> list[list[str]]:
    """The likeliest tokens, special tokens left out.

    Args:
        logits: Shape (m, vocabulary).
        tokenizer: The model's.
        top: How many tokens a row.

    Returns:
        m lists of decoded tokens.
    """
    logits = logits.float()
    logits[:, [one for one in tokenizer.all_special_ids if one < logits.shape[1]]] = float("-inf")
    best = logits.topk(min(top, logits.shape[1])).indices.tolist()
    return [tokenizer.batch_decode([[one] for one in row]) for row in best]


def distinct_words(tokens: Sequence[str], top: int) -> list[str]:
    """The first tokens that are words, each once.

    Args:
        tokens: Decoded tokens.
        top: At most so many words.

    Returns:
        Words in lower case.
    """
    words: list[str] = []
    for token in tokens:
        word = token.strip().lower()
        if len(word) > 1 and word.isalnum() and word not in words:
            words.append(word)
    return words[:top]


def body_of(model: PreTrainedModel) -> nn.Module:
    """The model without its language-model head."""
    body = model.base_model
    assert isinstance(body, nn.Module)
    return body
