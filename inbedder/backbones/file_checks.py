"""Looking at a model's files before a library opens them: no pickle, nothing outside the folder, no damaged json.

transformers, peft and sentence-transformers fall back to pickled weights, or follow an index or ``modules.json`` to them; so what
they would open is found here first.
"""

from __future__ import annotations

from pathlib import Path

from inbedder.backbones.hub import hub_file, read_table
from inbedder.errors import ModelError
from inbedder.io.files import is_inside
from inbedder.models.checksums import check_checksums

ADAPTER_CONFIG = "adapter_config.json"
ADAPTER_WEIGHTS = "adapter_model.safetensors"
WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"
_TABLES = ("config.json", "tokenizer_config.json", "generation_config.json", "special_tokens_map.json", "added_tokens.json")


def check_sums(name: str, revision: str | None = None) -> None:
    """Refuse a model whose files differ from those that its ``checksums.json`` names; a model without one is accepted."""
    check_checksums(lambda file: hub_file(name, file, revision))


def check_tables(folder: Path) -> None:
    """Refuse a folder with a damaged json file, which transformers would pass over or fail at without naming it."""
    for file in _TABLES:
        if (folder / file).is_file():
            read_table(folder / file)


def check_whole(name: str) -> None:
    """Refuse a base (folder or hub id) that is an adapter itself: transformers would load that too, whatever its file is."""
    if hub_file(name, ADAPTER_CONFIG, None) is not None:
        raise ModelError(f"{name} is an adapter itself, so no other can stand on it. Merge it into its base first.")


def check_weights(name: str, revision: str | None = None, weights: str | None = None) -> None:
    """Refuse a model whose weights, by default or as ``transformers_weights`` names them, are not safetensors in its folder."""
    index = weights if weights is not None else INDEX
    if weights is not None and not (is_inside(weights) and weights.endswith((".safetensors", ".safetensors.index.json"))):
        raise ModelError(f"config.json of {name} names the weights {weights!r}; they must be safetensors in its own folder.")
    folder = Path(name)
    if index.endswith(".json") and (weights is not None or not (folder / WEIGHTS).is_file()):
        path = hub_file(name, index, revision)
        if path is not None:
            check_index(path, folder if folder.is_dir() else None)
        elif folder.is_dir():
            raise no_weights(folder)
    elif folder.is_dir() and not (folder / (weights or WEIGHTS)).is_file():
        raise no_weights(folder)


def no_weights(folder: Path) -> ModelError:
    """What a user is told of a folder without weights that can be loaded."""
    if any(folder.glob("*.bin")):
        return ModelError(
            f"{folder} holds pickled weights alone, which are not loaded. "
            "Save it as safetensors first: AutoModel.from_pretrained(...).save_pretrained(...), or the whole checkpoint of an"
            " embedding model: SentenceTransformer(...).save_pretrained(...)."
        )
    return ModelError(f"{folder} holds no weights ({WEIGHTS}). Download the model again, or save it again.")


def check_index(path: Path, folder: Path | None) -> None:
    """Refuse a damaged index, or one that leads to other than safetensors beside it; in a ``folder`` its shards must exist."""
    table = read_table(path)
    shards = table.get("weight_map")
    if not isinstance(shards, dict) or not shards or not isinstance(table.get("metadata"), dict):
        raise ModelError(f"{path} is damaged: it must hold metadata and a weight_map. Download the model again.")
    for shard in {str(shard) for shard in shards.values()}:
        if not is_inside(shard):
            raise ModelError(f"{path} leads out of its folder, to {shard!r}. Do not use this model: it was tampered with.")
        if not shard.endswith(".safetensors"):
            raise ModelError(f"{path} names {shard!r}, and pickled weights are not loaded. Save the model again as safetensors.")
        if folder is not None and not (folder / shard).is_file():
            raise ModelError(f"{folder / shard} is missing, which {path.name} names. Download the model again.")


def check_adapter_weights(adapter: Path) -> Path:
    """Find the safetensors file of an adapter's weights; refuse an adapter without one."""
    path = adapter / ADAPTER_WEIGHTS
    if path.is_file():
        return path
    pickled = ", and pickled weights (adapter_model.bin) are not loaded" if (adapter / "adapter_model.bin").is_file() else ""
    raise ModelError(
        f"The adapter {adapter} brings no {ADAPTER_WEIGHTS}{pickled}. Save it again with peft, which writes safetensors: "
        "save_pretrained(FOLDER, safe_serialization=True)."
    )
