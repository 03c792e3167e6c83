"""BERT, with and without its masked-LM head, read and computed without transformers, whose import takes as long as torch's.

Names of modules and weights, states and logits are those of transformers' ``BertForMaskedLM`` and ``BertModel``: adapters, hooks
and checkpoints fit both. The bundled models and their base encoders are read this way. Training, other models and other engines
use transformers.
"""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self

import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn import functional as F

from inbedder.backbones.file_checks import WEIGHTS
from inbedder.backbones.hub import ModelFiles, read_json_object
from inbedder.backbones.packed_attention import attend
from inbedder.models.bundled import is_bundled_base

_DEFAULTS: dict[str, Any] = {
    "attention_probs_dropout_prob": 0.1,
    "hidden_dropout_prob": 0.1,
    "initializer_range": 0.02,
    "use_cache": True,
    "output_hidden_states": False,
    "output_attentions": False,
    "return_dict": True,
    "chunk_size_feed_forward": 0,
    "is_encoder_decoder": False,
    "id2label": {0: "LABEL_0", 1: "LABEL_1"},
    "label2id": {"LABEL_0": 0, "LABEL_1": 1},
    "problem_type": None,
    "classifier_dropout": None,
    "is_decoder": False,
    "add_cross_attention": False,
    "bos_token_id": None,
    "eos_token_id": None,
    "tie_word_embeddings": True,
}
"""Values that transformers adds to a BERT's config.json; they are part of the hash of a model's settings (``revision``)."""


class BertConfig:
    """The values of config.json as attributes."""

    def __init__(self, path: Path) -> None:
        """Read a configuration."""
        vars(self).update(_DEFAULTS | read_json_object(path))

    def to_dict(self) -> dict[str, Any]:
        """Copy the values to a dictionary."""
        return deepcopy(vars(self))

    def get_text_config(self) -> BertConfig:
        """Return the configuration itself, which is that of texts."""
        return self


def can_read(base: ModelFiles) -> bool:
    """Return whether a base is a bundled BERT with the files, classes and activation that are read here."""
    if base.folder is None or not is_bundled_base(base.folder):
        return False
    config = read_json_object(base.folder / "config.json")
    return config.get("model_type") == "bert" and config.get("hidden_act") == "gelu" and (base.folder / WEIGHTS).is_file()


class _Embeddings(nn.Module):
    """Sum of the embeddings of words, positions and token types."""

    def __init__(self, config: Any) -> None:
        super().__init__()
        width = config.hidden_size
        self.word_embeddings, self.position_embeddings, self.token_type_embeddings = (
            nn.Embedding.from_pretrained(torch.empty(rows, width), freeze=False)  # torch's own constructor imports its compiler
            for rows in (config.vocab_size, config.max_position_embeddings, config.type_vocab_size)
        )
        self.LayerNorm = nn.LayerNorm(width, config.layer_norm_eps)

    def forward(self, input_ids: Tensor, token_type_ids: Tensor | None = None, position_ids: Tensor | None = None) -> Tensor:
        positions = torch.arange(input_ids.shape[1], device=input_ids.device)[None] if position_ids is None else position_ids
        token_types = torch.zeros_like(input_ids) if token_type_ids is None else token_type_ids
        words = self.word_embeddings(input_ids) + self.token_type_embeddings(token_types)
        output: Tensor = self.LayerNorm(words + self.position_embeddings(positions))
        return output


class _SelfAttention(nn.Module):
    """Attention of ``packed_attention``."""

    def __init__(self, config: Any, layer: int) -> None:
        super().__init__()
        self.layer_idx, self.width = layer, config.hidden_size // config.num_attention_heads
        self.query, self.key, self.value = (nn.Linear(config.hidden_size, config.hidden_size) for _ in range(3))

    def forward(self, states: Tensor, attention_mask: Tensor | None, **options: Any) -> Tensor:
        heads = (part(states).view(*states.shape[:2], -1, self.width) for part in (self.query, self.key, self.value))
        query, key, value = (head.transpose(1, 2) for head in heads)
        output, _ = attend(self, query, key, value, attention_mask, scaling=self.width**-0.5, **options)
        return output.reshape(states.shape)


class _Residual(nn.Module):
    """A linear layer whose output is added to an earlier state."""

    def __init__(self, width: int, config: Any) -> None:
        super().__init__()
        self.dense = nn.Linear(width, config.hidden_size)
        self.LayerNorm = nn.LayerNorm(config.hidden_size, config.layer_norm_eps)

    def forward(self, states: Tensor, earlier_states: Tensor) -> Tensor:
        output: Tensor = self.LayerNorm(self.dense(states) + earlier_states)
        return output


class _Intermediate(nn.Module):
    """The first half of a feed-forward layer."""

    def __init__(self, config: Any) -> None:
        super().__init__()
        self.dense, self.intermediate_act_fn = nn.Linear(config.hidden_size, config.intermediate_size), nn.GELU()

    def forward(self, states: Tensor) -> Tensor:
        output: Tensor = self.intermediate_act_fn(self.dense(states))
        return output


class _Block(nn.Module):
    """A transformer block."""

    def __init__(self, config: Any, layer: int) -> None:
        super().__init__()
        self.attention = nn.ModuleDict({"self": _SelfAttention(config, layer), "output": _Residual(config.hidden_size, config)})
        self.intermediate, self.output = _Intermediate(config), _Residual(config.intermediate_size, config)

    def forward(self, states: Tensor, attention_mask: Tensor | None, **options: Any) -> Tensor:
        attended = self.attention["output"](self.attention["self"](states, attention_mask, **options), states)
        output: Tensor = self.output(self.intermediate(attended), attended)
        return output


class _Bert(nn.Module):
    """What both models have in common: their configuration, and loading."""

    base_model_prefix = "bert"

    def __init__(self, config: Any) -> None:
        super().__init__()
        self.config = config

    @classmethod
    def from_pretrained(cls, folder: str, *, dtype: torch.dtype, **_options: Any) -> tuple[Self, dict[str, Any]]:
        """Load the weights in a folder; return the model and transformers' report of missing, unexpected and misfit weights."""
        with torch.device("meta"):
            model = cls(BertConfig(Path(folder) / "config.json"))
        tensors = load_file(Path(folder) / WEIGHTS)
        if not any(name.startswith("bert.") for name in tensors):
            tensors = {f"bert.{name}": tensor for name, tensor in tensors.items()}
        if model.base_model is model:
            tensors = {name.removeprefix("bert."): tensor for name, tensor in tensors.items()}
        weights = {name: weight for name, weight in model.state_dict().items() if ".decoder." not in name}
        missing = weights.keys() - tensors.keys()
        misfits = [(name, tensors[name].shape, weights[name].shape) for name in weights.keys() - missing]
        misfits = [misfit for misfit in misfits if misfit[1] != misfit[2]]
        if not misfits:
            values = {name: tensors[name].to(dtype) for name in weights.keys() - missing}
            values |= {name: torch.zeros(weights[name].shape, dtype=dtype) for name in missing}
            model.load_state_dict(values, strict=False, assign=True)
            model.tie_weights()
        unexpected = tensors.keys() - weights.keys()
        return model, {"missing_keys": missing, "unexpected_keys": unexpected, "mismatched_keys": misfits}

    def tie_weights(self) -> None:
        """Let the head share the weights of the word embeddings."""

    @property
    def base_model(self) -> Any:
        """The model without its head."""
        return self

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the weights."""
        return self.get_input_embeddings().weight.dtype

    @property
    def device(self) -> torch.device:
        """The device of the weights."""
        return self.get_input_embeddings().weight.device

    def get_input_embeddings(self) -> nn.Embedding:
        """Return the word embeddings."""
        words: nn.Embedding = self.base_model.embeddings.word_embeddings
        return words

    def get_output_embeddings(self) -> Any:
        """Return the last linear layer of the head, or None."""
        return None


class BertModel(_Bert):
    """BERT without its head and pooler; ``model(...)[0]`` are the states of the last layer."""

    def __init__(self, config: Any) -> None:
        """Build a model without values."""
        super().__init__(config)
        self.embeddings = _Embeddings(config)
        blocks = nn.ModuleList(_Block(config, layer) for layer in range(config.num_hidden_layers))
        self.encoder = nn.ModuleDict({"layer": blocks})

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
        **options: Any,
    ) -> tuple[Tensor]:
        """Compute the states of the last layer, shape (batch, positions, d); ``options`` are those of ``attend``."""
        if attention_mask is not None and attention_mask.ndim == 2:
            attention_mask = attention_mask.bool()[:, None, None]
        states = self.embeddings(input_ids, token_type_ids, position_ids)
        for block in self.encoder["layer"].children():
            states = block(states, attention_mask, **options)
        return (states,)


class _Head(nn.Module):
    """The head, whose weights are the word embeddings."""

    def __init__(self, config: Any) -> None:
        super().__init__()
        width = config.hidden_size
        layers = {"dense": nn.Linear(width, width), "LayerNorm": nn.LayerNorm(width, config.layer_norm_eps)}
        self.transform, self.decoder = nn.ModuleDict(layers), nn.Linear(width, config.vocab_size)
        self.bias = self.decoder.bias

    def forward(self, states: Tensor) -> Tensor:
        states = self.transform["LayerNorm"](F.gelu(self.transform["dense"](states)))
        output: Tensor = self.decoder(states)
        return output


class BertForMaskedLM(_Bert):
    """BERT with its masked-LM head; ``model(...)`` has ``logits``, shape (batch, positions, vocabulary)."""

    def __init__(self, config: Any) -> None:
        """Build a model without values."""
        super().__init__(config)
        self.bert, self.cls = BertModel(config), nn.ModuleDict({"predictions": _Head(config)})

    @property
    def base_model(self) -> Any:
        """The model without its head."""
        return self.bert

    def tie_weights(self) -> None:
        """Let the head share the weights of the word embeddings."""
        head = self.get_output_embeddings()
        head.weight, head.bias = self.get_input_embeddings().weight, self.cls["predictions"].bias

    def get_output_embeddings(self) -> Any:
        """Return the last linear layer of the head."""
        return self.cls["predictions"].decoder

    def forward(self, **inputs: Any) -> Any:
        """Compute the scores of words; the inputs are those of BERT without its head."""
        return SimpleNamespace(logits=self.cls["predictions"](self.bert(**inputs)[0]))
