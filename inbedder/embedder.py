"""``InBedder``: the vector of a text under an instruction is the hidden state of the answer a language model would give."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable, Sequence
from copy import copy
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from tqdm.auto import tqdm

from inbedder.backbones.base import Backbone, Sampling, check_layer
from inbedder.backbones.loading import LoadOptions, load_backbone, weights_revision
from inbedder.batching import length_sorted_batches
from inbedder.errors import InputError, ModelError, TextCutWarning
from inbedder.pooling import parse_pooling
from inbedder.prompting import PromptTemplate, get_template, resolve_instruction
from inbedder.tokenization import PromptTokenizer, PromptTokens

if TYPE_CHECKING:
    from torch import Tensor

Vectors = NDArray[np.float32]
LONG_WORK = 256  # from so many texts on, a progress bar is shown in a terminal


class InBedder:
    """Embeds texts under an instruction, by answering it (InBedder paper, section 4)."""

    def __init__(
        self,
        model: str | os.PathLike[str] = "mini",
        *,
        backbone: str | None = None,
        pooling: str | None = None,
        layer: int = -1,
        template: str | PromptTemplate | None = None,
        max_length: int = 512,
        max_new_tokens: int = 3,
        mask_length: int | None = None,
        device: str | None = None,
        dtype: str | torch.dtype | None = None,
        revision: str | None = None,
        trust_remote_code: bool = False,
        quantization: str | None = None,
    ) -> None:
        """Load a model.

        Args:
            model: ``mini`` (bundled, CPU, no network), a hub id or a folder; the folder or id of a peft adapter loads its base.
            backbone: "causal", "masked" or "seq2seq"; None reads it from the model's configuration.
            pooling: "1st-gen", "avg-gen", "last-gen", "avg-ppt" or "avg-all"; None is 1st-gen, or avg-gen for masked LMs. The
                authors' names (``fst_gen_layer_32``) are understood and set the layer.
            layer: 0 = token embeddings, 1..L = blocks (L after the final norm), negative from the end.
            template: Name or pattern of the prompt; None is what the model was fine-tuned with, else the paper's pattern.
            max_length: Longest prompt in tokens; longer texts are cut at their end.
            max_new_tokens: Longest answer in tokens (causal and encoder-decoder LMs).
            mask_length: Masks that stand for the answer (masked LMs); None is what the model was fine-tuned with, else 3.
            device: A torch device; None takes the GPU where there is one.
            dtype: "float32", "bfloat16" or "float16"; None chooses by what device and checkpoint are good at.
            revision: Branch, tag or commit on the hub.
            trust_remote_code: Run code from the model's repository. Off, as it should be.
            quantization: "int8" or "nf4" through bitsandbytes.

        Raises:
            ModelError: When the model cannot be loaded or has no such layer or pooling.
            InputError: When an option has no meaning.
        """
        if max_new_tokens < 1 or max_length < 1:
            raise InputError("max_length and max_new_tokens must be at least 1.")
        self.name = os.fspath(model)
        options = LoadOptions(backbone, device, dtype, revision, trust_remote_code, quantization, mask_length)
        self.backbone: Backbone
        self.backbone, settings = load_backbone(self.name, options)
        self.pooling, self.layer = _check_pooling(self.backbone, pooling, layer)
        self.template = get_template(template if template is not None else settings.template)
        self.sampling = Sampling(max_new_tokens=max_new_tokens)
        limit = self.backbone.position_limit
        room = max_length if limit is None else min(max_length, limit - _answer_room(self.backbone, max_new_tokens))
        self.tokenizer = PromptTokenizer(self.backbone.tokenizer, self.template, room, self.backbone.mask_length)

    def with_pooling(self, pooling: str | None = None, layer: int = -1) -> InBedder:
        """The same model, its weights shared, read in another way.

        Args:
            pooling: As for ``InBedder``.
            layer: As for ``InBedder``.

        Returns:
            Another InBedder.

        Raises:
            ModelError: When the model has no such layer or pooling.
        """
        other = copy(self)
        other.pooling, other.layer = _check_pooling(self.backbone, pooling, layer)
        other.__dict__.pop("dimension", None)
        return other

    @cached_property
    def dimension(self) -> int:
        """Length of a vector."""
        return len(self.encode(""))

    @cached_property
    def revision(self) -> str:
        """What identifies the weights: the hub's commit, or a hash of the local files."""
        return weights_revision(self.name, self.backbone)

    def prompt(self, text: str, instruction: str | None = None) -> str:
        """What the model reads of a text (before any cut) and an instruction.

        Args:
            text: The text.
            instruction: A question, ``@name``, or None for ``@generic``.

        Returns:
            The rendered template.
        """
        return self.template.render(text, resolve_instruction(instruction)).string

    def encode(
        self,
        texts: str | Sequence[str],
        instruction: str | Sequence[str] | None = None,
        *,
        batch_size: int = 32,
        normalize_embeddings: bool = False,
        show_progress_bar: bool | None = None,
        filter_words: Sequence[str] = (),
    ) -> Vectors:
        """Embed texts under an instruction.

        Args:
            texts: One text or n texts; an empty text is embedded as such.
            instruction: One for all texts, or one a text. ``@name`` is a named instruction, None is ``@generic``.
            batch_size: Most texts in one pass.
            normalize_embeddings: Scale vectors to length 1.
            show_progress_bar: None shows one for long work in a terminal.
            filter_words: Words whose answer states are left out (paper, section 4.3).

        Returns:
            float32, shape (n, d), or (d,) for one string. Row i belongs to text i.

        Raises:
            InputError: When a text is not a string, or instructions and texts do not match in number.
            ModelError: When the model gives NaN or infinite values.
        """
        rows, instructions = _check_texts(texts, instruction)
        filter_ids = self._filter_ids(filter_words)

        def embed(prompts: Sequence[PromptTokens], _batch: NDArray[np.intp]) -> Tensor:
            return self.backbone.embed(prompts, self.pooling, self.layer, self.sampling, filter_ids).cpu()

        vectors = np.empty((0, 0 if rows else self.dimension), dtype=np.float32)
        for batch, result in self._batches(rows, instructions, embed, batch_size, show_progress_bar, "Embedding"):
            if not len(vectors):
                vectors = np.empty((len(rows), result.shape[1]), dtype=np.float32)
            vectors[batch] = result.numpy()
        _check_finite(vectors)
        if normalize_embeddings:
            vectors /= np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
        return vectors[0] if isinstance(texts, str) else vectors

    def encode_many(self, texts: str | Sequence[str], instructions: Sequence[str], **options: Any) -> Vectors:
        """Embed the same texts under several instructions.

        Args:
            texts: One text or n texts.
            instructions: m instructions.
            **options: As for ``encode``.

        Returns:
            float32, shape (m, n, d), or (m, d) for one string.

        Raises:
            InputError: As ``encode`` does, and when no list of instructions is given.
        """
        if isinstance(instructions, str) or not instructions:
            raise InputError("encode_many takes a list of instructions; for one instruction use encode.")
        return np.stack([self.encode(texts, instruction, **options) for instruction in instructions])

    def answer(
        self,
        texts: str | Sequence[str],
        instruction: str | Sequence[str] | None = None,
        *,
        n: int = 1,
        temperature: float = 0.0,
        top_p: float = 1.0,
        seed: int = 0,
        batch_size: int = 32,
        show_progress_bar: bool | None = None,
    ) -> list[str] | list[list[str]]:
        """Answer the instruction for each text, in the few words that the vectors stand for.

        Args:
            texts: One text or several.
            instruction: One for all texts, or one a text. ``@name`` is a named instruction, None is ``@generic``.
            n: Answers a text; more than one differ only where temperature is above 0.
            temperature: 0 is greedy.
            top_p: Nucleus, in (0, 1].
            seed: Seed of the drawn answers, which also depend on batch_size.
            batch_size: Most texts in one pass.
            show_progress_bar: None shows one for long work in a terminal.

        Returns:
            One answer a text, or with n > 1 a list of n answers a text.

        Raises:
            InputError: When a text is not a string, or an option is out of range.
            ModelError: When the model's language-model head was never trained.
        """
        rows, instructions = _check_texts(texts, instruction)
        if not self.backbone.answers:
            raise ModelError(
                f"{self.name} brings no trained language-model head, so its answers would be random. "
                "It can embed; to answer and to explain clusters choose a language model, or fine-tune this one."
            )
        if n < 1 or temperature < 0 or not 0 < top_p <= 1:
            raise InputError("answer needs n >= 1, temperature >= 0 and 0 < top_p <= 1.")
        sampling = Sampling(self.sampling.max_new_tokens, n, temperature, top_p, seed)
        answers: list[list[str]] = [[] for _ in rows]

        def reply(prompts: Sequence[PromptTokens], batch: NDArray[np.intp]) -> list[list[str]]:
            return self.backbone.answer(prompts, replace(sampling, seed=seed + int(batch[0])))

        for batch, result in self._batches(rows, instructions, reply, batch_size, show_progress_bar, "Answering"):
            for row, said in zip(batch, result, strict=True):
                answers[row] = [one.strip() for one in said]
        return answers if n > 1 else [one[0] for one in answers]

    @staticmethod
    def similarity(a: Any, b: Any) -> Vectors:
        """Cosine similarities.

        Args:
            a: Vectors, shape (n, d) or (d,).
            b: Vectors, shape (m, d) or (d,).

        Returns:
            float32, shape (n, m); a vector of zeros is similar to nothing.
        """
        left, right = (np.atleast_2d(np.asarray(one, dtype=np.float32)) for one in (a, b))
        left, right = (one / np.maximum(np.linalg.norm(one, axis=1, keepdims=True), 1e-12) for one in (left, right))
        product: Vectors = left @ right.T
        return product

    def nearest_words(self, vectors: Vectors, top: int = 10) -> list[list[str]]:
        """Read vectors of the last layer with the model's answer head, as the authors' second cluster explanation does.

        Args:
            vectors: float32, shape (m, d), such as cluster means minus the corpus mean.
            top: How many words a vector.

        Returns:
            The likeliest words of each vector; empty lists where the layer or pooling is not one that the head reads.
        """
        last = self.layer in (-1, self.backbone.num_layers)
        if not last or self.pooling == "avg-ppt" or not self.backbone.answers:
            return [[] for _ in vectors]
        words = self.backbone.read_vectors(torch.from_numpy(vectors), 5 * top)
        return [_distinct_words(one, top) for one in words]

    def _filter_ids(self, words: Sequence[str]) -> list[int]:
        ids: set[int] = set()
        for word in words:
            for form in (word, " " + word):
                ids.update(self.backbone.tokenizer(form, add_special_tokens=False)["input_ids"])
        return sorted(ids)

    def _batches(
        self,
        texts: Sequence[str],
        instructions: Sequence[str],
        work: Callable[[Sequence[PromptTokens], NDArray[np.intp]], Any],
        batch_size: int,
        show_progress_bar: bool | None,
        verb: str,
    ) -> Iterable[tuple[NDArray[np.intp], Any]]:
        """Tokenize, warn of cuts, and run ``work`` over batches of similar length: (row numbers, result) of each."""
        if batch_size < 1:
            raise InputError(f"batch_size must be at least 1, not {batch_size}.")
        prompts = self.tokenizer(texts, instructions)
        cut = sum(prompt.cut for prompt in prompts)
        if cut:
            warnings.warn(
                f"{cut} of {len(prompts)} texts were cut at their end to fit max_length={self.tokenizer.max_length} tokens; "
                "raise max_length where the model allows it, or split long texts.",
                TextCutWarning,
                stacklevel=3,
            )
        hidden = not show_progress_bar if show_progress_bar is not None else (len(texts) < LONG_WORK or None)
        with tqdm(total=len(texts), desc=verb, unit=" texts", disable=hidden) as bar:
            for batch in length_sorted_batches([len(prompt.ids) for prompt in prompts], batch_size):
                yield batch, work([prompts[row] for row in batch], batch)
                bar.update(len(batch))


def _check_pooling(backbone: Backbone, pooling: str | None, layer: int) -> tuple[str, int]:
    """The pooling and the layer, the authors' names understood."""
    asked, named_layer = parse_pooling(pooling or backbone.poolings[0])
    if asked not in backbone.poolings:
        raise ModelError(f"A {backbone.kind} LM has no pooling {asked!r}. Choose one of: {', '.join(backbone.poolings)}.")
    layer = layer if named_layer is None else named_layer
    check_layer(layer, getattr(backbone, "encoder_layers", backbone.num_layers) if asked == "avg-ppt" else backbone.num_layers)
    return asked, layer


def _answer_room(backbone: Backbone, max_new_tokens: int) -> int:
    return max_new_tokens if backbone.kind == "causal" else 0


def _check_texts(texts: Any, instruction: Any) -> tuple[list[str], list[str]]:
    """Make lists of texts and instructions, or say which entry is wrong."""
    if texts is None or isinstance(texts, (bytes, dict)):
        raise InputError(f"texts must be a string or a list of strings, not {type(texts).__name__}.")
    rows = [texts] if isinstance(texts, str) else list(texts)
    for i, text in enumerate(rows):
        if not isinstance(text, str):
            raise InputError(f"Text {i} is {text!r} ({type(text).__name__}), not a string. Drop or fill such entries first.")
    if instruction is None or isinstance(instruction, str):
        return rows, [resolve_instruction(instruction)] * len(rows)
    instructions = list(instruction)
    if len(instructions) != len(rows):
        raise InputError(f"{len(rows)} texts but {len(instructions)} instructions: give one instruction, or one a text.")
    for i, one in enumerate(instructions):
        if not isinstance(one, str):
            raise InputError(f"Instruction {i} is {one!r} ({type(one).__name__}), not a string.")
    return rows, [resolve_instruction(one) for one in instructions]


def _check_finite(vectors: Vectors) -> None:
    bad = np.flatnonzero(~np.isfinite(vectors).all(axis=1))
    if len(bad):
        raise ModelError(
            f"The model gave NaN or infinite values for {len(bad)} of {len(vectors)} texts (first: text {bad[0]}). "
            "Load it with dtype='float32'."
        )


def _distinct_words(tokens: Sequence[str], top: int) -> list[str]:
    words: list[str] = []
    for token in tokens:
        word = token.strip().lower()
        if len(word) > 1 and word.isalnum() and word not in words:
            words.append(word)
    return words[:top]
