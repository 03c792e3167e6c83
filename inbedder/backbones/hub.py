"""Files of a model folder or hub repository, and the settings that fine-tuning saved with the weights."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import huggingface_hub

from inbedder.errors import ModelError, format_value
from inbedder.models.bundled import resolve_name

SETTINGS_FILE = "inbedder.json"
MODULES_FILE = "modules.json"
PAIRS_FILE = "conditional.json"
LEARNED_TOKENS_CONFIG = "encoder_decoder_config.json"
"""The file of an LLM2Vec-Gen, whose adapter is in ``encoder/`` (``learned_tokens``)."""
CONFIG_FILES = ("config.json", "adapter_config.json", LEARNED_TOKENS_CONFIG)
MAX_LABELS = 1_000_000
"""Maximum number of labels of a model; transformers makes a name for each before it reads the weights."""
LOCAL_IMPLEMENTATIONS = (
    "eager",
    "sdpa",
    "flex_attention",
    "flash_attention_2",
    "flash_attention_3",
    "batched_mm",
    "grouped_mm",
    "paged|eager",
)
"""Implementations of attention and experts that are installed code; transformers fetches any other from a hub repository."""


@dataclass(frozen=True)
class Settings:
    """A fine-tuned model's settings, from ``inbedder.json`` in its folder."""

    base: str | None = None
    """The model that an adapter was trained on."""
    template: str | None = None
    """Name or pattern of the training prompts' template."""
    mask_length: int | None = None
    """Number of mask tokens after the prompt."""
    backbone: str | None = None
    """"embedding" for an embedding model; None leaves it to the model's configuration."""
    late_interaction: bool | None = None
    """Whether a masked LM was trained to read text and question separately."""
    language_directions: int | None = None
    """Number of directions in which languages differ that late interaction takes out of the text's own vector."""
    question_adapter: bool | None = None
    """Whether the adapter of a causal LM applies to the question's and the answer's tokens only, and its base reads the text."""
    pooling: str | None = None
    """The pooling of the training; None leaves it to the model's family."""
    max_new_tokens: int | None = None
    """Maximum answer length in tokens."""
    min_confidence: float | None = None
    """Minimum confidence of an answer that is shown; None shows every answer."""
    subtract_instruction: bool | None = None
    """Whether v("", instruction) is subtracted from each vector."""
    base_encoder: str | None = None
    """The embedding model that encodes texts without an instruction; None if the model uses ``@generic``."""
    beside: str | None = None
    """The second model, whose vectors are appended; None for none."""
    normalize: bool | None = None
    """Whether vectors have length 1."""
    matryoshka_dims: Sequence[int] | None = None
    """The lengths for which truncated vectors were trained (Matryoshka representation learning)."""
    prompts: Mapping[str, str] | None = None
    """An embedding model's default prompts for a "query", a "document" and any other text (""); None for models that answer."""
    add_special_tokens: bool | None = None
    """Whether the tokenizer adds its special tokens to prompts; None means it does."""


_GIRCSE = Settings(template="qwen3-embedding", pooling="soft-gen", max_new_tokens=5, prompts={}, add_special_tokens=False)
"""How GIRCSE's authors read a prompt: with as many soft tokens as in training."""
PUBLISHED_SETTINGS = {"Roytsai27/GIRCSE-Mistral7B": _GIRCSE, "Roytsai27/GIRCSE-QWEN7B": _GIRCSE}
"""Settings of published adapters, by hub id, whose files do not say how they are read."""


@dataclass(frozen=True)
class ModelFiles:
    """The files of one model: those of a folder, or of a hub repository at one revision."""

    name: str
    """Folder or hub id."""
    revision: str | None = None
    """The hub's commit of a full model; the user's branch, tag or commit for any other."""

    @property
    def folder(self) -> Path | None:
        """The model's folder; None for a hub id."""
        return Path(self.name) if Path(self.name).is_dir() else None

    def find(self, file: str) -> Path | None:
        """Find a file, without a network in the hub's cache; None if it does not exist."""
        if (folder := self.folder) is not None:
            path = folder / file
            return path if path.is_file() else None
        from huggingface_hub.errors import EntryNotFoundError, HFValidationError, LocalEntryNotFoundError

        try:
            return Path(huggingface_hub.hf_hub_download(self.name, file, revision=self.revision))
        except LocalEntryNotFoundError as error:
            if any(
                isinstance(huggingface_hub.try_to_load_from_cache(self.name, config, revision=self.revision), str)
                for config in CONFIG_FILES
            ):
                return None
            raise make_load_error(self.name, error) from error
        except EntryNotFoundError:
            return None
        except (OSError, HFValidationError) as error:
            raise make_load_error(self.name, error) from error


def open_model(name: str, revision: str | None = None) -> ModelFiles:
    """Resolve a model's name, and on the hub its commit, so that all files are read from one commit; reject a file."""
    files = ModelFiles(resolve_name(name), revision)
    if Path(files.name).is_file():
        raise ModelError(f"{files.name} is a file. Give the folder with config.json and the weights, or a .gguf file.")
    path = files.find("config.json") if files.folder is None else None
    return files if path is None else replace(files, revision=path.parent.name)


def read_json_object(path: Path) -> dict[str, Any]:
    """Read a JSON file that holds an object and asks for no code from elsewhere; reject any other with a ModelError."""
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(values, dict):
            raise ValueError("it must hold an object, {...}")
    except (OSError, ValueError, RecursionError) as error:
        raise ModelError(f"{path} is damaged ({error}). Download the model again, or save it again.") from error
    _check_values(path, values)
    return values


def _check_values(path: Path, values: dict[str, Any]) -> None:
    """Reject a configuration that asks, at any depth, for code of another repository ("x/kernels") or for too many labels."""
    entries: list[tuple[str, Any]] = list(values.items())
    while entries:
        key, value = entries.pop()
        if isinstance(value, dict | list):
            items = value.items() if isinstance(value, dict) else enumerate(value)
            prefix = f"{key}." if "_implementation" in key else ""
            entries += [(f"{prefix}{name}", item) for name, item in items]
        elif key.endswith("num_labels") and isinstance(value, int | float) and value > MAX_LABELS:
            raise ModelError(f"{path} sets {format_value(key)} to {value:,}, more than {MAX_LABELS:,}. Correct or remove it.")
        elif "_implementation" not in key or "cache_implementation" in key:
            continue
        elif isinstance(value, str) and value not in LOCAL_IMPLEMENTATIONS:
            raise ModelError(
                f"{path} sets {format_value(key)} to {format_value(value)}, which would run code of another repository. Remove "
                'it, or set it to "sdpa".'
            )


_SETTING_TYPES: dict[str, type] = {
    "base": str,
    "template": str,
    "mask_length": int,
    "late_interaction": bool,
    "language_directions": int,
    "question_adapter": bool,
    "pooling": str,
    "backbone": str,
    "max_new_tokens": int,
    "min_confidence": float,
    "subtract_instruction": bool,
    "base_encoder": str,
    "beside": str,
    "normalize": bool,
    "matryoshka_dims": list,
    "add_special_tokens": bool,
}
"""The keys of ``inbedder.json`` and the types of their values."""


def read_settings(files: ModelFiles) -> Settings:
    """Read the settings that fine-tuning saved with a model, empty if there are none; reject damaged ones."""
    path = files.find(SETTINGS_FILE)
    if path is None:
        return PUBLISHED_SETTINGS.get(files.name, Settings())
    table = read_json_object(path)
    values: dict[str, Any] = {key: table[key] for key in _SETTING_TYPES if table.get(key) is not None}
    for key, value in values.items():
        if not _is_valid(value, kind := _SETTING_TYPES[key]):
            names = {str: "a string", int: "a whole number, at least 1", bool: "true or false", list: "a list of whole numbers"}
            names[float] = "a number from 0 to 1"
            raise ModelError(f"{key} in {path} is {value!r}; it must be {names[kind]}. Correct or remove it.")
    return Settings(**values)


def _is_valid(value: Any, kind: type) -> bool:
    """Return whether a setting has its type; whole numbers are at least 1, other numbers from 0 to 1."""
    if kind is float:
        return type(value) in (int, float) and 0 <= value <= 1
    numbers: list[Any] = value if isinstance(value, list) else [value] if kind is int else []
    return type(value) is kind and all(type(number) is int and number >= 1 for number in numbers)


def make_load_error(name: str, error: BaseException) -> ModelError:
    """Make the error for a model that cannot be found or read."""
    if (Path(name) / PAIRS_FILE).is_file():
        return ModelError(
            f"{name} scores pairs of sentences under a condition and does not embed single texts. Evaluate it: inbedder evaluate "
            "--task csts. Load it: inbedder.conditional.ConditionalEncoder.load."
        )
    if (Path(name) / "model" / SETTINGS_FILE).is_file():
        return ModelError(f"{name} was exported for sentence-transformers. Load the model in it: {Path(name) / 'model'}.")
    reason = " ".join(str(error).split()) or type(error).__name__
    return ModelError(
        f"Cannot load the model {name!r}: it is neither a local model folder nor a reachable model on the hub. "
        f"Check the spelling and the network, or give a local folder. ({reason[:400]})"
    )
