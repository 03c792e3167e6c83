"""What tells a model's weights and settings from others: for kept vectors, results and cards."""

from __future__ import annotations

import hashlib
from pathlib import Path

from inbedder.backbones.base import Backbone
from inbedder.models.bundled import resolve_base, sha256_of


def weights_revision(name: str, backbone: Backbone) -> str:
    """What identifies a loaded model's weights.

    Args:
        name: The folder or hub id it was loaded from.
        backbone: The model.

    Returns:
        For a folder or an adapter the first 16 digits of the SHA-256 of its safetensors (and, for an adapter, of its base's
        commit or safetensors), for a hub id the commit.
    """
    commit = str(getattr(backbone.model.config, "_commit_hash", None))
    folder = Path(backbone.adapter or resolve_base(name))
    if not folder.is_dir():
        return "unknown" if commit == "None" else commit
    digests = [sha256_of(path) for path in sorted(folder.glob("*.safetensors"))]
    if name != "mini" and backbone.adapter:  # the base of mini is checked by its hash
        base = Path(resolve_base(str(backbone.model.config._name_or_path)))
        digests += [commit, *(sha256_of(path) for path in sorted(base.glob("*.safetensors")) if base.is_dir())]
    return hashlib.sha256("".join(digests).encode()).hexdigest()[:16]


def settings_hash(backbone: Backbone) -> str:
    """What stands for tokenizer, configuration and adapter settings, which change vectors as weights do; 16 digits."""
    adapter = Path(backbone.adapter, "adapter_config.json").read_text(encoding="utf-8") if backbone.adapter else ""
    parts = (backbone.tokenizer.backend_tokenizer.to_str(), backbone.model.config.to_json_string(), adapter)
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]
