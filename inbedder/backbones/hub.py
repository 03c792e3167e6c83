"""Files of a model folder or of a hub repository, and what fine-tuning wrote beside the weights."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from huggingface_hub import hf_hub_download, try_to_load_from_cache
from huggingface_hub.errors import EntryNotFoundError, HFValidationError, LocalEntryNotFoundError

from inbedder.errors import ModelError

SETTINGS_FILE = "inbedder.json"
MODULES_FILE = "modules.json"
PAIRS_FILE = "conditional.json"
WHOLE_OR_ADAPTER = ("config.json", "adapter_config.json")


@dataclass(frozen=True)
class Settings:
    """What a fine-tuned model remembers of its training, in ``inbedder.json`` beside its weights."""

    base: str | None = None
    """The model that an adapter was trained on."""
    template: str | None = None
    """Name or pattern of the training prompts' template."""
    mask_length: int | None = None
    """Masks after the prompt."""
    backbone: str | None = None
    """"embedding" for an embedding model; None where the model's configuration tells."""
    late_interaction: bool | None = None
    """Whether a masked LM was trained to read text and question apart."""
    max_new_tokens: int | None = None
    """Longest answer in tokens."""
    subtract_instruction: bool | None = None
    """Whether v("", instruction) is taken away from each vector."""
    add_generic: bool | None = None
    """Whether the generic base's vector of a text is added under instructions about the whole text."""
    generic_base: str | None = None
    """The embedding model whose vectors stand for texts where no instruction is given; None where the model asks ``@generic``."""
    beside: str | None = None
    """Another model whose vectors stand beside this one's (``InBedder``); None for none."""
    normalize: bool | None = None
    """Whether vectors have length 1."""
    prompts: Mapping[str, str] | None = None
    """Of an embedding model: what stands in front of a "query", a "document" and any other text ("") if nobody says."""


def hub_file(name: str, file: str, revision: str | None) -> Path | None:
    """A file of a folder or of a hub repository, from the cache where the network is off; None where there is none."""
    if Path(name).is_dir():
        path = Path(name) / file
        return path if path.is_file() else None
    try:
        return Path(hf_hub_download(name, file, revision=revision))
    except LocalEntryNotFoundError as error:
        if any(isinstance(try_to_load_from_cache(name, whole_file, revision=revision), str) for whole_file in WHOLE_OR_ADAPTER):
            return None
        raise not_loaded(name, error) from error
    except EntryNotFoundError:
        return None
    except (OSError, HFValidationError) as error:
        raise not_loaded(name, error) from error


def read_table(path: Path) -> dict[str, Any]:
    """Read a json file that must hold a table; refuse any other with a ModelError."""
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(values, dict):
            raise ValueError("it must hold a table, {...}")
    except (OSError, ValueError, RecursionError) as error:
        raise ModelError(f"{path} is damaged ({error}). Download the model again, or save it again.") from error
    return values


_SETTINGS: dict[str, type] = {
    "base": str,
    "template": str,
    "mask_length": int,
    "late_interaction": bool,
    "backbone": str,
    "max_new_tokens": int,
    "subtract_instruction": bool,
    "add_generic": bool,
    "generic_base": str,
    "beside": str,
    "normalize": bool,
}
"""What ``inbedder.json`` may hold."""


def read_settings(name: str, revision: str | None) -> Settings:
    """Read the settings that fine-tuning wrote beside a model, empty where it wrote none; refuse damaged ones."""
    path = hub_file(name, SETTINGS_FILE, revision)
    if path is None:
        return Settings()
    table = read_table(path)
    values: dict[str, Any] = {key: table[key] for key in _SETTINGS if table.get(key) is not None}
    for key, value in values.items():
        if type(value) is not _SETTINGS[key] or (_SETTINGS[key] is int and table[key] < 1):
            wanted = {str: "a string", int: "a whole number, at least 1", bool: "true or false"}[_SETTINGS[key]]
            raise ModelError(f"{key} in {path} is {value!r}; it must be {wanted}. Correct it, or take it away.")
    return Settings(**values)


def not_loaded(name: str, error: Exception) -> ModelError:
    """What a user is told of a model that cannot be found or read."""
    if (Path(name) / PAIRS_FILE).is_file():
        return ModelError(
            f"{name} scores two sentences under a condition and has no vector for one text. Measure it: inbedder evaluate --task "
            "csts. Load it: inbedder.conditional.ConditionalEncoder.load."
        )
    reason = " ".join(str(error).split()) or type(error).__name__
    return ModelError(
        f"Cannot load the model {name!r}: it is neither a folder with a model here nor a model in reach on the hub. "
        f"Check the spelling and the network, or give a local folder. ({reason[:400]})"
    )
