"""From prompts to vectors and answers: in batches, kept in a cache, without what the instruction alone says."""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import cached_property
from typing import Any

import numpy as np
import torch

from inbedder.backbones.base import Backbone, Sampling, check_answers
from inbedder.backbones.revision import settings_hash, weights_revision
from inbedder.backbones.transformer import distinct_words
from inbedder.cache import CacheSpace, Store
from inbedder.errors import InputError, ModelError
from inbedder.prompting import DefaultInstructions, PromptTemplate, resolve_instruction
from inbedder.scheduling import Work, finished, run
from inbedder.tokenization import PromptTokenizer, PromptTokens
from inbedder.vectors import Vectors, pack_vector, side_by_side, similarity, unpack_vector
from inbedder.whole_text import WholeTexts, with_generic

REMEMBERED = 1024
"""Most instructions whose own vector is remembered."""


class PromptEncoder(ABC):
    """A loaded model, how it is read, and where its results are kept."""

    name: str
    """What the user calls the model."""
    backbone: Backbone
    """The model."""
    tokenizer: PromptTokenizer
    """Makes its prompts."""
    template: PromptTemplate
    """Pattern of its prompts."""
    pooling: str
    """How its states become a vector."""
    layer: int
    """Which layer's."""
    sampling: Sampling
    """How it decodes the answers that its vectors are read from."""
    precision: str
    """What it computes in."""
    quantization: str | None
    """How its weights are held."""
    store: Store | None
    """The cache."""
    subtract_instruction: bool
    """Whether v("", i) is taken away."""
    generic: Any
    """The embedding model that reads texts where no instruction is given, or None."""
    add_generic: bool
    """Whether a text's vector without an instruction is added under instructions about the whole text."""
    beside: PromptEncoder | None
    """The model whose vectors stand beside this one's."""
    dimension: Any
    """Length of a vector."""
    _instruction_vectors: dict[tuple[Any, ...], Vectors]
    """v("", i) of the last instructions that were met."""
    _whole_texts: WholeTexts
    """How far the last instructions that were met are about the whole text."""

    defaults: DefaultInstructions
    """What it is asked where the user gives no instruction."""

    similarity = staticmethod(similarity)

    @abstractmethod
    def encode(self, *args: Any, **options: Any) -> Vectors:
        """Embed texts under an instruction."""

    @abstractmethod
    def encode_many(self, *args: Any, **options: Any) -> Vectors:
        """Embed texts under several instructions."""

    def prompt(self, text: str, instruction: str | None = None) -> str:
        """What the model reads of a text (before any cut) and an instruction.

        Args:
            text: The text.
            instruction: A question, ``@name``, or None as for ``encode``.

        Returns:
            The rendered template.
        """
        return self.template.render(text, resolve_instruction(self.defaults.any if instruction is None else instruction)).string

    def encode_query(
        self, texts: str | Sequence[str] | None = None, instruction: str | Sequence[str] | None = None, **options: Any
    ) -> Vectors:
        """Embed what is searched for.

        Args:
            texts: One text or n texts.
            instruction: As for ``encode``. None is the checkpoint's own prompt of a query; for INSTRUCTOR models without one
                "Represent the question for retrieving supporting documents:"; for models that answer ``@generic``.
            **options: Keyword arguments of ``encode``.

        Returns:
            float32, shape (n, d), or (d,) for one string.
        """
        return self.encode(texts, self._default(self.defaults.query, instruction, options), **options)

    def encode_document(
        self, texts: str | Sequence[str] | None = None, instruction: str | Sequence[str] | None = None, **options: Any
    ) -> Vectors:
        """Embed what is searched through.

        Args:
            texts: One text or n texts.
            instruction: As for ``encode``. None is the checkpoint's own prompt of a document; for INSTRUCTOR models without one
                "Represent the document for retrieval:"; none at all for E5-instruct and Qwen3-Embedding; for models that answer
                ``@generic``, so that documents are read once, whatever is asked later.
            **options: Keyword arguments of ``encode``.

        Returns:
            float32, shape (n, d), or (d,) for one string.
        """
        return self.encode(texts, self._default(self.defaults.document, instruction, options), **options)

    @staticmethod
    def _default(default: str | None, instruction: Any, options: Mapping[str, Any]) -> Any:
        """An instruction, or the default where none is given, not even as sentence-transformers' ``prompt``."""
        return default if instruction is None and not {"prompt", "prompt_name"} & options.keys() else instruction

    @cached_property
    def revision(self) -> str:
        """What identifies the weights: the hub's commit, or a hash of the local files; with a model beside, a hash of both."""
        own = weights_revision(self.backbone)
        if self.beside is None or "unknown" in (own, self.beside.revision):
            return own if self.beside is None else "unknown"
        beside = f"{self.beside.revision} add_generic" if self.beside.add_generic else self.beside.revision
        return hashlib.sha256(f"{own} {beside}".encode()).hexdigest()[:16]

    def nearest_words(self, vectors: Vectors, top: int = 10) -> list[list[str]]:
        """Read vectors of the last layer with the model's answer head, as the authors' second cluster explanation does.

        Args:
            vectors: float32, shape (m, d), such as cluster means minus the corpus mean.
            top: How many words a vector.

        Returns:
            The likeliest words of each vector; empty lists where the layer or pooling is not one that the head reads.
        """
        last = self.layer in (-1, self.backbone.num_layers)
        if not last or self.pooling in ("avg-ppt", "re-enc") or not self.backbone.answers:
            return [[] for _ in vectors]
        if self.beside is not None and vectors.shape[1] != self.dimension:  # of the generic base, which no head reads
            return [[] for _ in vectors]
        if self.beside is not None and self.read_by_default():  # the head reads this model's states alone
            vectors = np.ascontiguousarray(vectors[:, : -self.beside.dimension])
        words = self.backbone.read_vectors(torch.from_numpy(vectors), 5 * top)
        return [distinct_words(word, top) for word in words]

    def _vectors(
        self,
        rows: Sequence[str],
        questions: Sequence[tuple[str, ...]],
        embed: Work,
        filter_ids: Sequence[int],
        batch_size: int,
        show_progress_bar: bool | None,
        normalize_embeddings: bool,
    ) -> Vectors:
        """Vectors of n texts under m instructions each, shape (m, n, d), as they leave."""
        vectors = self._pooled(rows, questions, embed, filter_ids, batch_size, show_progress_bar)
        if self.subtract_instruction and len(rows):
            given = {instruction for of_text in questions for instruction in of_text} - {resolve_instruction(self.defaults.any)}
            alone = self._instructions_alone(given, filter_ids)
            for number in range(len(vectors)):
                rows_asked = [row for row, of_text in enumerate(questions) if of_text[number] in given]
                if rows_asked:
                    vectors[number, rows_asked] -= [alone[questions[row][number]] for row in rows_asked]
        if not len(rows) or not self.read_by_default(filter_ids):
            return finished(vectors, normalize_embeddings)
        options: dict[str, Any] = {"batch_size": batch_size, "show_progress_bar": show_progress_bar}
        if self.add_generic:
            self._generic_added(vectors, rows, questions, options)
        if self.beside is not None:
            vectors = side_by_side(vectors, self._beside_vectors(self.beside, rows, questions, options))
        return finished(vectors, normalize_embeddings)

    def read_by_default(self, filtered: Sequence[Any] = ()) -> bool:
        """Whether it is read as it was trained to be: pooling and layer its own, no words left out."""
        return (self.pooling, self.layer) == (self.backbone.poolings[0], -1) and not filtered

    def _generic_added(
        self, vectors: Vectors, rows: Sequence[str], questions: Sequence[tuple[str, ...]], options: Mapping[str, Any]
    ) -> None:
        """Add the texts' own vectors to those under instructions about the whole text, shape (m, n, d), in place."""
        if self.generic.dimension != vectors.shape[-1]:
            raise ModelError(f"{self.generic.name} has vectors of another length than {self.name}. Leave add_generic out.")

        def asked(texts: Sequence[str], instructions: Sequence[str]) -> Vectors:
            given = [(instruction,) for instruction in instructions]
            pooled: Vectors = self._pooled(texts, given, self._one_by_one(()), (), 64, False)[0]
            return pooled

        found = self._whole_texts.weights({question for of_text in questions for question in of_text}, asked, self.generic)
        weights = np.array([[found[instruction] for instruction in of_text] for of_text in questions], dtype=np.float32).T
        if read := np.flatnonzero(weights.any(axis=0)).tolist():
            generic = self.generic.encode([rows[row] for row in read], **options)
            vectors[:, read] = with_generic(vectors[:, read], generic, weights[:, read, None])

    @staticmethod
    def _beside_vectors(
        other: PromptEncoder, rows: Sequence[str], questions: Sequence[tuple[str, ...]], options: Mapping[str, Any]
    ) -> Vectors:
        """The other model's vectors of the same prompts, shape (m, n, k)."""
        if len(set(questions)) == 1 and len(questions[0]) > 1:
            return other.encode_many(rows, list(questions[0]), **options)
        asked = zip(*questions, strict=True)
        return np.stack([other.encode(rows, list(instructions), **options) for instructions in asked])

    def _key(self, instruction: str, filter_ids: Sequence[int]) -> tuple[Any, ...]:
        return instruction, self.pooling, self.layer, self.sampling, tuple(filter_ids)

    def _instructions_alone(self, instructions: set[str], filter_ids: Sequence[int]) -> dict[str, Vectors]:
        """v("", i) of each instruction; the last ones are remembered."""
        keys = {instruction: self._key(instruction, filter_ids) for instruction in instructions}
        remembered = {instruction: self._instruction_vectors.get(key) for instruction, key in keys.items()}
        found = {instruction: vector for instruction, vector in remembered.items() if vector is not None}
        if new := sorted(instructions - found.keys()):
            asked = [(question,) for question in new]
            alone = self._pooled([""] * len(new), asked, self._one_by_one(filter_ids), filter_ids, 32, False)
            found |= zip(new, alone[0], strict=True)
            self._instruction_vectors.update({keys[question]: found[question] for question in new})
            for key in list(self._instruction_vectors)[:-REMEMBERED]:  # a server meets instructions without end
                self._instruction_vectors.pop(key, None)
        return found

    def _one_by_one(self, filter_ids: Sequence[int]) -> Work:
        """The work of one instruction per text."""

        def embed(batch: Sequence[Sequence[PromptTokens]]) -> Any:
            prompts = [prompt for (prompt,) in batch]
            pooled = self.backbone.embed(prompts, self.pooling, self.layer, self.sampling, filter_ids)
            return pooled.cpu().numpy()[:, None]

        return embed

    def _pooled(
        self,
        rows: Sequence[str],
        questions: Sequence[tuple[str, ...]],
        embed: Work,
        filter_ids: Sequence[int],
        batch_size: int,
        show_progress_bar: bool | None,
    ) -> Vectors:
        """Vectors as the model gives them and the cache keeps them, shape (m, n, d)."""
        space = self._vector_space(filter_ids)
        options: dict[str, Any] = {"batch_size": batch_size, "show_progress_bar": show_progress_bar, "space": space}
        vectors = np.empty((1, 0, 0 if rows else self.dimension), dtype=np.float32)
        for places, results in run(self.tokenizer, rows, questions, embed, verb="Embedding", stacklevel=5, **options):
            if not vectors.shape[1]:
                vectors = np.empty((len(results), len(rows), len(results[0])), dtype=np.float32)
            for of_text, result in zip(vectors, results, strict=True):
                of_text[places] = result
        return vectors

    def _vector_space(self, filter_ids: Sequence[int] = ()) -> CacheSpace | None:
        """Where vectors are kept."""
        settings = {"pooling": self.pooling, "layer": self.layer, "filter_ids": list(filter_ids)}
        if self.sampling.temperature:
            settings["drawn"] = {**asdict(self.sampling), "stream": "of the prompt"}
        return self._space(pack_vector, unpack_vector, **settings)

    def kept_vectors(self, keys: Sequence[bytes]) -> dict[bytes, Vectors]:
        """Vectors in the cache, without their texts.

        Args:
            keys: What ``cache.entry_key`` makes of a text and its instruction, named ones resolved.

        Returns:
            float32, shape (d,), by key, as the model gave them (v("", i) is not taken away, no generic vector added); those that
            are not kept are left out.
        """
        space = self._vector_space()
        found = {} if space is None else space.store.get(space.about, keys)
        vectors = {key: unpack_vector(data[1:]) for key, data in found.items()}
        if self.beside is None or not self.read_by_default():
            return vectors
        others = self.beside.kept_vectors(list(vectors))
        return {key: side_by_side(vectors[key], other) for key, other in others.items()}

    def _space(self, pack: Callable[[Any], bytes | None], unpack: Callable[[bytes], Any], **settings: Any) -> CacheSpace | None:
        """Where results of these settings are kept; None without a cache."""
        if self.store is None:
            return None
        revision = self.revision if self.beside is None else weights_revision(self.backbone)
        if revision == "unknown":
            raise InputError(f"The weights of {self.name} have no revision, so kept vectors could lie. Load it without a cache.")
        about = {
            "model": self.name,
            "revision": revision,
            "settings": self._settings_hash,
            "precision": self.precision,
            "quantization": self.quantization,
            "template": self.template.pattern,
            "max_length": self.tokenizer.max_length,
            "mask_length": self.backbone.mask_length,
            "max_new_tokens": self.sampling.max_new_tokens,
            **settings,
        }
        if self.template.without_input:
            about["without_input"] = self.template.without_input
        if self.tokenizer.truncation_side != "right":
            about["truncation_side"] = self.tokenizer.truncation_side
        return CacheSpace(self.store, about, pack, unpack)

    @cached_property
    def _settings_hash(self) -> str:
        return settings_hash(self.backbone)

    def _answers(
        self, rows: Sequence[str], instructions: Sequence[str], how: Sampling, batch_size: int, show_progress_bar: bool | None
    ) -> list[list[str]]:
        """Answers of each text, kept ones among them."""
        check_answers(self.backbone, self.name)

        def reply(batch: Sequence[Sequence[PromptTokens]]) -> list[list[list[str]]]:
            batch_answers = self.backbone.answer([item for (item,) in batch], how)
            return [[answer] for answer in batch_answers]

        answers: list[list[str]] = [[] for _ in rows]
        questions = [(instruction,) for instruction in instructions]
        space = self._space(
            lambda batch_answers: json.dumps(batch_answers).encode(),
            json.loads,
            answers={**asdict(how), "stream": "of the prompt"},
        )
        options: dict[str, Any] = {"batch_size": batch_size, "show_progress_bar": show_progress_bar, "space": space}
        for places, (batch_answers,) in run(self.tokenizer, rows, questions, reply, verb="Answering", stacklevel=4, **options):
            for row in places:
                answers[row] = [answer.strip() for answer in batch_answers]
        return answers
