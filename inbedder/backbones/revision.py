"""Revisions and hashes that identify a model's weights and settings in caches, results and cards."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from inbedder.backbones.file_checks import ADAPTER_CONFIG, list_weight_files
from inbedder.backbones.hub import CONFIG_FILES, ModelFiles, make_load_error, open_model
from inbedder.backbones.learned_tokens import list_projection_files
from inbedder.backbones.protocol import Backbone
from inbedder.backbones.sentence_modules import list_module_files
from inbedder.errors import ModelError
from inbedder.models.bundled import is_checked_base
from inbedder.models.checksums import FileState, get_digest, get_file_state

IGNORED_CONFIG_KEYS = (
    "_name_or_path",
    "dtype",
    "torch_dtype",
    "transformers_version",
    "_attn_implementation",
    "quantization_config",
)
"""Keys of a configuration that depend on how, where and by which version it was loaded."""
MAX_EAGER_BYTES = 1 << 30
"""Maximum bytes of weights that are hashed while the model is loaded; larger weights are hashed on first use of the revision."""


@dataclass(frozen=True)
class WeightFiles:
    """The files of a model before it is loaded; none for a full model of the hub, which its commit identifies."""

    states: tuple[FileState, ...]
    """States of the files that the revision hashes, in order."""
    commit: str | None
    """The hub's commit of the model or of its adapter's base."""
    base_index: int | None
    """Index of the first file of an adapter's base, before which the commit is hashed; None without such a base."""
    adapter_config: str
    """The text of an adapter's configuration, which changes vectors like weights."""

    @classmethod
    def of(cls, base: ModelFiles, adapter: str | None, *, modules: bool) -> WeightFiles:
        """Record the current files of a model.

        Args:
            base: The full model.
            adapter: Folder of the adapter, or None.
            modules: Whether it is loaded as an embedding model, so that its modules' files count.

        Returns:
            The files in their current state.
        """
        folder = Path(adapter or base.name)
        files = list_weight_files(folder) + (list_module_files(folder) if modules and folder.is_dir() else [])
        files += list_projection_files(folder)
        base_index = len(files) if adapter and not is_checked_base(base.name) else None
        files += list_weight_files(base.folder) if base_index is not None and base.folder is not None else []
        config = Path(adapter, ADAPTER_CONFIG).read_text(encoding="utf-8") if adapter else ""
        return cls(tuple(get_file_state(file) for file in files), base.revision, base_index, config)

    @cached_property
    def revision(self) -> str:
        """The hub's commit, or 16 digits of a hash of the files; ModelError if a file changed since the model was loaded."""
        if not self.states:
            return self.commit or "unknown"
        self.check()
        digests = [get_digest(Path(state[0])) for state in self.states]
        self.check()
        if self.base_index is not None:
            digests.insert(self.base_index, str(self.commit))
        return hashlib.sha256("".join(digests).encode()).hexdigest()[:16]

    def check(self) -> None:
        """Reject files that changed, with a ModelError."""
        for state in self.states:
            path = Path(state[0])
            if not path.is_file() or get_file_state(path) != state:
                raise ModelError(f"{path} changed since the model was loaded from it. Load the model again.")


def record_revision(backbone: Backbone, files: WeightFiles) -> None:
    """Record a backbone's files, and compute the revision of small ones now; reject files that changed during loading."""
    backbone.weight_files = files
    if sum(size for _, _, size, _ in files.states) <= MAX_EAGER_BYTES:
        _ = files.revision


def get_weights_revision(backbone: Backbone) -> str:
    """Return the revision of a loaded model's weights, as they were when it was loaded.

    Args:
        backbone: The model.

    Returns:
        For a hub id the commit. For a folder or an adapter the first 16 digits of the SHA-256 of its weights, with its base's
        commit or weights for an adapter, and its modules' files for an embedding model.

    Raises:
        ModelError: If the files are large, so that they are hashed only now, and have changed.
    """
    return _get_files(backbone).revision


def _get_files(backbone: Backbone) -> WeightFiles:
    assert isinstance(backbone.weight_files, WeightFiles)  # it was loaded by its name
    return backbone.weight_files


def hash_settings(backbone: Backbone) -> str:
    """Hash tokenizer, configuration and adapter configuration, which change vectors like weights, to 16 digits."""
    config = {name: value for name, value in backbone.model.config.to_dict().items() if name not in IGNORED_CONFIG_KEYS}
    parts = (
        backbone.tokenizer.backend_tokenizer.to_str(),
        json.dumps(config, sort_keys=True, default=str),
        _get_files(backbone).adapter_config,
        *(["one length at a time"] if backbone.reads_padding else []),
        *(["adapter of the question"] if getattr(backbone, "text_model", None) is not None else []),
    )
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def get_files_revision(name: str, revision: str | None = None) -> str:
    """Return the revision of a model's files without loading it.

    Args:
        name: ``mini``, a hub id or a folder.
        revision: Branch, tag or commit on the hub.

    Returns:
        For a hub id the commit. For a folder the first 16 digits of the SHA-256 of its weights and JSON files and those of
        its modules, without the base of an adapter.

    Raises:
        ModelError: If the model does not exist.
    """
    model = open_model(name, revision)
    config_paths = [path for file in CONFIG_FILES if (path := model.find(file))]
    if not config_paths:
        raise make_load_error(model.name, FileNotFoundError(f"no {' or '.join(CONFIG_FILES)}"))
    if model.folder is None:
        return config_paths[0].parent.name
    files = sorted([*list_weight_files(model.folder), *model.folder.glob("*.json")])
    files += list_module_files(model.folder)
    if projection_files := list_projection_files(model.folder / "encoder"):  # of an LLM2Vec-Gen
        files += [*projection_files, *list_weight_files(model.folder / "encoder")]
    digest = hashlib.sha256("".join(f"{path.name}\0{get_digest(path)}\0" for path in files).encode())
    return digest.hexdigest()[:16]
