"""What the parts of a model need to know of a whole one: a second model, a base encoder, the model itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

import torch

from inbedder.options import Options
from inbedder.prompting.templates import DefaultInstructions, PromptTemplate
from inbedder.vector_spec import VectorSpec
from inbedder.vectors import Vectors

if TYPE_CHECKING:
    from typing_extensions import Self


class Encoder(Protocol):
    """A composed model; ``InBedder`` is the one that users hold."""

    options: Options
    """What is loaded, and how a text becomes a vector."""
    parts: Any
    """Its ``Parts``."""
    defaults: DefaultInstructions
    """Its instructions for calls without a question."""

    @property
    def name(self) -> str:
        """The model's name, as the user gave it."""

    @property
    def template(self) -> PromptTemplate:
        """The pattern of its prompts."""

    @property
    def device(self) -> torch.device:
        """The model's device."""

    @property
    def spec(self) -> VectorSpec:
        """Everything that decides a vector."""

    @property
    def dimension(self) -> int:
        """Length of a vector under a question."""

    def encode(self, texts: Any = None, instruction: Any = None, **options: Any) -> Vectors:
        """Embed n texts under an instruction: float32, shape (n, d)."""

    def encode_many(
        self, texts: Any, instructions: Sequence[str], *, batch_size: int = 32, show_progress_bar: bool | None = None
    ) -> Vectors:
        """Embed n texts under m instructions: float32, shape (m, n, d)."""

    def cached_vectors(self, keys: Sequence[bytes]) -> dict[bytes, Vectors]:
        """Look vectors up in the cache without their texts."""

    def replace(self, **options: Any) -> Self:
        """Return another reader of the same weights."""

    def with_parts(self, parts: Any) -> Self:
        """Return a variant of the model."""

    def to(self, device: str | torch.device) -> Self:
        """Move the model to another device."""
