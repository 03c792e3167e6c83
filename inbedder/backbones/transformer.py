"""What is the same in every transformer of transformers: its blocks, its layers' states, its special ids, its words."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import Tensor, nn

from inbedder.errors import ModelError

if TYPE_CHECKING:
    from transformers import GenerationConfig, PreTrainedModel, PreTrainedTokenizerBase

M = TypeVar("M", bound=nn.Module)
_TABLES = ("_hooks", "_hooks_with_kwargs", "_hooks_always_called")


def blocks_of(body: nn.Module, count: int) -> nn.ModuleList:
    """Find the ``count`` transformer blocks of a model without its head, in order; refuse a model where there is no such list."""
    for module in body.modules():
        if isinstance(module, nn.ModuleList) and len(module) == count:
            return module
    raise ModelError(f"{type(body).__name__} keeps its {count} blocks in no list; only its last layer can be used.")


def check_layer(layer: int, num_layers: int) -> int:
    """Count a negative layer from the end: 0 .. num_layers; refuse one that the model does not have."""
    if not -num_layers - 1 <= layer <= num_layers:
        raise ModelError(f"No layer {layer}: the model has layers 0 (embeddings) to {num_layers}, or -1 for the last.")
    return layer if layer >= 0 else num_layers + 1 + layer


def tapped(model: M, body: nn.Module, layer: int, num_layers: int) -> tuple[M, list[Tensor]]:
    """A model of one's own that leaves one layer's states behind at every forward pass, and nothing else.

    Hidden state i < L is the input of block i; hidden state L is the output of the body, after the final norm. These are
    transformers' ``hidden_states``.

    Args:
        model: The model, or its body itself.
        body: The model without its head.
        layer: 0 .. L.
        num_layers: L.

    Returns:
        A copy that shares the model's weights, and a list that grows by one tensor, shape (batch, positions, d), at every pass
        of its body.
    """
    states: list[Tensor] = []

    def keep_output(_module: nn.Module, _args: Any, output: Any) -> None:
        states.append(output[0])

    def keep_input(_module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        states.append(args[0] if args else kwargs["hidden_states"])

    if layer == num_layers:
        twin, place = own_copy(model, body)
        place.register_forward_hook(keep_output)
    else:
        twin, place = own_copy(model, blocks_of(body, num_layers)[layer])
        place.register_forward_pre_hook(keep_input, with_kwargs=True)
    return twin, states


def own_copy(model: M, place: nn.Module) -> tuple[M, nn.Module]:
    """A copy of a model for one pass, whose hooks no other pass sees: models are shared by threads.

    The modules from the model down to the place are copied; all weights and all other modules are the same objects.

    Args:
        model: Any model.
        place: The model, or one of its modules.

    Returns:
        The copy of the model, and in it the copy of the place.
    """
    twin = _shallow_copy(model)
    name = next(name for name, module in model.named_modules() if module is place)
    copied: nn.Module = twin
    for part in name.split(".") if name else ():
        copied._modules[part] = _shallow_copy(copied.get_submodule(part))
        copied = copied.get_submodule(part)
    return twin, copied


def _shallow_copy(module: M) -> M:
    own = copy(module)
    for table in ("_modules", *(name for name in vars(own) if name.startswith("_forward_") and name.endswith(_TABLES))):
        setattr(own, table, copy(getattr(own, table)))
    vars(own).pop("forward", None)  # accelerate's is bound to the module that is copied
    return own


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
    for token_id in (tokenizer.pad_token_id, tokenizer.eos_token_id):
        if token_id is not None:
            return int(token_id)
    return 0


def stop_ids(generation: GenerationConfig | None, tokenizer: PreTrainedTokenizerBase) -> list[int]:
    """Ids of the tokens that end an answer: those of the generation settings, else also the tokenizer's."""
    configured = getattr(generation, "eos_token_id", None)
    ids = configured if isinstance(configured, list) else [configured, tokenizer.eos_token_id]
    return sorted({token_id for token_id in ids if token_id is not None})


def dtype_name(model: PreTrainedModel) -> str:
    """The dtype of a model's weights, such as "float32"."""
    return str(model.dtype).removeprefix("torch.")


def likeliest_words(logits: Tensor, tokenizer: PreTrainedTokenizerBase, top: int) -> list[list[str]]:
    """Decode the ``top`` likeliest tokens of each row of logits, shape (m, vocabulary), without special tokens."""
    logits = logits.float()
    logits[:, [token_id for token_id in tokenizer.all_special_ids if token_id < logits.shape[1]]] = float("-inf")
    best = logits.topk(min(top, logits.shape[1])).indices.tolist()
    return [tokenizer.batch_decode([[token_id] for token_id in row]) for row in best]


def distinct_words(tokens: Sequence[str], top: int) -> list[str]:
    """Take the first ``top`` decoded tokens that are words, each once, in lower case."""
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
