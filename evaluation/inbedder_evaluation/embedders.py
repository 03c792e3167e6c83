"""Embedders for the runner: with an instruction, without one, or with the instruction in the model's prompt format."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from inbedder.conditional.config import is_conditional_encoder
from inbedder.embedder import InBedder
from inbedder.encoding.guided import encode_general
from inbedder.errors import InputError
from inbedder.io.files import hash_file
from inbedder.models.bundled import resolve_name
from inbedder.options import NO_SECOND_MODEL
from inbedder.prompting.templates import PromptTemplate
from inbedder.vectors.vectors import Vectors
from inbedder_evaluation.instructor_prompts import to_instructor_prompt
from inbedder_evaluation.tasks.task import Similarity, fingerprint

if TYPE_CHECKING:
    from inbedder.conditional.pair_encoder import ConditionalEncoder

NAMED_OTHERWISE = {
    *("pooling", "layer", "temperature", "top_p", "seed", "reencoding", "subtract_instruction", "beside"),
    "truncation_side",  # part of the protocol
}
"""Options that a model's name in tables spells out in words or omits."""


@dataclass(frozen=True)
class Embedder:
    """Something that turns texts and instructions into vectors."""

    name: str
    """Name in tables, variant included."""
    revision: str
    """Identifies its weights and settings."""
    encode: Callable[[Sequence[str], str | Sequence[str]], Vectors]
    """Turns n texts and an instruction (or one per text) into vectors, float32, shape (n, d)."""
    prompt: Callable[[str, str], str]
    """Renders the prompt of a text and an instruction."""
    instructed: bool
    """Whether the instruction changes what the model reads."""
    verbatim: bool = True
    """Whether the prompt contains the instruction verbatim."""
    spec: Mapping[str, Any] | None = None
    """The settings that determine its vectors (``VectorSpec.contents``), for models of this package."""
    similarity: Similarity | None = None
    """Scores n pairs from first sentences, second sentences and conditions, for models without vectors."""
    encode_many: Callable[[Sequence[str], Sequence[str]], Vectors] | None = None
    """Turns n texts and m instructions into vectors, shape (m, n, d), faster than m calls of ``encode``; None if it cannot."""
    count_tokens: Callable[[Sequence[str]], list[int]] | None = None
    """Counts the tokens of n texts, special tokens included; None for models that are not of this package."""


def make_embedders(
    model: str | InBedder,
    *,
    batch_size: int = 64,
    uninformative: Callable[[str | None], Sequence[str]] | None = None,
    guided: int | None = None,
    verbatim: bool = False,
    **options: Any,
) -> list[Embedder]:
    """Make two embedders from a model of this package, with the instruction and without.

    Args:
        model: A model name, hub id or folder, or a loaded InBedder, to which the options are applied.
        batch_size: Maximum number of texts in one pass.
        uninformative: Lists the words to leave out of the answer, given the instruction that all texts share, or None where each
            has its own (paper, section 4.3).
        guided: Number of texts to read under the instruction; the other vectors are mapped from generic ones (``encode_guided``).
        verbatim: Whether INSTRUCTOR models, trained on "Represent the ... for ...:", get the questions unchanged.
        **options: Further arguments of ``InBedder``, or of its ``replace`` when the model is loaded.

    Returns:
        Both variants, which share the weights. A conditional encoder that only scores pairs yields a single embedder.
    """
    if isinstance(model, str) and is_conditional_encoder(model):
        return [_load_pair_embedder(model, batch_size)]
    model = InBedder(model, **options) if isinstance(model, str) else model.replace(**options)
    if (precision := model.options.encoding.precision).endswith("binary"):
        raise InputError(
            f"Scores compare vectors by cosine, which packed bits do not have. Replace precision={precision!r} by 'int8'."
        )
    if verbatim and model.template.name == "instructor":
        model = model.replace(template="prefix")  # the same pattern without a form for questions
    name = _name_of(model, options, uninformative is not None, guided)
    words = [[*uninformative(None), "and shared questions"]] if uninformative else []
    revision = fingerprint([], [model.spec.key(), *words, *([f"guided {guided}"] if guided else [])])

    @lru_cache(maxsize=1)
    def read_before(texts: tuple[str, ...]) -> Vectors:
        return encode_general(model, texts, batch_size=batch_size)

    def encode_instructed(texts: Sequence[str], instruction: str | Sequence[str]) -> Vectors:
        if guided and isinstance(instruction, str):
            generic_vectors = read_before(tuple(texts))
            return np.asarray(
                model.encode_guided(texts, instruction, sample=guided, generic=generic_vectors, batch_size=batch_size)
            )
        filter_words = uninformative(instruction if isinstance(instruction, str) else None) if uninformative else ()
        return model.encode(texts, instruction, batch_size=batch_size, filter_words=filter_words)

    def encode_generic(texts: Sequence[str], _instruction: str | Sequence[str]) -> Vectors:
        return model.encode(texts, None, batch_size=batch_size)

    spec = model.spec.contents()
    encode_many = None if guided or uninformative else partial(model.encode_many, batch_size=batch_size)
    with_question = Embedder(
        name,
        revision,
        encode_instructed,
        model.prompt,
        instructed=True,
        spec=spec,
        encode_many=encode_many,
        count_tokens=partial(count_tokens, model),
    )
    without_question = Embedder(
        f"{name}, no instruction", revision, encode_generic, lambda text, _: model.prompt(text, None), instructed=False, spec=spec
    )
    return [with_question if verbatim else use_training_prompts(with_question, model), without_question]


def count_tokens(model: InBedder, texts: Sequence[str]) -> list[int]:
    """Count the tokens of texts without a template, special tokens included."""
    return [len(ids) for ids in model.tokenizer.tokenizer(list(texts))["input_ids"]]


def use_training_prompts(embedder: Embedder, model: InBedder) -> Embedder:
    """Reword instructions as the prompts that a model was trained on.

    Args:
        embedder: The embedder to wrap.
        model: Its model; INSTRUCTOR models are recognized by the name of their template.

    Returns:
        For an INSTRUCTOR model, an embedder that turns questions into "Represent the ... for ...: "; else the embedder itself.
    """
    if model.template.name != "instructor":
        return embedder

    def encode(texts: Sequence[str], instruction: str | Sequence[str]) -> Vectors:
        one = isinstance(instruction, str)
        return embedder.encode(
            texts, to_instructor_prompt(str(instruction)) if one else [to_instructor_prompt(each) for each in instruction]
        )

    def render_prompt(text: str, instruction: str) -> str:
        return embedder.prompt(text, to_instructor_prompt(instruction))

    revision = fingerprint([], [embedder.revision, "represented"])
    return replace(embedder, revision=revision, encode=encode, prompt=render_prompt, verbatim=False, encode_many=None)


def _name_of(model: InBedder, options: Mapping[str, Any], filters: bool, guided: int | None) -> str:
    """Format a model's name for tables: its own name and the options that were set."""
    pooling, subtract, beside = (options.get(name) for name in ("pooling", "subtract_instruction", "beside"))
    layer, encoding = options.get("layer", -1), model.options.encoding
    sampling = encoding.reencoding or encoding.sampling
    parts = [
        str(pooling) if pooling else "",
        f"layer {layer}" if layer != -1 else "",
        f"{sampling.n} answer{'s' * (sampling.n > 1)} at T={sampling.temperature:g}"
        if encoding.reencoding or sampling.temperature
        else "",
        "filter words" if filters else "",
        f"guided {guided}" if guided else "",
        {None: "", True: "instruction subtracted", False: "instruction kept"}[subtract],
        {None: "", NO_SECOND_MODEL: "alone"}.get(beside, f"beside {beside}"),
    ]
    deciding = model.pipeline.requested.get_deciding_options().keys() & options.keys()
    parts += [f"{name}={_format_option(options[name])}" for name in sorted(deciding - NAMED_OTHERWISE)]
    return ", ".join([model.name, *filter(None, parts)])


def _format_option(value: Any) -> str:
    """Format the value of an option: a template by its name, or by its pattern if it is the user's own."""
    if isinstance(value, PromptTemplate):
        value = value.pattern if value.name == "custom" else value.name
    return repr(value)


def make_bi_encoder_embedders(base: str, batch_size: int = 64) -> list[Embedder]:
    """Make the zero-shot bi-encoder of the C-STS paper (section 5.1, table 2): the cosine of two states of [CLS], not trained.

    Args:
        base: A BERT-like model: a hub id or a folder.
        batch_size: Maximum number of pairs in one pass.

    Returns:
        Two embedders that share the weights: one reads each sentence and the condition as a pair of texts, one only sentences.
    """
    from inbedder.backbones.hub import open_model
    from inbedder.backbones.weights import find_model, resolve_device
    from inbedder.conditional.config import Encoding, load_parts
    from inbedder.conditional.encoder import BiEncoder
    from inbedder.options import ModelOptions

    backbone, tokenizer = load_parts(base)
    weights_revision = find_model(open_model(base), ModelOptions(base)).files.revision
    pair_encoding = Encoding(kind="bi", input="pair", pooler="cls")
    embedders = []
    encodings = {"bi-encoder": pair_encoding, "bi-encoder, sentences only": replace(pair_encoding, reads="sentences")}
    for name, encoding in encodings.items():
        encoder = BiEncoder(backbone, tokenizer, encoding).to(resolve_device(None)).eval()
        revision = fingerprint([], [str(encoding), weights_revision])
        embedders.append(_make_pair_embedder(f"{base}, {name}", encoder, revision, batch_size))
    return embedders


def _load_pair_embedder(folder: str, batch_size: int) -> Embedder:
    from inbedder.conditional.encoder import ConditionalEncoder

    encoder = ConditionalEncoder.load(folder)
    files = sorted(path for kind in ("*.safetensors", "pytorch_model*.bin") for path in Path(folder).rglob(kind))
    revision = fingerprint([], [str(encoder.encoding), *(hash_file(file) for file in files)])
    return _make_pair_embedder(folder, encoder, revision, batch_size)


def _make_pair_embedder(name: str, encoder: ConditionalEncoder, revision: str, batch_size: int) -> Embedder:
    def score_pairs(first: Sequence[str], second: Sequence[str], conditions: Sequence[str]) -> Vectors:
        scores: Vectors = encoder.similarity(first, second, condition=conditions, batch_size=batch_size)
        return scores

    def encode(_texts: Sequence[str], _instruction: str | Sequence[str]) -> Vectors:
        raise InputError(f"{name} scores pairs and has no vector for one text. Measure it on pairs only: --task csts.")

    def render_prompt(text: str, instruction: str) -> str:
        parts, _ = encoder.read([text], ["..."], [instruction])
        return " | ".join(encoder.tokenizer.decode(ids) for ids in parts[0])

    return Embedder(
        name,
        revision,
        encode,
        render_prompt,
        instructed=encoder.encoding.reads != "sentences",
        verbatim=False,
        similarity=score_pairs,
    )


def make_mteb_embedders(name: str = "all-MiniLM-L6-v2", batch_size: int = 64) -> list[Embedder]:
    """Make baselines from a model of mteb or sentence-transformers: without the instruction, as a prefix, in its own prompt.

    Args:
        name: A model that mteb knows, a hub id, a folder, or all-MiniLM-L6-v2 for the base of the bundled model.
        batch_size: Maximum number of texts in one pass.

    Returns:
        Two variants, and a third when the model has its own prompt format (such as E5-instruct); they share the weights.
    """
    from inbedder_evaluation.mteb_adapters import load_mteb_model, make_loader, make_metadata

    model = load_mteb_model(name)
    folder = Path(resolve_name(name))
    kinds = ("*.safetensors", "pytorch_model*.bin") if folder.is_dir() else ()
    files = sorted(path for kind in kinds for path in folder.rglob(kind))
    revision = fingerprint([], [name, *(hash_file(file) for file in files)] if files else [name, model.mteb_model_meta.revision])

    def encode(texts: Sequence[str], prompt: str | None) -> Vectors:
        loader, metadata = make_loader(texts, batch_size), make_metadata(prompt)
        vectors = model.encode(
            loader, task_metadata=metadata, hf_split="test", hf_subset="default", batch_size=batch_size, show_progress_bar=False
        )
        return np.asarray(vectors, dtype=np.float32)

    def encode_plain(texts: Sequence[str], _instruction: str | Sequence[str]) -> Vectors:
        return encode(texts, None)

    def encode_with_prefix(texts: Sequence[str], instruction: str | Sequence[str]) -> Vectors:
        instructions = [instruction] * len(texts) if isinstance(instruction, str) else instruction
        return encode([f"{instruction} {text}" for instruction, text in zip(instructions, texts, strict=True)], None)

    def encode_with_own_prompt(texts: Sequence[str], instruction: str | Sequence[str]) -> Vectors:
        if isinstance(instruction, str):
            return encode(texts, instruction)
        rows: dict[str, list[int]] = defaultdict(list)
        for row, question in enumerate(instruction):
            rows[question].append(row)
        parts = {question: encode([texts[row] for row in row_indices], question) for question, row_indices in rows.items()}
        vectors = np.empty((len(texts), next(iter(parts.values())).shape[1]), dtype=np.float32)
        for question, row_indices in rows.items():
            vectors[row_indices] = parts[question]
        return vectors

    embedders = [
        Embedder(f"{name}, no instruction", revision, encode_plain, lambda text, _: text, instructed=False),
        Embedder(
            f"{name}, instruction in front",
            revision,
            encode_with_prefix,
            lambda text, question: f"{question} {text}",
            instructed=True,
        ),
    ]
    if getattr(model, "instruction_template", None) is not None:

        def render_prompt(text: str, instruction: str) -> str:
            return f"{model.get_task_instruction(make_metadata(instruction), None)}{text}"

        embedders.append(Embedder(f"{name}, own prompt", revision, encode_with_own_prompt, render_prompt, instructed=True))
    return embedders
