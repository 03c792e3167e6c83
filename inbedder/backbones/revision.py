"""What tells a model's weights and settings from others: for kept vectors, results and cards."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from inbedder.backbones.file_checks import ADAPTER_CONFIG
from inbedder.backbones.hub import WHOLE_OR_ADAPTER, hub_file, not_loaded
from inbedder.backbones.protocol import Backbone
from inbedder.backbones.sentence_modules import module_files
from inbedder.errors import ModelError
from inbedder.models.bundled import is_checked_base, resolve_name
from inbedder.models.checksums import State, digest_of, state_of

NOT_OF_THE_MODEL = (
    "_name_or_path",
    "dtype",
    "torch_dtype",
    "transformers_version",
    "_attn_implementation",
    "quantization_config",
)
"""Entries of a configuration that depend on how, where and by what it was loaded."""
AT_ONCE = 1 << 30
"""Most bytes of weights that are read for their revision while the model is loaded; more are read when it is first asked for."""


@dataclass(frozen=True)
class WeightFiles:
    """The files that a model is loaded from, as they are before; none for a whole model of the hub, whose commit tells."""

    states: tuple[State, ...]
    """Of the files whose contents make the revision, in their order."""
    commit: str | None
    """The hub's, of the model or of its adapter's base."""
    base_from: int | None
    """The place of the first file of an adapter's base, before which the commit counts; None where there is no such base."""
    adapter_config: str
    """The text of an adapter's settings, which change vectors as weights do."""

    @classmethod
    def of(cls, base: str, adapter: str | None, commit: str | None, *, modules: bool) -> WeightFiles:
        """Look at the files of a model.

        Args:
            base: Folder or hub id of the whole model.
            adapter: Folder of the adapter, where it is one.
            commit: The hub's, of the base.
            modules: Whether it is read as an embedding model, so that the files of its modules count.

        Returns:
            What they are now.
        """
        folder = Path(adapter or base)
        files = sorted(folder.glob("*.safetensors")) + (module_files(folder) if modules and folder.is_dir() else [])
        base_from = len(files) if adapter and not is_checked_base(base) else None
        files += sorted(Path(base).glob("*.safetensors")) if base_from is not None and Path(base).is_dir() else []
        config = Path(adapter, ADAPTER_CONFIG).read_text(encoding="utf-8") if adapter else ""
        return cls(tuple(state_of(file) for file in files), commit, base_from, config)

    @cached_property
    def revision(self) -> str:
        """The hub's commit, or 16 digits of a hash of the files; a file that changed since the load raises ModelError."""
        if not self.states:
            return self.commit or "unknown"
        self.check()
        digests = [digest_of(Path(state[0])) for state in self.states]
        self.check()
        if self.base_from is not None:
            digests.insert(self.base_from, str(self.commit))
        return hashlib.sha256("".join(digests).encode()).hexdigest()[:16]

    def check(self) -> None:
        """Raise a ModelError when a file changed."""
        for state in self.states:
            path = Path(state[0])
            if not path.is_file() or state_of(path) != state:
                raise ModelError(f"{path} changed since the model was loaded from it. Load the model again.")


def keep_revision(backbone: Backbone, files: WeightFiles) -> None:
    """Record in a backbone the files it was loaded from, and now the revision of all but large weights; refuse changed files."""
    backbone.weight_files = files
    if sum(size for _, _, size, _ in files.states) <= AT_ONCE:
        _ = files.revision


def weights_revision(backbone: Backbone) -> str:
    """What identifies a loaded model's weights.

    Args:
        backbone: The model.

    Returns:
        For a folder or an adapter the first 16 digits of the SHA-256 of its safetensors (and, for an adapter, of its base's
        commit or safetensors; for an embedding model, of the files of its modules), for a hub id the commit: as they were when
        the model was loaded.

    Raises:
        ModelError: When the files are large, so that they are read now, and changed since.
    """
    return _files(backbone).revision


def _files(backbone: Backbone) -> WeightFiles:
    assert isinstance(backbone.weight_files, WeightFiles)  # it was loaded by its name
    return backbone.weight_files


def settings_hash(backbone: Backbone) -> str:
    """What stands for tokenizer, configuration and adapter settings, which change vectors as weights do; 16 digits."""
    config = {name: value for name, value in backbone.model.config.to_dict().items() if name not in NOT_OF_THE_MODEL}
    parts = (
        backbone.tokenizer.backend_tokenizer.to_str(),
        json.dumps(config, sort_keys=True, default=str),
        _files(backbone).adapter_config,
    )
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
    digest = hashlib.sha256("".join(f"{path.name}\0{digest_of(path)}\0" for path in files).encode())
    return digest.hexdigest()[:16]
