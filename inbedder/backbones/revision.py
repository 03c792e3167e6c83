"""What tells a model's weights and settings from others: for kept vectors, results and cards."""

from __future__ import annotations

import hashlib
from pathlib import Path

from inbedder.backbones.base import Backbone
from inbedder.backbones.hub import WHOLE_OR_ADAPTER, hub_file, not_loaded
from inbedder.backbones.sentence_modules import module_files
from inbedder.files import sha256_of
from inbedder.models.bundled import resolve_name


def weights_revision(name: str, backbone: Backbone) -> str:
    """What identifies a loaded model's weights.

    Args:
        name: The folder or hub id it was loaded from.
        backbone: The model.

    Returns:
        For a folder or an adapter the first 16 digits of the SHA-256 of its safetensors (and, for an adapter, of its base's
        commit or safetensors; for an embedding model, of the files of its modules), for a hub id the commit.
    """
    commit = str(getattr(backbone.model.config, "_commit_hash", None))
    folder = Path(backbone.adapter or resolve_name(name))
    if not folder.is_dir():
        return "unknown" if commit == "None" else commit
    modules = module_files(folder) if backbone.bare else []
    digests = [sha256_of(path) for path in (*sorted(folder.glob("*.safetensors")), *modules)]
    if name != "mini" and backbone.adapter:  # the base of mini is checked by its hash
        base = Path(resolve_name(str(backbone.model.config._name_or_path)))
        digests += [commit, *(sha256_of(path) for path in sorted(base.glob("*.safetensors")) if base.is_dir())]
    return hashlib.sha256("".join(digests).encode()).hexdigest()[:16]


def settings_hash(backbone: Backbone) -> str:
    """What stands for tokenizer, configuration and adapter settings, which change vectors as weights do; 16 digits."""
    adapter = Path(backbone.adapter, "adapter_config.json").read_text(encoding="utf-8") if backbone.adapter else ""
    parts = (backbone.tokenizer.backend_tokenizer.to_str(), backbone.model.config.to_json_string(), adapter)
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def files_revision(name: str, revision: str | None = None) -> str:
    """What identifies a model by its files alone, without loading it.

    Args:
        name: ``mini``, a hub id or a folder.
        revision: Branch, tag or commit on the hub.

    Returns:
        For a folder the first 16 digits of the SHA-256 of its safetensors and json files and those of its modules, for a hub id
        the commit. The base of an adapter is not looked at.

    Raises:
        ModelError: When there is no such model.
    """
    name = resolve_name(name)
    found = [path for file in WHOLE_OR_ADAPTER if (path := hub_file(name, file, revision))]
    if not found:
        raise not_loaded(name, FileNotFoundError(f"no {' or '.join(WHOLE_OR_ADAPTER)}"))
    if not Path(name).is_dir():
        return found[0].parent.name
    files = sorted(path for kind in ("*.safetensors", "*.json") for path in Path(name).glob(kind))
    files += module_files(Path(name))
    digest = hashlib.sha256("".join(f"{path.name}\0{sha256_of(path)}\0" for path in files).encode())
    return digest.hexdigest()[:16]
