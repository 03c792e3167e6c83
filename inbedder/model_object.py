"""What a loaded model is as an object of Python: read in another way, moved, copied, pickled, shown, and known to other packages.

A copy shares the weights, and a pickle holds none: it holds what the model was loaded with, and loads it again.
"""

from __future__ import annotations

import os
import sys
from copy import copy
from dataclasses import replace
from functools import lru_cache
from typing import Any, TypeVar

import torch

from inbedder.backbones.base import check_pooling, decodes
from inbedder.backbones.transformer import dtype_name
from inbedder.errors import InputError, ModelError
from inbedder.mapping import VectorMap
from inbedder.prompt_encoder import PromptEncoder
from inbedder.reencode import Reencoding
from inbedder.vectors import Vectors

Object = TypeVar("Object", bound="ModelObject")

NONE = "none"
"""``beside`` no other model, whatever the settings say."""
READING = ("pooling", "layer", "reencoding", "sampling")
"""How a model is read; ``with_pooling`` changes it after loading."""


class ModelObject(PromptEncoder):
    """A model that other packages can hold."""

    reencoding: Reencoding
    """How "re-enc" draws and embeds answers."""
    given: dict[str, Any]
    """What it was loaded with."""

    def loaded_beside(self: Object, name: str | None, **options: Any) -> Object | None:
        """The model whose vectors stand beside this one's.

        Args:
            name: As ``InBedder`` takes it; None and "none" are no model.
            **options: How it is loaded.

        Returns:
            An InBedder, or None.

        Raises:
            InputError: When it is no name.
            ModelError: When it cannot be loaded.
        """
        if not isinstance(name, str | None):
            raise InputError(f"beside must be the name of a model, none or None, not {name!r}.")
        return None if name is None or name == NONE else type(self)(name, beside=NONE, **options)  # type: ignore[call-arg]

    def with_pooling(
        self: Object,
        pooling: str | None = None,
        layer: int = -1,
        *,
        reencoding: Reencoding | None = None,
        temperature: float = 0.0,
        top_p: float = 1.0,
        seed: int = 0,
    ) -> Object:
        """The same model, its weights shared, read in another way.

        Args:
            pooling: As for ``InBedder``.
            layer: As for ``InBedder``.
            reencoding: How "re-enc" draws and embeds answers; None leaves it as it is.
            temperature: Of the answer whose states avg-gen, last-gen and avg-all read, which is what ``answer`` draws with these
                numbers; 0 is greedy, the authors' Llama runs take 0.6 with top_p=0.9.
            top_p: Nucleus, in (0, 1].
            seed: Seed of the drawn answer.

        Returns:
            Another InBedder.

        Raises:
            InputError: When an option is out of range, or the pooling reads no decoded answer that could be drawn.
            ModelError: When the model has no such layer or pooling.
        """
        other = copy(self)
        other.pooling, other.layer = check_pooling(self.backbone, pooling, layer)
        other.reencoding = reencoding or self.reencoding
        other.sampling = replace(self.sampling, temperature=temperature, top_p=top_p, seed=seed if temperature else 0)
        if temperature and not decodes(self.backbone, other.pooling):
            raise InputError(
                f"{other.pooling!r} of a {self.backbone.kind} model reads no decoded answer; leave temperature at 0."
            )
        other.__dict__.pop("dimension", None)
        return other

    @property
    def device(self) -> torch.device:
        """Where it computes."""
        return self.backbone.model.device

    def to(self: Object, device: str | torch.device) -> Object:
        """Move the model, and all copies that share its weights, to another device.

        Args:
            device: A torch device.

        Returns:
            The model itself.

        Raises:
            ModelError: When it is held by an engine or quantized, or there is no such device.
        """
        try:
            same = torch.device(device) == self.device
        except RuntimeError as error:
            raise ModelError(f"There is no device {device!r} ({error}).") from None
        if same:
            return self
        weights = self.backbone.model
        if not isinstance(weights, torch.nn.Module) or self.quantization or self.precision != dtype_name(weights):
            raise ModelError(f"{self!r} stays where it is. Load it there: InBedder({self.name!r}, device={str(device)!r}).")
        try:
            for part in (weights, getattr(self.backbone, "after", None)):
                if isinstance(part, torch.nn.Module):
                    part.to(device)
        except (RuntimeError, AssertionError) as error:
            raise ModelError(f"{self.name} cannot be moved to {device} ({error}).") from error
        for other in (self.__dict__.get("generic"), self.beside):
            if isinstance(other, ModelObject):
                other.to(device)
        return self

    def get_sentence_embedding_dimension(self) -> int:
        """Length of a vector, under sentence-transformers' name."""
        return int(self.dimension)

    def as_map(self, instruction: str | None = None, *, column: str = "text", to: str = "vector", **options: Any) -> VectorMap:
        """A function for ``map`` of Hugging Face datasets: ``dataset.map(model.as_map("@topic"), batched=True)``.

        Args:
            instruction: As for ``encode``.
            column: The column of texts.
            to: The new column of vectors.
            **options: Keyword arguments of ``encode``.

        Returns:
            From a batch of rows to their new column. datasets keeps what it gives by the model's name and revision.
        """
        return VectorMap(self, self.revision, instruction, column, to, tuple(sorted(options.items())))  # type: ignore[arg-type]

    def save_sentence_transformer(self, folder: str | os.PathLike[str]) -> None:
        """Write a folder that ``SentenceTransformer(folder)`` loads; see ``inbedder/exporting.py`` for which need this package.

        Args:
            folder: A new or empty folder.

        Raises:
            InputError: When the folder holds something.
            ModelError: When the weights cannot be written.
            MissingExtraError: When sentence-transformers is not installed.
        """
        from inbedder.exporting import export

        export(self, folder)

    def embed(self, documents: Any, verbose: bool = False) -> Vectors:
        """Embed texts without an instruction, as BERTopic's and KeyBERT's embedders are asked to.

        Args:
            documents: n texts.
            verbose: Whether to show a progress bar.

        Returns:
            float32, shape (n, d).
        """
        return self.encode(list(documents), show_progress_bar=verbose)

    embed_documents = embed_words = embed

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        """Also an embedder of BERTopic and KeyBERT, once these are imported.

        Both know their embedders by class alone, and put MiniLM in the place of any other object without a word.
        """
        names = ("bertopic.backend", "keybert.backend")
        others = [sys.modules[name].BaseEmbedder for name in names if hasattr(sys.modules.get(name), "BaseEmbedder")]
        return _also(type(self), *others) if others else type(self)

    def __copy__(self: Object) -> Object:
        other = object.__new__(type(self))
        other.__dict__.update(self.__dict__)
        return other

    def __deepcopy__(self: Object, _memo: Any) -> Object:
        return copy(self)

    def __reduce__(self) -> tuple[Any, ...]:
        return _loaded_again, (type(self), self.given, {name: getattr(self, name) for name in READING})

    def __repr__(self) -> str:
        """One line: the model and how it is read."""
        shown = {"backbone": self.backbone.kind, "pooling": self.pooling, "layer": self.layer}
        shown |= {"device": str(self.device), "dtype": self.precision}
        return f"{type(self).__name__}({self.name!r}, {', '.join(f'{name}={value!r}' for name, value in shown.items())})"


@lru_cache(maxsize=8)
def _also(own: type, *others: type) -> type:
    """A class that is a child of all."""
    return type(own.__name__, (own, *others), {"__module__": own.__module__})


def _loaded_again(own: type[Object], given: dict[str, Any], reading: dict[str, Any]) -> Object:
    """Load a model as it was loaded before, and read it as it was read."""
    model = own(**given)
    model.__dict__.update(reading)
    return model
