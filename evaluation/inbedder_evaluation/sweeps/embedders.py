"""The embedders that a sweep compares: one model under several poolings, layers, filters, precisions or instructions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from inbedder.backbones.protocol import needs_decoding
from inbedder.embedder import InBedder
from inbedder.options import NO_SECOND_MODEL, Reencoding
from inbedder.vectors.vectors import Vectors
from inbedder_evaluation.embedders import Embedder, make_embedders, use_training_prompts
from inbedder_evaluation.tasks.instruction_detail import make_gibberish
from inbedder_evaluation.tasks.task import fingerprint, read_instructions

PHRASES = ("Based on ", "Sure! ")
"""Phrases that chat models begin answers with, as the authors' code leaves them out."""
SAMPLES = ((1, 0.0), (1, 0.6), (1, 0.8), (10, 0.8))
"""Answers per text and temperature of re-encoding (figure 2). The authors' runs with one answer use 0.6 for Llama and 0 for
Flan-T5, those with ten answers 0.8."""

ModelOptions = Mapping[str, Any]
"""Keyword arguments of ``InBedder``."""


def load_single_model(name: str, options: ModelOptions) -> InBedder:
    """Load a model without its second model, unless the options name one."""
    return InBedder(name, **{"beside": NO_SECOND_MODEL, **options})


def make_pooling_embedders(name: str, options: ModelOptions, sampling: ModelOptions) -> list[Embedder]:
    """Make an embedder per pooling of a model, and one per way of re-encoding its answers.

    Args:
        name: Name, hub id or folder of the model.
        options: Options of the model; those of ``reencoding`` other than number and temperature apply to re-encoding.
        sampling: temperature and top_p of the answer whose states are pooled.

    Returns:
        The embedders.
    """
    options = dict(options)
    reencoding = options.pop("reencoding", None) or Reencoding()
    loaded = load_single_model(name, options)
    embedders = [
        make_embedders(loaded, pooling=pooling, **(sampling if needs_decoding(loaded.backbone, pooling) else {}))[0]
        for pooling in loaded.backbone.poolings
    ]
    for count, temperature in SAMPLES if loaded.backbone.answers else ():
        settings = replace(reencoding, n=count, temperature=temperature)
        embedders.append(make_embedders(loaded, pooling="re-enc", reencoding=settings)[0])
    return embedders


def make_layer_embedders(name: str, options: ModelOptions, sampling: ModelOptions, step: int) -> dict[int, Embedder]:
    """Make an embedder per layer of a model.

    Args:
        name: Name, hub id or folder of the model.
        options: Options of the model.
        sampling: temperature and top_p of the answer, for poolings that read one.
        step: Step between layers, counted from the last.

    Returns:
        The embedders by number of the layer.
    """
    loaded = load_single_model(name, options)
    settings = {"pooling": options.get("pooling"), **(sampling if needs_decoding(loaded.backbone, loaded.pooling) else {})}
    layers = sorted(range(loaded.backbone.num_layers, -1, -step))
    return {layer: make_embedders(loaded, layer=layer, **settings)[0] for layer in layers}


def make_filter_embedders(name: str, options: ModelOptions, sampling: ModelOptions) -> list[Embedder]:
    """Make two embedders of avg-gen: with all states of the answer, and without those of uninformative words."""
    loaded = load_single_model(name, options)
    return [
        make_embedders(loaded, pooling="avg-gen", uninformative=choice, **sampling)[0]
        for choice in (None, list_uninformative_words)
    ]


def list_uninformative_words(instruction: str | None) -> list[str]:
    """List the words that the authors' code leaves out of an answer: NLTK's stopwords, two phrases and the questions of the set.

    Args:
        instruction: The question that all texts of the set share; None where each text has its own, as in InstructSTSB. The
            authors then leave out no question, and in IntentEmotion always both.

    Returns:
        Words and phrases, whose tokens are left out one by one.
    """
    from inbedder.prompting.stopwords import load_stopwords

    pair = set(read_instructions("intent_emotion").values())
    questions = pair if instruction in pair else {instruction or ""}
    return sorted({*load_stopwords("nltk"), *PHRASES, *questions} - {""})


def make_gibberish_embedders(name: str, options: ModelOptions) -> list[Embedder]:
    """Make three embedders of a model: real instructions, meaningless ones of the same shape, and none."""
    loaded = InBedder(name, **options)
    real, without_instruction = make_embedders(loaded)
    as_written = make_embedders(loaded, verbatim=True)[0]
    return [real, use_training_prompts(_replace_instructions(as_written), loaded), without_instruction]


def _replace_instructions(embedder: Embedder) -> Embedder:
    def encode(texts: Sequence[str], instruction: str | Sequence[str]) -> Vectors:
        return embedder.encode(
            texts, make_gibberish([instruction])[0] if isinstance(instruction, str) else make_gibberish(instruction)
        )

    def render_prompt(text: str, instruction: str) -> str:
        return embedder.prompt(text, make_gibberish([instruction])[0])

    name, revision = f"{embedder.name}, gibberish", fingerprint([], [embedder.revision, "gibberish"])
    return replace(embedder, name=name, revision=revision, encode=encode, prompt=render_prompt, verbatim=False)
