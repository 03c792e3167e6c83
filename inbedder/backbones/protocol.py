"""What every backbone offers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import torch
from torch import Tensor

from inbedder.arguments import whole_number
from inbedder.backbones.transformer import check_layer
from inbedder.errors import ModelError
from inbedder.options import Sampling
from inbedder.pooling import POOLINGS, parse_pooling
from inbedder.prompting.tokenization import PromptTokens

if TYPE_CHECKING:
    from transformers import PretrainedConfig, PreTrainedTokenizerBase


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
    """"causal", "masked", "seq2seq" or "embedding"."""
    called: str
    """What messages call such a model."""
    continues_prompt: bool
    """Whether the answer takes positions behind the prompt's."""
    bare: bool
    """Whether, without an instruction, the text stands alone instead of in a template."""
    poolings: tuple[str, ...]
    """The poolings of its hidden states, its default first; with answers it also has "re-enc"."""
    answers: bool
    """Whether its language-model head was trained; a random one says nothing."""
    adapter: str | None
    """Folder of the adapter that the weights were merged with, or None."""
    weight_files: Any
    """The ``WeightFiles`` that it was loaded from (see ``revision``); None where it was made otherwise."""
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
        """Pool the states of one batch of prompts.

        Args:
            prompts: Tokenized prompts, mask tokens included where the model fills masks.
            pooling: One of ``poolings``.
            layer: 0 .. L, or negative from the end; of a seq2seq model's encoder for avg-ppt, else of its decoder.
            sampling: ``max_new_tokens`` of an answer that is decoded, sampled where the temperature is above 0; masked and
                embedding models ignore it.
            filter_ids: Ids of words whose states are left out as those of special tokens are (paper, section 4.3); a masked LM
                leaves a mask out of avg-gen where its head predicts one of them.

        Returns:
            float32, shape (batch, d), on the model's device.

        Raises:
            ModelError: When the model has no such layer, or cannot give its states.
            InputError: When ``filter_ids`` are given to an embedding model, which gives no answer.
        """
        ...

    def answer(self, prompts: Sequence[PromptTokens], sampling: Sampling) -> list[list[str]]:
        """Answer one batch of prompts.

        Args:
            prompts: As for ``embed``.
            sampling: Length, number, temperature, top_p and seed of the answers. A prompt's draws depend on the seed and its own
                tokens, not on the batch.

        Returns:
            ``sampling.n`` answers per prompt.

        Raises:
            ModelError: When the model has no answer head.
        """
        ...

    def read_vectors(self, vectors: Tensor, top: int) -> list[list[str]]:
        """Apply the answer head to vectors of the last layer.

        Args:
            vectors: float, shape (m, d).
            top: Number of tokens per vector.

        Returns:
            The likeliest tokens of each vector without special tokens; m empty lists where there is no answer head to read with.
        """
        ...


def check_pooling(backbone: Backbone, pooling: str | None, layer: int) -> tuple[str, int]:
    """Resolve a pooling and its layer; the authors' names, such as ``fst_gen_layer_32``, are understood.

    Args:
        backbone: The model.
        pooling: One of its poolings, an old name, or None for its default.
        layer: 0 .. L, or negative from the end.

    Returns:
        The pooling, and the layer: the one that an old name states, else ``layer``.

    Raises:
        ModelError: When the model has no such pooling or layer.
    """
    layer = whole_number("layer", layer)
    chosen, named_layer = pooling or backbone.poolings[0], None
    if chosen not in backbone.poolings:
        chosen, named_layer = parse_pooling(chosen)
    offered = (*backbone.poolings, "re-enc") if backbone.answers else backbone.poolings
    if chosen not in offered:
        raise ModelError(f"{backbone.called} has no pooling {chosen!r}. Choose one of: {', '.join(offered)}.")
    layer = layer if named_layer is None else named_layer
    check_layer(layer, getattr(backbone, "encoder_layers", backbone.num_layers) if chosen == "avg-ppt" else backbone.num_layers)
    return chosen, layer


def decodes(backbone: Backbone, pooling: str) -> bool:
    """Whether a pooling reads the states of an answer that is decoded token by token, and so can be sampled."""
    return POOLINGS[pooling].reads_answer and backbone.kind in ("causal", "seq2seq")


def check_answers(backbone: Backbone, name: str) -> None:
    """Refuse to answer with a model (``name`` to its user) that has no language-model head, or one that was never trained."""
    if backbone.bare:
        raise ModelError(
            f"{name} is an embedding model: it embeds and does not answer. "
            "To answer choose a causal, masked or encoder-decoder LM, such as mini."
        )
    if not backbone.answers:
        raise ModelError(
            f"{name} brings no trained language-model head, so its answers would be random. "
            "It can embed and cluster; to answer choose a language model, or fine-tune this one."
        )
