"""Embedders as the runner sees them: with their instruction, without it, or with it in a form of their own."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from evaluation.represented import represented
from evaluation.tasks.base import Similarity, fingerprint
from inbedder.backbones.base import decodes
from inbedder.conditional.encoding import scores_pairs
from inbedder.embedder import InBedder
from inbedder.errors import InputError
from inbedder.files import sha256_of
from inbedder.models.bundled import resolve_name
from inbedder.vectors import Vectors


@dataclass(frozen=True)
class Embedder:
    """Something that turns texts and instructions into vectors."""

    name: str
    """As tables show it, variant included."""
    revision: str
    """What identifies its weights."""
    encode: Callable[[Sequence[str], str | Sequence[str]], Vectors]
    """Texts and an instruction (or one per text) to vectors, shape (n, d)."""
    prompt: Callable[[str, str], str]
    """What the model reads of a text and an instruction."""
    instructed: bool
    """Whether the instruction changes what the model reads."""
    verbatim: bool = True
    """Whether an instruction reaches the prompt as it stands."""
    similarity: Similarity | None = None
    """First sentences, second sentences and conditions to n scores, of a model that gives no vectors."""


def inbedder_embedders(
    model: str | InBedder,
    *,
    pooling: str | None = None,
    layer: int = -1,
    batch_size: int = 64,
    filter_words: Callable[[str], Sequence[str]] | None = None,
    guided: int | None = None,
    subtract_instruction: bool | None = None,
    add_generic: bool | None = None,
    beside: str | None = None,
    cache: Path | None = None,
    cache_size: str | int | None = None,
    truncation_side: str = "right",
    verbatim: bool = False,
    **drawing: Any,
) -> list[Embedder]:
    """A model of this package, with the instruction and without (which asks ``@generic``, or of an embedding model nothing).

    Args:
        model: A name as ``InBedder`` takes it, or one that is loaded and read in another way.
        pooling: As ``InBedder`` takes it.
        layer: As ``InBedder`` takes it.
        batch_size: Most texts in one pass.
        filter_words: The words to leave out of the answer under an instruction (paper, section 4.3).
        guided: Read a sample of so many texts under an instruction and map the others' generic vectors (``encode_guided``).
        subtract_instruction: As ``InBedder`` takes it; not for one that is loaded.
        add_generic: As ``InBedder`` takes it; not for one that is loaded.
        beside: As ``InBedder`` takes it; not for one that is loaded.
        cache: As ``InBedder`` takes it; not for one that is loaded.
        cache_size: As ``InBedder`` takes it; not for one that is loaded.
        truncation_side: As ``InBedder`` takes it; not for one that is loaded.
        verbatim: Whether INSTRUCTOR's models, which learned "Represent the ... for ...:", are asked the questions as they stand.
        **drawing: reencoding, temperature, top_p and seed, as ``with_pooling`` takes them, of one that is loaded.

    Returns:
        Both variants; they share the weights. Of the folder of a conditional encoder that has no vector for one text: it alone.
    """
    if isinstance(model, str) and scores_pairs(model):
        return [_pair_embedder(model, batch_size)]
    if isinstance(model, str):
        kept: dict[str, Any] = {"cache": cache, "cache_size": cache_size, "truncation_side": truncation_side}
        kept |= {"subtract_instruction": subtract_instruction, "add_generic": add_generic, "beside": beside}
        model = InBedder(model, pooling=pooling, layer=layer, **kept)
    else:
        model = model.with_pooling(pooling, layer, **drawing)
    name = _name_of(model, pooling, layer, filter_words is not None, guided, subtract_instruction)
    name += {None: "", True: ", generic added", False: ", answer alone"}[add_generic]
    name += {None: "", "none": ", alone"}.get(beside, f", beside {beside}")
    revision = _revision_of(model, filter_words, guided)

    @lru_cache(maxsize=1)
    def read_before(texts: tuple[str, ...]) -> Vectors:
        return model.encode(texts, None, batch_size=batch_size)

    def instructed(texts: Sequence[str], instruction: str | Sequence[str]) -> Vectors:
        if guided and isinstance(instruction, str):
            known = read_before(tuple(texts))
            return np.asarray(model.encode_guided(texts, instruction, sample=guided, generic=known, batch_size=batch_size))
        if filter_words is None or isinstance(instruction, str):
            words = filter_words(str(instruction)) if filter_words else ()
            return model.encode(texts, instruction, batch_size=batch_size, filter_words=words)
        rows = [
            model.encode([text], question, filter_words=filter_words(question))
            for text, question in zip(texts, instruction, strict=True)
        ]
        return np.concatenate(rows)

    def generic(texts: Sequence[str], _instruction: str | Sequence[str]) -> Vectors:
        return model.encode(texts, None, batch_size=batch_size)

    asked = Embedder(name, revision, instructed, model.prompt, instructed=True)
    return [
        asked if verbatim else in_own_words(asked, model),
        Embedder(f"{name}, no instruction", revision, generic, lambda text, _: model.prompt(text, None), instructed=False),
    ]


def in_own_words(embedder: Embedder, model: InBedder) -> Embedder:
    """Ask a model in the words that it was trained on.

    Args:
        embedder: The model as it is read.
        model: What tells how it was trained: INSTRUCTOR's have a template of that name.

    Returns:
        The embedder, which asks "Represent the ... for ...: " in the place of a question where the model is INSTRUCTOR's.
    """
    if model.template.name != "instructor":
        return embedder

    def encode(texts: Sequence[str], instruction: str | Sequence[str]) -> Vectors:
        one = isinstance(instruction, str)
        return embedder.encode(texts, represented(str(instruction)) if one else [represented(each) for each in instruction])

    def prompt(text: str, instruction: str) -> str:
        return embedder.prompt(text, represented(instruction))

    revision = fingerprint([], [embedder.revision, "represented"])
    return replace(embedder, revision=revision, encode=encode, prompt=prompt, verbatim=False)


def _name_of(
    model: InBedder, pooling: str | None, layer: int, filters: bool, guided: int | None, subtract_instruction: bool | None
) -> str:
    """What a model is called in tables: its own name, and how it is read where that was asked for."""
    name = model.name
    name += f", {pooling}" if pooling else ""
    name += f", layer {layer}" if layer != -1 else ""
    drawn = model.reencoding if model.pooling == "re-enc" else model.sampling
    if model.pooling == "re-enc" or drawn.temperature:
        name += f", {drawn.n} answer{'s' * (drawn.n > 1)} at T={drawn.temperature:g}"
    name += ", filter words" if filters else ""
    name += f", guided {guided}" if guided else ""
    return name + ("" if subtract_instruction is None else f", instruction {'subtracted' if subtract_instruction else 'kept'}")


def _revision_of(model: InBedder, filter_words: Callable[[str], Sequence[str]] | None, guided: int | None) -> str:
    """What identifies the vectors of a model that is read in some way."""
    reads = (model.template.pattern, model.tokenizer.max_length, model.tokenizer.mask_length, f"torch.{model.precision}")
    pooled = [model.pooling] if model.backbone.bare else []  # the same files can be read in two ways
    filtered = [sorted(filter_words(""))] if filter_words else []
    mapped = [f"guided {guided}"] if guided else []
    subtracted = ["subtract_instruction"] if model.subtract_instruction else []
    added = ["add_generic"] if model.add_generic else []
    return fingerprint([], [model.revision, *reads, *pooled, *filtered, *mapped, *subtracted, *added, *_decoding(model)])


def _decoding(model: InBedder) -> list[str]:
    """What else decides the vectors of a model that is not read as most are."""
    cut = ["cut at the start"] if model.tokenizer.truncation_side == "left" else []
    reencoded = model.pooling == "re-enc"
    sampling = [str(model.sampling)] if reencoded or decodes(model.backbone, model.pooling) else []
    return [*cut, *sampling, *([str(model.reencoding)] if reencoded else [])]


def _pair_embedder(folder: str, batch_size: int) -> Embedder:
    from inbedder.conditional.encoder import ConditionalEncoder

    encoder = ConditionalEncoder.load(folder)
    files = sorted(Path(folder).rglob("*.safetensors"))
    revision = fingerprint([], [str(encoder.encoding), *(sha256_of(file) for file in files)])

    def similarity(first: Sequence[str], second: Sequence[str], conditions: Sequence[str]) -> Vectors:
        found: Vectors = encoder.similarity(first, second, condition=conditions, batch_size=batch_size)
        return found

    def encode(_texts: Sequence[str], _instruction: str | Sequence[str]) -> Vectors:
        raise InputError(f"{folder} scores pairs and has no vector for one text. Measure it on pairs alone: --task csts.")

    def prompt(text: str, instruction: str) -> str:
        parts, _ = encoder.read([text], ["..."], [instruction])
        return " | ".join(encoder.tokenizer.decode(ids) for ids in parts[0])

    return Embedder(folder, revision, encode, prompt, instructed=True, verbatim=False, similarity=similarity)


def mteb_embedders(name: str = "all-MiniLM-L6-v2", batch_size: int = 64) -> list[Embedder]:
    """A model of mteb or sentence-transformers as a baseline: instruction left out, in front of the text, in its own form.

    Args:
        name: A model that mteb knows, a hub id, a folder, or all-MiniLM-L6-v2 for the base of the bundled model.
        batch_size: Most texts in one pass.

    Returns:
        Two variants, and a third where the model has a prompt form of its own (E5-instruct ...); they share the weights.
    """
    from evaluation.mteb_encoder import load_mteb_model, loader_of, metadata_of

    model = load_mteb_model(name)
    folder = Path(resolve_name(name))
    files = sorted(folder.rglob("*.safetensors")) if folder.is_dir() else []
    revision = fingerprint([], [name, *(sha256_of(file) for file in files)] if files else [name, model.mteb_model_meta.revision])

    def encode(texts: Sequence[str], prompt: str | None) -> Vectors:
        loader, metadata = loader_of(texts, batch_size), metadata_of(prompt)
        vectors = model.encode(
            loader, task_metadata=metadata, hf_split="test", hf_subset="default", batch_size=batch_size, show_progress_bar=False
        )
        return np.asarray(vectors, dtype=np.float32)

    def plain(texts: Sequence[str], _instruction: str | Sequence[str]) -> Vectors:
        return encode(texts, None)

    def in_front(texts: Sequence[str], instruction: str | Sequence[str]) -> Vectors:
        instructions = [instruction] * len(texts) if isinstance(instruction, str) else instruction
        return encode([f"{instruction} {text}" for instruction, text in zip(instructions, texts, strict=True)], None)

    def own_form(texts: Sequence[str], instruction: str | Sequence[str]) -> Vectors:
        if isinstance(instruction, str):
            return encode(texts, instruction)
        rows: dict[str, list[int]] = defaultdict(list)
        for row, question in enumerate(instruction):
            rows[question].append(row)
        parts = {question: encode([texts[row] for row in places], question) for question, places in rows.items()}
        vectors = np.empty((len(texts), next(iter(parts.values())).shape[1]), dtype=np.float32)
        for question, places in rows.items():
            vectors[places] = parts[question]
        return vectors

    embedders = [
        Embedder(f"{name}, no instruction", revision, plain, lambda text, _: text, instructed=False),
        Embedder(
            f"{name}, instruction in front", revision, in_front, lambda text, question: f"{question} {text}", instructed=True
        ),
    ]
    if getattr(model, "instruction_template", None) is not None:

        def prompt(text: str, instruction: str) -> str:
            return f"{model.get_task_instruction(metadata_of(instruction), None)}{text}"

        embedders.append(Embedder(f"{name}, own prompt", revision, own_form, prompt, instructed=True))
    return embedders
