"""Pack wheels for a machine without a network. This module imports nothing that such a machine may lack."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

PACKAGES = (
    "annotated-types",
    "bitsandbytes",
    "datasets",
    "dill",
    "multiprocess",
    "nltk",
    "pydantic",
    "pydantic-core",
    "sentence-transformers",
    "typing-extensions",
    "typing-inspection",
)
"""Packages that a machine with torch and transformers may lack, and what they need; versions are those installed here."""
PYTHON, CUDA_LIBRARY = "3.12", "libbitsandbytes_cuda130.so"
"""Python of the machine with the GPU, and the library of bitsandbytes for its CUDA: with all of them the wheel has 43 MB."""
PLATFORMS = [f"manylinux_2_{minor}_x86_64" for minor in (28, 27, 24, 17)] + ["manylinux2014_x86_64", "manylinux1_x86_64"]


def download_wheels(folder: Path) -> None:
    """Download the wheels of ``PACKAGES`` for the other machine's Python."""
    target = ["--python-version", PYTHON, "--implementation", "cp", *(f"--platform={name}" for name in PLATFORMS)]
    pins = [f"{name}=={version(name)}" for name in PACKAGES]
    command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary=:all:", *target, "-d", str(folder)]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    subprocess.run([*command, *pins], check=True, env=environment)


def shrink_wheel(wheel: Path, library: str) -> None:
    """Rewrite a wheel without its shared libraries, except one."""
    temporary = wheel.with_suffix(".part")
    with zipfile.ZipFile(wheel) as source, zipfile.ZipFile(temporary, "w", zipfile.ZIP_DEFLATED) as target:
        names = [name for name in source.namelist() if not name.endswith(".so") or Path(name).name == library]
        if not any(name.endswith(library) for name in names):
            sys.exit(f"{wheel.name} has no {library}.")
        for name in names:
            target.writestr(name, source.read(name))
    temporary.replace(wheel)


def unpack_wheels(folder: Path, target: Path) -> Path | None:
    """Unpack the carried wheels of packages that this Python lacks, or has in another version; None when it lacks none."""
    missing_wheels = [path for path in sorted(folder.glob("wheels/*.whl")) if not _is_installed(*path.name.split("-")[:2])]
    for wheel in missing_wheels:
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(target)
    return target if missing_wheels else None


def _is_installed(name: str, wheel_version: str) -> bool:
    try:
        return version(name) == wheel_version
    except PackageNotFoundError:
        return False
