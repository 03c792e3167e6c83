"""The protocol of a complete model, for the parts that use one: a second model, a base encoder, the model itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import torch

from inbedder.prompting.templates import PromptTemplate
from inbedder.vector_spec import VectorSpec
from inbedder.vectors.vectors import Vectors

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack

    from inbedder.encoding.pipeline import EncodingPipeline
    from inbedder.option_types import ChangeableKwargs


class Encoder(Protocol):
    """A complete model, such as ``InBedder``."""

    @property
    def name(self) -> str:
        """The model's name, as passed to ``InBedder``."""

    @property
    def template(self) -> PromptTemplate:
        """The prompt template."""

    @property
    def device(self) -> torch.device:
        """The model's device."""

    @property
    def spec(self) -> VectorSpec:
        """Everything that determines a vector."""

    @property
    def dimension(self) -> int:
        """The length of a vector."""

    @property
    def encode(self) -> Callable[..., Vectors]:
        """Embed n texts under an instruction: float32, shape (n, d). See ``InBedder.encode``."""

    def encode_many(
        self, texts: Any, instructions: Sequence[str], *, batch_size: int = 32, show_progress_bar: bool | None = None
    ) -> Vectors:
        """Embed n texts under m instructions: float32, shape (m, n, d)."""

    def replace(self, **options: Unpack[ChangeableKwargs]) -> Self:
        """Return a copy with other options, which shares the weights."""

    @property
    def pipeline(self) -> EncodingPipeline:
        """How a text becomes a vector."""

    @classmethod
    def from_pipeline(cls, pipeline: EncodingPipeline) -> Self:
        """Build a model from a pipeline."""

    def to(self, device: str | torch.device) -> Self:
        """Move the model to another device."""
