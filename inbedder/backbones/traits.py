"""What backbones have in common: the attributes of the protocol ``Backbone`` with their usual values, and the model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from inbedder.backbones.transformer import find_position_limit, get_dtype_name, get_pad_id

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from inbedder.backbones.protocol import AnsweredVector, Backbone, JointReading
    from inbedder.prompting.tokenization import PromptTokens


class BackboneTraits:
    """The attributes of ``Backbone``; ``load_backbone`` sets those that depend on the loaded files."""

    kind: str
    display_name: str
    poolings: tuple[str, ...]
    continues_prompt = False
    without_template = False
    runs_side_by_side = True
    mask_length = 0
    answers = True
    reads_padding = False
    adapter: str | None = None
    weight_files: Any = None
    num_layers: int
    position_limit: int | None

    def embed_and_answer(
        self: Backbone, prompts: Sequence[PromptTokens], reading: JointReading, **cached_texts: Any
    ) -> list[AnsweredVector]:
        """Pool and answer one batch in two passes; see ``Backbone.embed_and_answer``."""
        pooling, layer, sampling, answering = reading
        vectors = self.embed(prompts, pooling, layer, sampling, **cached_texts)
        return list(zip(vectors, self.answer(prompts, answering, **cached_texts), strict=True))


class TransformersBackbone(BackboneTraits):
    """A backbone whose model is one of transformers, in this process."""

    def __init__(self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> None:
        """Wrap a loaded model."""
        self.model = model.eval()
        self.tokenizer = tokenizer
        self.compute_dtype = get_dtype_name(model)
        self.pad_id = get_pad_id(tokenizer)
        self.position_limit = find_position_limit(model)
