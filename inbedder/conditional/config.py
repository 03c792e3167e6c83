"""How a conditional encoder is set up, what it is built on, and the folder it becomes.

A saved model is safetensors and json. The bi-encoder of a template, with pooler "mean" and no MLP, is an ordinary folder of
sentence-transformers (mean over all tokens, then length 1): ``SentenceTransformer(folder).encode(s, prompt=f"{c}: ")`` and
``InBedder(folder).encode(s, c)`` give its vectors; with a template that puts the condition behind the sentence only the second
does. Every other setting keeps its backbone in ``backbone/`` and its head in ``head.safetensors``, so that no loader takes it for
an embedder: ``ConditionalEncoder.load`` alone reads it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from inbedder.backbones.hub import MODULES_FILE, PAIRS_FILE, SETTINGS_FILE
from inbedder.backbones.weights import find_model, load_weights
from inbedder.errors import InputError, ModelError, RecipeError
from inbedder.io.files import atomic_write
from inbedder.options import ModelOptions
from inbedder.prompting.templates import check_strings

if TYPE_CHECKING:
    from transformers import PretrainedConfig, PreTrainedTokenizerBase

Pooler = Literal["cls", "cls_before_pooler", "avg", "mean", "avg_first_last", "avg_top2", "pooler", "spans", "masks", "last"]
"""The names of the authors' code and five of ours. "cls" and "cls_before_pooler", one and the same there: the last layer's state
of the first token; the paper's "[CLS] with MLP" is "cls" with ``transform``. "avg", or "mean" as the rest of this package says:
the mean of the last layer's states over all tokens; "avg_first_last": of the token embeddings' layer and the last one;
"avg_top2": of the last two layers. Not the authors': "pooler", the backbone's own (BERT's dense layer and tanh); "spans", of the
cross-encoder alone, the last layer's mean over each sentence, the two compared; "masks", of the bi-encoder of a template, the
mean of the masks behind the prompt, where a masked LM of this package answers (avg-gen); "last", of decoders, the last layer's
state of the last token, which is about to answer (1st-gen)."""
NUM_MASKS = 3
"""Masks behind a prompt of the pooler "masks"."""


@dataclass(frozen=True)
class Encoding:
    """How two sentences and a condition become a score; saved with the model."""

    __pydantic_config__: ClassVar = {"extra": "forbid"}  # recipes refuse settings that are not described here

    kind: Literal["cross", "bi", "tri"] = "bi"
    """Which of the paper's encoders."""
    pooler: Pooler = "mean"
    """What makes a vector of the states."""
    transform: bool = False
    """Whether an MLP (dropout, linear, the backbone's activation) follows the pooler."""
    combine: Literal["hadamard", "mlp"] = "hadamard"
    """Tri-encoder: how the vectors of sentence and condition become one; the authors call "mlp" concat."""
    template: str = "{instruction}: {input}"
    """Bi-encoder, input "template": how condition (the instruction) and sentence (the input) are put together."""
    input: Literal["template", "pair"] = "template"
    """Bi-encoder: "template" renders sentence and condition as one text; "pair" gives the backbone two texts, as the authors do:
    [CLS] sentence [SEP] condition [SEP] (RoBERTa's pairs have [SEP] twice in the middle)."""
    reads: Literal["all", "sentences", "condition"] = "all"
    """All, or an ablation of the paper (appendix A.3): "sentences" (cross, bi) or "condition" alone (cross)."""
    max_length: int = 128
    """Longest input in tokens; sentences are cut at their end, conditions never."""
    scaled: tuple[float, ...] = (0.0, 1.0)
    """What the ratings 1 and 5 become (``inbedder_finetune.conditional.conditional_losses.scale_rating``)."""

    @property
    def is_plain(self) -> bool:
        """Whether the model is an ordinary sentence-transformers folder."""
        is_mean = self.pooler in ("avg", "mean") and not self.transform
        return self.kind == "bi" and is_mean and self.input == "template" and self.reads == "all"


def load_parts(name: str) -> tuple[Any, PreTrainedTokenizerBase]:
    """The one loader of backbones: any BERT-like model, or a decoder.

    Args:
        name: all-MiniLM-L6-v2 or mini (both bundled), small, a hub id or a folder; an adapter of a language model, as mini and
            small have, is merged.

    Returns:
        The model without a head, float32, and its tokenizer.

    Raises:
        ModelError: When it is not found, damaged, or neither a BERT-like encoder nor a decoder.
    """
    from transformers import AutoModel, AutoModelForCausalLM, AutoModelForMaskedLM

    found = find_model(ModelOptions(name))
    decoder = is_decoder(found.config)
    if found.config.is_encoder_decoder or not (decoder or has_pair_tokens(found.tokenizer)):
        raise ModelError(
            f"{name} is neither a BERT-like encoder (with [CLS] and [SEP]) nor a decoder. Choose one such as all-MiniLM-L6-v2 or "
            "roberta-base."
        )
    options = ModelOptions(name, dtype="float32", device="cpu")
    if found.adapter is not None:
        kind, model_class = ("causal", AutoModelForCausalLM) if decoder else ("masked", AutoModelForMaskedLM)
        loaded = load_weights(found, kind, model_class, options)
        return loaded.model.base_model, loaded.tokenizer
    loaded = load_weights(found, "embedding", AutoModel, options, headless=True)
    return loaded.model, loaded.tokenizer


def is_decoder(config: PretrainedConfig) -> bool:
    """Whether a backbone is a causal language model, with or without its head."""
    from transformers.models.auto import modeling_auto

    masked = modeling_auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES
    return config.model_type in modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES and config.model_type not in masked


def has_pair_tokens(tokenizer: PreTrainedTokenizerBase) -> bool:
    """Whether a tokenizer has [CLS] and [SEP], as those of BERT-like models do."""
    return tokenizer.cls_token_id is not None and tokenizer.sep_token_id is not None


def find_backbone_folder(folder: Path, encoding: Encoding) -> Path:
    """Return the folder of a saved encoder's backbone: the encoder's own, or ``backbone`` in it."""
    return folder if encoding.is_plain else folder / "backbone"


def is_conditional_encoder(folder: Path | str) -> bool:
    """Whether a folder, or any other name of a model, holds an encoder that only ``ConditionalEncoder.load`` reads."""
    return (Path(folder) / PAIRS_FILE).is_file() and not (Path(folder) / MODULES_FILE).is_file()


def check_folder(folder: Path, encoding: Encoding) -> None:
    """Refuse a folder whose encoder would leave files behind that do not fit.

    Args:
        folder: Where an encoder shall be saved; it need not exist.
        encoding: Its settings.

    Raises:
        RecipeError: When another kind of encoder lies there.
    """
    try:
        before = json.loads((folder / PAIRS_FILE).read_text(encoding="utf-8"))["encoding"]
    except (OSError, ValueError, KeyError, TypeError):
        return
    changed = [name for name, value in json.loads(json.dumps(asdict(encoding))).items() if before.get(name) != value]
    if changed:
        raise RecipeError(
            f"{folder} holds an encoder with another {', '.join(changed)}. Remove it, or choose another training.output."
        )


def save_modules(folder: Path, width: int, encoding: Encoding) -> None:
    """Write what makes a folder one of sentence-transformers (of any version) and of ``InBedder``.

    Args:
        folder: Where the backbone and its tokenizer are.
        width: Length of a vector.
        encoding: Template and length.
    """
    modules = [
        {"idx": number, "name": str(number), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for number, (kind, path) in enumerate((("Transformer", ""), ("Pooling", "1_Pooling"), ("Normalize", "2_Normalize")))
    ]
    pooling = {"word_embedding_dimension": width, "pooling_mode_mean_tokens": True, "include_prompt": True}
    (folder / "1_Pooling").mkdir(exist_ok=True)
    write_json(folder / "1_Pooling" / "config.json", pooling)
    write_json(folder / "sentence_bert_config.json", {"max_seq_length": encoding.max_length, "do_lower_case": False})
    write_json(folder / MODULES_FILE, modules)
    write_json(folder / SETTINGS_FILE, {"backbone": "embedding", "template": encoding.template})


def write_json(path: Path, content: Any) -> None:
    """Write a json file, whole or not at all."""
    with atomic_write(path) as temporary:
        temporary.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def broadcast(given: dict[str, str | Sequence[str]]) -> list[list[str]]:
    """Make columns of one length.

    Args:
        given: By name, a text for all rows or one per row.

    Returns:
        Lists of texts, in the order of the names.

    Raises:
        InputError: When lengths differ or something is not a string.
    """
    lists = {name: check_strings(name, value) for name, value in given.items() if not isinstance(value, str)}
    counts = {name: len(values) for name, values in lists.items()}
    if len(set(counts.values())) > 1:
        raise InputError(
            f"Numbers differ: {', '.join(f'{count} of {name}' for name, count in counts.items())}. Give one per pair."
        )
    count = next(iter(counts.values()), 1)
    return [lists.get(name, [str(value)] * count) for name, value in given.items()]
