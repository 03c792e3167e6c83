"""Functions for every model of transformers: blocks, hidden states of a layer, special ids, likeliest tokens."""

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
_HOOK_SUFFIXES = ("_hooks", "_hooks_with_kwargs", "_hooks_always_called")


def find_blocks(body: nn.Module, count: int) -> nn.ModuleList:
    """Find the ``count`` transformer blocks of a model without its head, in order; reject a model without such a list."""
    for module in body.modules():
        if isinstance(module, nn.ModuleList) and len(module) == count:
            return module
    raise ModelError(f"{type(body).__name__} does not list its {count} blocks. Only its last layer can be used: layer=-1.")


def check_layer(layer: int, num_layers: int) -> int:
    """Resolve a layer, negative from the end, to 0 .. num_layers; reject one that the model does not have."""
    if not -num_layers - 1 <= layer <= num_layers:
        raise ModelError(f"There is no layer {layer}. The model has layers 0 (embeddings) to {num_layers}; -1 is the last.")
    return layer if layer >= 0 else num_layers + 1 + layer


def capture_layer(model: M, body: nn.Module, layer: int, num_layers: int) -> tuple[M, list[Tensor]]:
    """Copy a model so that every forward pass captures the states of one layer, and no others.

    Hidden state i < L is the input of block i; hidden state L is the output of the body, after the final norm. These are
    transformers' ``hidden_states``.

    Args:
        model: The model, or its body itself.
        body: The model without its head.
        layer: 0 .. L.
        num_layers: L.

    Returns:
        A copy that shares the model's weights, and a list to which every pass of its body appends one tensor, shape (batch,
        positions, d).
    """
    states: list[Tensor] = []

    def keep_output(_module: nn.Module, _args: Any, output: Any) -> None:
        states.append(output[0])

    def keep_input(_module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        states.append(args[0] if args else kwargs["hidden_states"])

    if layer == num_layers:
        model_copy, submodule = copy_down_to(model, body)
        submodule.register_forward_hook(keep_output)
    else:
        model_copy, submodule = copy_down_to(model, find_blocks(body, num_layers)[layer])
        submodule.register_forward_pre_hook(keep_input, with_kwargs=True)
    return model_copy, states


def copy_down_to(model: M, submodule: nn.Module) -> tuple[M, nn.Module]:
    """Copy a model down to one of its modules, so that hooks on the copy stay private: threads share models.

    Only the modules on the path are copied. All weights and all other modules are the same objects.

    Args:
        model: Any model.
        submodule: The model, or one of its modules.

    Returns:
        The copy of the model, and the copy of the submodule in it.
    """
    model_copy = _copy_module(model)
    name = next(name for name, module in model.named_modules() if module is submodule)
    submodule_copy: nn.Module = model_copy
    for name_part in name.split(".") if name else ():
        submodule_copy._modules[name_part] = _copy_module(submodule_copy.get_submodule(name_part))
        submodule_copy = submodule_copy.get_submodule(name_part)
    return model_copy, submodule_copy


def _copy_module(module: M) -> M:
    module_copy = copy(module)
    for table in (
        "_modules",
        *(name for name in vars(module_copy) if name.startswith("_forward_") and name.endswith(_HOOK_SUFFIXES)),
    ):
        setattr(module_copy, table, copy(getattr(module_copy, table)))
    vars(module_copy).pop("forward", None)  # accelerate binds it to the original module
    return module_copy


def list_special_ids(tokenizer: PreTrainedTokenizerBase, filter_ids: Sequence[int], device: torch.device) -> Tensor:
    """List the ids whose hidden states are left out: special tokens and the words of the paper's section 4.3."""
    return torch.tensor(sorted({*tokenizer.all_special_ids, *filter_ids}), dtype=torch.long, device=device)


def find_position_limit(model: PreTrainedModel) -> int | None:
    """Find a model's maximum number of positions. RoBERTa's start after the padding index, so its table has more rows."""
    limit = getattr(model.config.get_text_config(), "max_position_embeddings", None)
    if limit is None or limit < 1:  # XLNet's -1 means no limit
        return None
    tables = [module for name, module in model.named_modules() if name.endswith("position_embeddings")]
    offset = tables[0].padding_idx if tables and isinstance(tables[0], nn.Embedding) else None
    return int(limit) if offset is None else int(limit) - int(offset) - 1


def get_pad_id(tokenizer: PreTrainedTokenizerBase) -> int:
    """Return the id to pad with; padding is masked, so any id serves if the tokenizer has none."""
    for token_id in (tokenizer.pad_token_id, tokenizer.eos_token_id):
        if token_id is not None:
            return int(token_id)
    return 0


def list_stop_ids(generation: GenerationConfig | None, tokenizer: PreTrainedTokenizerBase) -> list[int]:
    """List the ids of the tokens that end an answer: those of the generation settings, or its one and the tokenizer's."""
    configured = getattr(generation, "eos_token_id", None)
    ids = configured if isinstance(configured, list) else [configured, tokenizer.eos_token_id]
    return sorted({token_id for token_id in ids if token_id is not None})


def get_dtype_name(model: PreTrainedModel) -> str:
    """Return the dtype of a model's weights, such as "float32"."""
    return str(model.dtype).removeprefix("torch.")


def decode_top_tokens(logits: Tensor, tokenizer: PreTrainedTokenizerBase, top: int) -> list[list[str]]:
    """Decode the ``top`` likeliest tokens of each row of logits, shape (m, vocabulary), without special tokens."""
    logits = logits.float()
    logits[:, [token_id for token_id in tokenizer.all_special_ids if token_id < logits.shape[1]]] = float("-inf")
    best = logits.topk(min(top, logits.shape[1])).indices.tolist()
    return [tokenizer.batch_decode([[token_id] for token_id in row]) for row in best]


def select_distinct_words(tokens: Sequence[str], top: int) -> list[str]:
    """Select the first ``top`` distinct words among decoded tokens, in lower case."""
    words: list[str] = []
    for token in tokens:
        word = token.strip().lower()
        if len(word) > 1 and word.isalnum() and word not in words:
            words.append(word)
    return words[:top]


def get_body(model: PreTrainedModel) -> nn.Module:
    """Return the model without its language-model head."""
    body = model.base_model
    assert isinstance(body, nn.Module)
    return body
