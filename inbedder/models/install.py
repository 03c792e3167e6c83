"""Installation of the bases in ``bases``: download, check and convert their weights once.

The sources of a base are tried in order; a file of the user takes their place. After an interruption, the next
installation reuses what was downloaded.

A clone has all adapters, the wheel of inbedder that of ``mini``. Any other is installed into the home folder: from a clone, or
from the files of a release. It must have the SHA-256 in the model's ``checksums.json``, which the wheel has.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterable
from pathlib import Path
from urllib.request import urlopen

from inbedder.errors import InputError, ModelError, format_value
from inbedder.io.files import atomic_write, hash_file
from inbedder.io.temporaries import hold_temporary, remove_leftovers
from inbedder.models.bases import BASE_OF, BASES
from inbedder.models.checksums import CHECKSUMS, check_checksums
from inbedder.models.converted import MANIFEST, check_converted, write_converted
from inbedder.models.data_home import get_home_folder
from inbedder.models.weight_sources import Report, Source, UnreachableError, check_file

ADAPTERS = {name: Path(__file__).resolve().parent / name for name in ("mini", "small", "medium", "multilingual")}
"""The folders of the bundled models in this package."""
ADAPTER = "adapter_model.safetensors"
"""The file of a bundled model's adapter."""
RELEASES_VARIABLE = "INBEDDER_RELEASES"
"""Environment variable with the address of the releases' files: ADDRESS/vVERSION/NAME-adapter_model.safetensors."""
TIMEOUT_SECONDS = 30


def find_bundled_folder(name: str) -> Path:
    """Find and check the folder of a bundled model's adapter, in this package or where ``install`` copied it."""
    folder, remedy = get_home_folder() / "models" / name, f"inbedder models install {name}"
    if (ADAPTERS[name] / ADAPTER).is_file():
        folder, remedy = ADAPTERS[name], "pip install --force-reinstall inbedder"
    elif not (folder / ADAPTER).is_file():
        raise ModelError(f"The adapter of {name} is not installed. Run once: {remedy}")
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
    """Return the name in ``BASES`` of a bundled model's base, or of a base itself; reject any other name."""
    base = BASE_OF.get(name, name)
    if base not in BASES:
        raise InputError(f"Cannot install {name!r}. Choose one of: {', '.join((*BASE_OF, *BASES))}.")
    return base


def find_required_folder(base: str) -> Path:
    """Find and check the folder of an installed base of ``BASES``; the error names the command that installs it."""
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


def install(name: str, source: Path | None = None, report: Report = lambda _stage: None) -> Path:
    """Install the adapter and the base of a bundled model, unless they are installed.

    Args:
        name: A bundled model, such as "small".
        source: A clone of the repository or the adapter in it, from which the adapter is copied; or the base's wheel or the file
            in it. None downloads what is missing.
        report: Is called with one line before each stage.

    Returns:
        The folder of the base.

    Raises:
        InputError: If the name cannot be installed, or the source is another file.
        ModelError: If no source of adapter or base can be reached, or the disk is full.
    """
    base = get_base_name(name)
    folder = get_home_folder() / "models" / base
    if source is not None and (source.is_dir() or source.suffix == ".safetensors"):
        _copy_adapter(name, source / "inbedder" / "models" / name / ADAPTER if source.is_dir() else source)
        source = None
    if name in BASE_OF:
        if not any((folder / ADAPTER).is_file() for folder in (ADAPTERS[name], get_home_folder() / "models" / name)):
            _download_adapter(name, report)
        find_bundled_folder(name)
    if find_installed_folder(base):
        check_converted(folder)
        return folder
    downloads = get_home_folder().resolve() / "downloads"
    try:
        downloads.mkdir(parents=True, exist_ok=True)
        with hold_temporary(downloads / "scratch", is_folder=True) as scratch:
            if source is None:
                weights, file = _fetch_weights(base, downloads, scratch, report)
            else:
                weights, file = _open_weights(base, source, downloads, scratch)
            report(f"converting {file.name} (up to two minutes) ...")
            write_converted(file, folder, weights.write)
    except OSError as error:
        raise ModelError(
            f"Cannot write {downloads}: {error.strerror or error}. Set INBEDDER_HOME to a writable folder."
        ) from error
    _remove_paths(_list_downloads(base, downloads))
    return folder


def remove(name: str) -> bool:
    """Remove an installed base and its downloads, also of an interrupted installation; return whether there were any."""
    base = get_base_name(name)
    folder, downloads = get_home_folder() / "models" / base, get_home_folder() / "downloads"
    paths = [folder, *_list_downloads(base, downloads)]
    is_installed = any(path.exists() for path in paths)
    _remove_paths(paths)
    for parent in (folder.parent, downloads):
        remove_leftovers(parent)
    return is_installed


def _fetch_weights(base: str, downloads: Path, scratch: Path, report: Report) -> tuple[Source, Path]:
    """Fetch the file with the weights from the first source that can be reached, one with downloads first; return both."""
    failures = []
    for source in sorted(BASES[base].sources, key=lambda source: not any(map(Path.exists, source.list_downloads(downloads)))):
        _check_free_bytes(base, source.count_missing_bytes(downloads), downloads)
        try:
            return source, source.fetch(downloads, scratch, report)
        except UnreachableError as error:
            failures.append(error)
    raise ModelError(" ".join(map(str, failures))) from failures[-1]


def _open_weights(base: str, path: Path, downloads: Path, scratch: Path) -> tuple[Source, Path]:
    """Return the source that a user's file belongs to, and the file with the weights."""
    if not path.is_file():
        raise InputError(f"The file {path} does not exist.")
    _check_free_bytes(base, path.stat().st_size if path.suffix == ".whl" else 0, downloads)
    digest = hash_file(path)
    for source in BASES[base].sources:
        if (file := source.open_file(path, digest, scratch)) is not None:
            return source, file
    raise InputError(f"{path} is not the published file (its SHA-256 differs). Download it again.")


def _check_free_bytes(base: str, num_bytes: int, downloads: Path) -> None:
    """Reject an installation that the disk has no room for: bytes to download and unpack, and the written folder."""
    num_bytes += BASES[base].num_bytes
    num_free = shutil.disk_usage(downloads).free
    if num_free < num_bytes:
        raise ModelError(
            f"{base} needs {num_bytes:,} bytes on the disk of {downloads}, where {num_free:,} are free. Free space there, or set "
            "INBEDDER_HOME to a folder on a larger disk."
        )


def _list_downloads(base: str, downloads: Path) -> list[Path]:
    return [path for source in BASES[base].sources for path in source.list_downloads(downloads)]


def _remove_paths(paths: Iterable[Path]) -> None:
    for path in paths:
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def _download_adapter(name: str, report: Report) -> None:
    """Download an adapter from the files of this version's release."""
    address = os.environ.get(RELEASES_VARIABLE)
    advice = f"Take it from a clone of the repository: inbedder models install {name} --from CLONE"
    if not address:
        raise ModelError(f"The adapter of {name} is in no release yet. {advice}")
    from inbedder import __version__

    url = f"{address.rstrip('/')}/v{__version__}/{name}-{ADAPTER}"
    report(f"downloading {url} ...")
    downloads = get_home_folder().resolve() / "downloads"
    downloads.mkdir(parents=True, exist_ok=True)
    with hold_temporary(downloads / ADAPTER) as temporary:
        try:
            with urlopen(url, timeout=TIMEOUT_SECONDS) as response, temporary.open("wb") as file:
                shutil.copyfileobj(response, file, 1 << 20)
        except (OSError, ValueError) as error:
            raise ModelError(f"Cannot download {url} ({error}). {advice}") from error
        _copy_adapter(name, temporary)


def _copy_adapter(name: str, source: Path) -> None:
    """Copy an adapter that has the published SHA-256, with its settings, into the home folder."""
    if name not in BASE_OF:
        raise InputError(f"{format_value(name)} has no adapter. Leave out --from, or choose one of: {', '.join(BASE_OF)}.")
    digests = json.loads((ADAPTERS[name] / CHECKSUMS).read_text(encoding="utf-8"))
    files = {file: ADAPTERS[name] / file for file in (CHECKSUMS, *digests)} | {ADAPTER: check_file(source, digests[ADAPTER])}
    folder = get_home_folder() / "models" / name
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for file, path in files.items():
            with atomic_write(folder / file) as temporary:
                shutil.copyfile(path, temporary)
    except OSError as error:
        raise ModelError(f"Cannot write {folder}: {error.strerror or error}. Set INBEDDER_HOME to a writable folder.") from error
