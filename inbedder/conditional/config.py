"""Settings, backbone and folder of a conditional encoder.

A saved model consists of safetensors and json. The bi-encoder with a template, pooler "mean" and no MLP is an ordinary
sentence-transformers folder (mean over all tokens, normalized): ``SentenceTransformer(folder).encode(s, prompt=f"{c}: ")`` and
``InBedder(folder).encode(s, c)`` return its vectors; if the template puts the condition after the sentence, only the second does.
All other encoders have their backbone in ``backbone/`` and their head in ``head.safetensors``, so that no loader mistakes them
for embedding models: only ``ConditionalEncoder.load`` reads them.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from inbedder.backbones.families import FAMILIES
from inbedder.backbones.hub import MODULES_FILE, PAIRS_FILE, SETTINGS_FILE, open_model
from inbedder.backbones.weights import find_model, load_weights
from inbedder.errors import InputError, ModelError, RecipeError
from inbedder.io.files import atomic_write
from inbedder.options import ModelOptions
from inbedder.prompting.templates import check_strings
from inbedder.runtime.user_paths import expand_path

if TYPE_CHECKING:
    from transformers import PretrainedConfig, PreTrainedTokenizerBase

Pooler = Literal["cls", "cls_before_pooler", "avg", "mean", "avg_first_last", "avg_top2", "pooler", "spans", "masks", "last"]
"""The poolers of the authors' code, and five of ours.

- "cls" and "cls_before_pooler" (the same in their code): the last layer's state of the first token. The paper's "[CLS] with MLP"
  is "cls" with ``transform``.
- "avg", or "mean" as elsewhere in this package: the mean of the last layer's states over all tokens.
- "avg_first_last": the mean over the token embeddings and the last layer; "avg_top2": the mean over the last two layers.
- Ours: "pooler", the backbone's own (BERT's dense layer and tanh); "spans", only for cross-encoders, the last layer's mean over
  each sentence, to compare the two; "masks", for bi-encoders with a template, the mean of the masks after the prompt, with which
  a masked LM of this package answers (avg-gen); "last", for decoders, the last layer's state of the last token, which is about
  to answer (1st-gen)."""
NUM_MASKS = 3
"""Number of masks after a prompt for the pooler "masks"."""


@dataclass(frozen=True)
class Encoding:
    """The settings that turn two sentences and a condition into a score; saved with the model."""

    __pydantic_config__: ClassVar = {"extra": "forbid"}  # recipes reject unknown settings

    kind: Literal["cross", "bi", "tri"] = "bi"
    """One of the paper's encoders."""
    pooler: Pooler = "mean"
    """The pooling of the hidden states."""
    transform: bool = False
    """Whether an MLP (dropout, linear, the backbone's activation) follows the pooler."""
    combine: Literal["hadamard", "mlp"] = "hadamard"
    """Tri-encoder: how to combine the vectors of sentence and condition; the authors call "mlp" concat."""
    template: str = "{instruction}: {input}"
    """Bi-encoder, input "template": the pattern of condition (the instruction) and sentence (the input)."""
    input: Literal["template", "pair"] = "template"
    """Bi-encoder: "template" renders sentence and condition as one text. "pair" passes two texts to the backbone, as the authors
    do: [CLS] sentence [SEP] condition [SEP], with [SEP] twice in the middle for RoBERTa."""
    reads: Literal["all", "sentences", "condition"] = "all"
    """What to read: "all", or for an ablation of the paper (appendix A.3) only "sentences" (cross, bi) or only the "condition"
    (cross)."""
    max_length: int = 128
    """Maximum input length in tokens; sentences are cut at their end, conditions never."""
    scaled: tuple[float, ...] = (0.0, 1.0)
    """The training targets of the lowest and the highest rating, which are 1 and 5 in C-STS
    (``inbedder_finetune.conditional.conditional_losses.scale_rating``)."""

    @property
    def is_plain(self) -> bool:
        """Whether the model is an ordinary sentence-transformers folder."""
        is_mean = self.pooler in ("avg", "mean") and not self.transform
        return self.kind == "bi" and is_mean and self.input == "template" and self.reads == "all"


def load_parts(name: str) -> tuple[Any, PreTrainedTokenizerBase]:
    """Load a backbone without its head: any BERT-like model, or a decoder.

    Args:
        name: all-MiniLM-L6-v2, mini, small, a hub id or a folder. An adapter of a language model, such as mini and small, is
            merged.

    Returns:
        The model in float32, and its tokenizer.

    Raises:
        ModelError: If the model is not found, damaged, or neither a BERT-like encoder nor a decoder.
    """
    from transformers import AutoModel

    options = ModelOptions(name, dtype="float32", device="cpu")
    resolved = find_model(open_model(options.model), options)
    causal = is_decoder(resolved.config)
    if resolved.config.is_encoder_decoder or not (causal or has_pair_tokens(resolved.tokenizer)):
        raise ModelError(
            f"{name} is neither a BERT-like encoder (with [CLS] and [SEP]) nor a decoder. Choose another, such as "
            "all-MiniLM-L6-v2 or roberta-base."
        )
    if resolved.adapter is not None:
        kind = "causal" if causal else "masked"
        family = FAMILIES[kind]
        loaded = load_weights(resolved, kind, family.model_class(resolved.config), options, prepare=family.prepare)
        return loaded.model.base_model, loaded.tokenizer
    loaded = load_weights(resolved, "embedding", AutoModel, options, headless=True)
    return loaded.model, loaded.tokenizer


def is_decoder(config: PretrainedConfig) -> bool:
    """Return whether a backbone is a causal language model, with or without its head."""
    from transformers.models.auto import modeling_auto

    masked_types = modeling_auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES
    return config.model_type in modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES and config.model_type not in masked_types


def has_pair_tokens(tokenizer: PreTrainedTokenizerBase) -> bool:
    """Return whether a tokenizer has [CLS] and [SEP], like those of BERT-like models."""
    return tokenizer.cls_token_id is not None and tokenizer.sep_token_id is not None


def find_backbone_folder(folder: Path, encoding: Encoding) -> Path:
    """Return the folder of a saved encoder's backbone: the encoder's own folder, or ``backbone`` in it."""
    return folder if encoding.is_plain else folder / "backbone"


def is_conditional_encoder(folder: Path | str) -> bool:
    """Return whether the name of a model is a folder that only ``ConditionalEncoder.load`` reads."""
    folder = expand_path(folder)
    return (folder / PAIRS_FILE).is_file() and not (folder / MODULES_FILE).is_file()


def check_folder(folder: Path, encoding: Encoding) -> None:
    """Reject an output folder that contains an encoder of other settings, some of whose files would stay."""
    try:
        old_settings = json.loads((folder / PAIRS_FILE).read_text(encoding="utf-8"))["encoding"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return
    new_settings = json.loads(json.dumps(asdict(encoding)))
    changed = [name for name, value in new_settings.items() if old_settings.get(name) != value]
    if changed:
        raise RecipeError(
            f"{folder} contains an encoder with another {', '.join(changed)}. Remove it, or choose another training.output."
        )


def save_modules(folder: Path, width: int, encoding: Encoding) -> None:
    """Write the files that make a folder loadable by sentence-transformers (any version) and by ``InBedder``.

    Args:
        folder: The folder of the backbone and its tokenizer.
        width: Length of a vector.
        encoding: Template and maximum length.
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
    """Write a json file atomically."""
    with atomic_write(path) as temporary:
        temporary.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def broadcast(values: dict[str, str | Sequence[str]]) -> list[list[str]]:
    """Expand single texts, so that all columns have one length; reject other lengths and values that are not strings."""
    lists = {name: check_strings(name, value) for name, value in values.items() if not isinstance(value, str)}
    counts = {name: len(texts) for name, texts in lists.items()}
    if len(set(counts.values())) > 1:
        raise InputError(
            f"Numbers differ: {', '.join(f'{count} of {name}' for name, count in counts.items())}. Pass one per pair."
        )
    count = next(iter(counts.values()), 1)
    return [lists.get(name, [str(value)] * count) for name, value in values.items()]
