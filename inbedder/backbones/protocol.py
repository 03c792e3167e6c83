"""The protocol of backbones, and checks of poolings and answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

import torch
from torch import Tensor

from inbedder.arguments import check_integer
from inbedder.backbones.confidence import ScoredAnswer
from inbedder.backbones.transformer import check_layer
from inbedder.errors import ModelError
from inbedder.options import Sampling
from inbedder.prompting.tokenization import PromptTokens
from inbedder.vectors.pooling import POOLINGS, parse_pooling

if TYPE_CHECKING:
    from transformers import PretrainedConfig, PreTrainedTokenizerBase


class Model(Protocol):
    """A language model, in this process or in an engine."""

    @property
    def config(self) -> PretrainedConfig:
        """The model's configuration."""
        ...

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the weights."""
        ...

    @property
    def device(self) -> torch.device:
        """The model's device."""
        ...


AnsweredVector = tuple[Tensor, list[ScoredAnswer]]
"""A prompt's vector, as from ``embed``, and its answers, as from ``answer``."""


class JointReading(NamedTuple):
    """How prompts are pooled and answered together."""

    pooling: str
    """As for ``Backbone.embed``."""
    layer: int
    """As for ``Backbone.embed``."""
    sampling: Sampling
    """As for ``Backbone.embed``."""
    answering: Sampling
    """As ``sampling`` of ``Backbone.answer``."""


@runtime_checkable
class Backbone(Protocol):
    """A language model that embeds prompts and answers them."""

    kind: str
    """"causal", "masked", "seq2seq" or "embedding"."""
    display_name: str
    """The model's name in messages, such as "A causal LM"."""
    continues_prompt: bool
    """Whether the answer takes positions after the prompt's."""
    without_template: bool
    """Whether a text without an instruction is the whole prompt."""
    poolings: tuple[str, ...]
    """The poolings of its hidden states, the default first; a model with answers also has "re-enc"."""
    answers: bool
    """Whether its language-model head was trained and runs; a random head gives no answers."""
    reads_padding: bool
    """Whether padding changes a vector, so that prompts of one length are embedded at a time."""
    runs_side_by_side: bool
    """Whether several threads that run passes at the same time on a CPU are faster than passes one by one."""
    adapter: str | None
    """Folder of the adapter, or None."""
    weight_files: Any
    """The ``WeightFiles`` that it was loaded from (see ``revision``); None if it was not loaded by name."""
    num_layers: int
    """L; layers are 0 (token embeddings) .. L (after the final norm)."""
    mask_length: int
    """Number of mask tokens after a prompt; 0 except for masked LMs."""
    position_limit: int | None
    """Maximum number of positions, or None."""
    compute_dtype: str
    """The dtype, such as "float32", and everything else that changes a vector's last digits."""
    model: Model
    """The language model, or a handle if an engine holds it."""
    tokenizer: PreTrainedTokenizerBase
    """The model's tokenizer."""

    def embed(
        self, prompts: Sequence[PromptTokens], pooling: str, layer: int, sampling: Sampling, filter_ids: Sequence[int] = ()
    ) -> Tensor:
        """Pool the states of one batch of prompts.

        Args:
            prompts: Tokenized prompts, with mask tokens for a masked LM.
            pooling: One of ``poolings``.
            layer: 0 .. L, or negative from the end; a layer of a seq2seq model's encoder for avg-ppt, else of its decoder.
            sampling: ``max_new_tokens`` of a generated answer, which is sampled if the temperature is above 0; masked and
                embedding models ignore it.
            filter_ids: Ids of words whose states are left out like those of special tokens (paper, section 4.3); a masked LM
                leaves a mask out of avg-gen if its head predicts one of them.

        Returns:
            float32, shape (batch, d), on the model's device.

        Raises:
            ModelError: If the model does not have the layer, or cannot return its states.
            InputError: If ``filter_ids`` are given to an embedding model, which gives no answer.
        """
        ...

    def answer(self, prompts: Sequence[PromptTokens], sampling: Sampling) -> list[list[ScoredAnswer]]:
        """Answer one batch of prompts.

        Args:
            prompts: Tokenized prompts, with mask tokens for a masked LM.
            sampling: Length, number, temperature, top_p and seed of the answers. Sampled answers depend on the seed and the
                prompt's own tokens, not on the batch.

        Returns:
            ``sampling.n`` answers per prompt, each with its confidence.

        Raises:
            ModelError: If the model has no answer head.
        """
        ...

    def embed_and_answer(
        self, prompts: Sequence[PromptTokens], reading: JointReading, **cached_texts: Any
    ) -> list[AnsweredVector]:
        """Pool and answer one batch of prompts, in one pass where both read the same states.

        Args:
            prompts: Tokenized prompts, with mask tokens for a masked LM.
            reading: How to pool and how to answer.
            **cached_texts: Keyword arguments of ``embed`` and ``answer`` of causal models that cache texts.

        Returns:
            A vector with its answers per prompt.
        """
        ...

    def read_vectors(self, vectors: Tensor, top: int) -> list[list[str]]:
        """Apply the answer head to vectors of the last layer.

        Args:
            vectors: float, shape (m, d).
            top: Number of tokens per vector.

        Returns:
            The likeliest tokens of each vector without special tokens; m empty lists if the model has no answer head.
        """
        ...


def check_pooling(backbone: Backbone, pooling: str | None, layer: int) -> tuple[str, int]:
    """Resolve a pooling and its layer, by this project's names or the authors', such as ``fst_gen_layer_32``.

    Args:
        backbone: The model.
        pooling: One of its poolings, one of the authors' names, or None for its default.
        layer: 0 .. L, or negative from the end.

    Returns:
        The pooling, and the layer: that of the authors' name, else ``layer``.

    Raises:
        ModelError: If the model does not have the pooling or the layer.
    """
    layer = check_integer("layer", layer)
    name, named_layer = pooling or backbone.poolings[0], None
    if name not in backbone.poolings:
        name, named_layer = parse_pooling(name)
    choices = (*backbone.poolings, "re-enc") if backbone.answers else backbone.poolings
    if name not in choices:
        raise ModelError(f"{backbone.display_name} has no pooling {name!r}. Choose one of: {', '.join(choices)}.")
    layer = layer if named_layer is None else named_layer
    check_layer(layer, getattr(backbone, "encoder_layers", backbone.num_layers) if name == "avg-ppt" else backbone.num_layers)
    return name, layer


def needs_decoding(backbone: Backbone, pooling: str) -> bool:
    """Return whether a pooling needs an answer generated token by token, which can be sampled."""
    return POOLINGS[pooling].reads_answer and backbone.kind in ("causal", "seq2seq")


def check_answers(backbone: Backbone, name: str) -> None:
    """Raise a ModelError for a model without a trained language-model head, which messages call ``name``."""
    if backbone.without_template:
        raise ModelError(
            f"{name} is an embedding model: it embeds and does not answer. "
            "For answers choose a causal, masked or encoder-decoder LM, such as mini."
        )
    if not backbone.answers:
        raise ModelError(
            f"{name} has no trained language-model head, so its answers would be random, or its class cannot generate. "
            "It can embed and cluster. For answers choose a language model, or fine-tune this one."
        )
