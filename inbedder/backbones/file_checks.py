"""Checks of a model's files before a library opens them: nothing outside the folder, no damaged JSON, no unrestricted pickle.

transformers, peft and sentence-transformers fall back to pickled weights, or follow an index or ``modules.json`` to them. So the
files that they would open are found and checked here first. Safetensors come first; a pickle is read only where a model has
nothing else, by ``pickled_weights``.
"""

from __future__ import annotations

from pathlib import Path

from inbedder.backbones.hub import ModelFiles, read_json_object
from inbedder.errors import ModelError
from inbedder.io.files import is_inside

ADAPTER_CONFIG = "adapter_config.json"
ADAPTER_WEIGHTS = "adapter_model.safetensors"
PICKLED_ADAPTER_WEIGHTS = "adapter_model.bin"
WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"
PICKLED_WEIGHTS = "pytorch_model.bin"
PICKLED_INDEX = "pytorch_model.bin.index.json"
_TABLES = ("config.json", "tokenizer_config.json", "generation_config.json", "special_tokens_map.json", "added_tokens.json")
"""The JSON files of a model that transformers reads."""


def check_json_files(files: ModelFiles) -> None:
    """Reject a model with a damaged JSON file, which transformers would ignore, or one that asks for foreign code."""
    paths = {files.find(file) for file in _TABLES} | set(Path(files.name).glob("sentence_*_config.json"))
    for path in sorted(path for path in paths if path is not None):
        read_json_object(path)


def check_not_adapter(base: ModelFiles) -> None:
    """Reject a base that is itself an adapter, because transformers would load it with unchecked weights."""
    if base.find(ADAPTER_CONFIG) is not None:
        raise ModelError(f"{base.name} is itself an adapter, so it cannot be the base of another. Merge it into its base first.")


def check_weights(files: ModelFiles, weights: str | None = None) -> None:
    """Reject a model whose weights (``weights`` is its ``transformers_weights``, if set) are not in its folder."""
    name, folder = files.name, files.folder
    if weights is not None and not (is_inside(weights) and weights.endswith((".safetensors", ".safetensors.index.json"))):
        raise ModelError(f"config.json of {name} names the weights {weights!r}; they must be safetensors in its own folder.")
    candidates = (WEIGHTS, INDEX, PICKLED_WEIGHTS, PICKLED_INDEX) if weights is None else (weights,)
    if folder is not None:
        path = next((path for file in candidates if (path := files.find(file)) is not None), None)
        if path is None:
            raise ModelError(f"{folder} holds no weights ({candidates[0]}). Download the model again, or save it again.")
        if path.suffix == ".json":
            list_shards(path, folder)
        return
    for file in candidates:
        if file.endswith(".json") and (path := files.find(file)) is not None:
            list_shards(path, None)


def find_pickled_weights(files: ModelFiles) -> list[Path]:
    """Find a model's pickled files (a folder's, or downloaded from the hub), in order; none if it has safetensors."""
    if any(files.find(file) for file in (WEIGHTS, INDEX)):
        return []
    if (path := files.find(PICKLED_WEIGHTS)) is not None:
        return [path]
    index = files.find(PICKLED_INDEX)
    shards = {} if index is None else {shard: files.find(shard) for shard in list_shards(index, None)}
    if missing := [shard for shard, path in shards.items() if path is None]:
        raise _make_missing_error(files.name, missing[0], PICKLED_INDEX)
    return [path for path in shards.values() if path is not None]


def list_shards(index: Path, folder: Path | None) -> list[str]:
    """List the shards that an index names, sorted; reject names of another kind, outside ``folder`` or missing in it."""
    table = read_json_object(index)
    shards = table.get("weight_map")
    if not isinstance(shards, dict) or not shards or not isinstance(table.get("metadata"), dict):
        raise ModelError(f"{index} is damaged: it must hold metadata and a weight_map. Download the model again.")
    suffix = ".bin" if index.name == PICKLED_INDEX else ".safetensors"
    for shard in (names := sorted({str(shard) for shard in shards.values()})):
        if not is_inside(shard):
            raise ModelError(f"{index} points outside its folder, to {shard!r}. Do not use this model: it was tampered with.")
        if not shard.endswith(suffix):
            raise ModelError(f"{index} names {shard!r}, which is not a {suffix} file. Download the model again.")
        if folder is not None and not (folder / shard).is_file():
            raise _make_missing_error(str(folder), shard, index.name)
    return names


def _make_missing_error(name: str, shard: str, index: str) -> ModelError:
    return ModelError(f"{Path(name) / shard}, which {index} names, is missing. Download the model again.")


def list_weight_files(folder: Path) -> list[Path]:
    """List the weight files of a folder that are read, in a fixed order: safetensors, and pickles in place of missing ones."""
    files = sorted(folder.glob("*.safetensors"))
    names = {path.name for path in files}
    files += find_pickled_weights(ModelFiles(str(folder))) if folder.is_dir() else []
    return files + ([] if ADAPTER_WEIGHTS in names else sorted(folder.glob(PICKLED_ADAPTER_WEIGHTS)))


def find_adapter_weights(adapter: Path) -> Path:
    """Find the file of an adapter's weights, safetensors first; reject an adapter without one."""
    for file in (ADAPTER_WEIGHTS, PICKLED_ADAPTER_WEIGHTS):
        if (adapter / file).is_file():
            return adapter / file
    raise ModelError(f"The adapter {adapter} has no {ADAPTER_WEIGHTS}. Train or download the adapter again.")
