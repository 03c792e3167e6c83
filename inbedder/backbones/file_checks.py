"""Checks of a model's files before a library opens them: no pickle, nothing outside the folder, no damaged JSON.

transformers, peft and sentence-transformers fall back to pickled weights, or follow an index or ``modules.json`` to them. So the
files that they would open are checked here first.
"""

from __future__ import annotations

from pathlib import Path

from inbedder.backbones.hub import find_model_file, read_json_object
from inbedder.errors import ModelError
from inbedder.io.files import is_inside
from inbedder.models.checksums import check_checksums

ADAPTER_CONFIG = "adapter_config.json"
ADAPTER_WEIGHTS = "adapter_model.safetensors"
WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"
_TABLES = ("config.json", "tokenizer_config.json", "generation_config.json", "special_tokens_map.json", "added_tokens.json")
"""The JSON files of a model that transformers reads."""


def check_sums(name: str, revision: str | None = None) -> None:
    """Refuse a model whose files differ from its ``checksums.json``; a model without checksums is accepted."""
    check_checksums(lambda file: find_model_file(name, file, revision))


def check_json_files(name: str, revision: str | None = None) -> None:
    """Refuse a folder or hub id with a damaged JSON file, which transformers would ignore, or one that asks for foreign code."""
    folder = Path(name)
    paths = {find_model_file(name, file, revision) for file in _TABLES} | set(folder.glob("sentence_*_config.json"))
    for path in sorted(path for path in paths if path is not None):
        read_json_object(path)


def check_not_adapter(name: str, revision: str | None = None) -> None:
    """Refuse a base (folder or hub id) that is itself an adapter, because transformers would load it with unchecked weights."""
    if find_model_file(name, ADAPTER_CONFIG, revision) is not None:
        raise ModelError(f"{name} is itself an adapter, so it cannot be the base of another. Merge it into its base first.")


def check_weights(name: str, revision: str | None = None, weights: str | None = None) -> None:
    """Refuse a model whose weights (``weights`` is its ``transformers_weights``, if set) are not safetensors in its folder."""
    index = weights if weights is not None else INDEX
    if weights is not None and not (is_inside(weights) and weights.endswith((".safetensors", ".safetensors.index.json"))):
        raise ModelError(f"config.json of {name} names the weights {weights!r}; they must be safetensors in its own folder.")
    folder = Path(name)
    if index.endswith(".json") and (weights is not None or not (folder / WEIGHTS).is_file()):
        path = find_model_file(name, index, revision)
        if path is not None:
            check_index(path, folder if folder.is_dir() else None)
        elif folder.is_dir():
            raise make_weights_error(folder)
    elif folder.is_dir() and not (folder / (weights or WEIGHTS)).is_file():
        raise make_weights_error(folder)


def make_weights_error(folder: Path) -> ModelError:
    """Make the error for a folder without weights that inbedder loads."""
    if any(folder.glob("*.bin")):
        return ModelError(
            f"{folder} holds only pickled weights, which inbedder does not load. "
            "Save it as safetensors first: AutoModel.from_pretrained(...).save_pretrained(...), or for the checkpoint of an "
            "embedding model: SentenceTransformer(...).save_pretrained(...)."
        )
    return ModelError(f"{folder} holds no weights ({WEIGHTS}). Download the model again, or save it again.")


def check_index(path: Path, folder: Path | None) -> None:
    """Refuse a damaged index, or one that names anything but safetensors in its folder; in a ``folder`` its shards must exist."""
    table = read_json_object(path)
    shards = table.get("weight_map")
    if not isinstance(shards, dict) or not shards or not isinstance(table.get("metadata"), dict):
        raise ModelError(f"{path} is damaged: it must hold metadata and a weight_map. Download the model again.")
    for shard in {str(shard) for shard in shards.values()}:
        if not is_inside(shard):
            raise ModelError(f"{path} points outside its folder, to {shard!r}. Do not use this model: it was tampered with.")
        if not shard.endswith(".safetensors"):
            raise ModelError(
                f"{path} names {shard!r}, but inbedder does not load pickled weights. Save the model again as safetensors."
            )
        if folder is not None and not (folder / shard).is_file():
            raise ModelError(f"{folder / shard}, which {path.name} names, is missing. Download the model again.")


def check_adapter_weights(adapter: Path) -> Path:
    """Find the safetensors file of an adapter's weights; refuse an adapter without one."""
    path = adapter / ADAPTER_WEIGHTS
    if path.is_file():
        return path
    is_pickled = (adapter / "adapter_model.bin").is_file()
    reason = ", and inbedder does not load pickled weights (adapter_model.bin)" if is_pickled else ""
    raise ModelError(
        f"The adapter {adapter} has no {ADAPTER_WEIGHTS}{reason}. Save it again with peft, which writes safetensors: "
        "save_pretrained(FOLDER, safe_serialization=True)."
    )
