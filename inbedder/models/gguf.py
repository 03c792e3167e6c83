"""Conversion of a decoder's GGUF file, once, into a folder that transformers loads in a second.

transformers and the package ``gguf`` expand llama.cpp's quantized blocks; the result is saved as bfloat16 safetensors under
``get_home_folder()``. Its folder's name depends on the file's path, size and modification time, so a changed file is converted
again.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from inbedder.errors import MissingExtraError, ModelError
from inbedder.io.files import hash_file, read_umask
from inbedder.io.temporaries import hold_temporary
from inbedder.models.checksums import get_digest
from inbedder.models.data_home import get_home_folder

MANIFEST = "converted.json"
"""The file in a converted folder that names its source and the SHA-256 of its files. It is written last."""


def get_converted_folder(file: Path) -> Path:
    """Return the converted folder of a GGUF file, converting it now if there is none.

    Args:
        file: A .gguf file.

    Returns:
        A folder with config.json, tokenizer.json and model.safetensors.

    Raises:
        ModelError: If the file cannot be read as a decoder, the disk is full, or the converted folder is damaged.
        MissingExtraError: If ``gguf`` is not installed.
    """
    stat = file.stat()
    key = hashlib.sha256(f"{file.resolve()} {stat.st_size} {stat.st_mtime_ns}".encode()).hexdigest()[:16]
    folder = get_home_folder() / "gguf" / f"{file.stem}-{key}"
    if not (folder / MANIFEST).is_file():
        convert(file, folder)
    check_converted(folder)
    return folder


def convert(file: Path, folder: Path) -> None:
    """Convert a GGUF file into a folder, which appears only when it is complete.

    Args:
        file: A .gguf file.
        folder: The folder to write; an older one is replaced.

    Raises:
        ModelError: If the file cannot be read as a decoder, or the disk is full.
        MissingExtraError: If ``gguf`` is not installed.
    """
    if find_spec("gguf") is None:
        raise MissingExtraError("gguf", "mini")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with hold_temporary(folder, is_folder=True) as partial:
            _expand(file, partial)
            digests = {path.name: hash_file(path) for path in sorted(partial.iterdir())}
            manifest = {"file": file.name, "sha256": hash_file(file), "written": digests}
            (partial / MANIFEST).write_text(json.dumps(manifest, indent=1), encoding="utf-8")
            for path in (partial, *partial.iterdir()):
                path.chmod((0o777 if path.is_dir() else 0o666) & ~read_umask())
            shutil.rmtree(folder, ignore_errors=True)
            partial.rename(folder)
    except OSError as error:
        if (folder / MANIFEST).is_file():
            return  # another process converted it first
        advice = "Set INBEDDER_HOME to a writable folder with free space."
        raise ModelError(f"Cannot convert {file} into {folder}: {error.strerror or error}. {advice}") from error


def _expand(file: Path, folder: Path) -> None:
    """Write configuration, tokenizer and bfloat16 weights."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from transformers.utils import logging

    bar, level = logging.is_progress_bar_enabled(), logging.get_verbosity()
    logging.disable_progress_bar()
    logging.set_verbosity_error()  # it would warn that bfloat16 runs slower than float32
    source_folder = folder / ".source"  # holds a link to the file only, no adapter or code from its folder
    try:
        source_folder.mkdir()
        (source_folder / file.name).symlink_to(file.resolve())
        source: dict[str, Any] = {"gguf_file": file.name, "trust_remote_code": False}
        tokenizer = AutoTokenizer.from_pretrained(source_folder, **source)
        quantized = AutoModelForCausalLM.from_pretrained(source_folder, dtype=torch.bfloat16, **source)
        settings = {key: value for key, value in quantized.config.to_dict().items() if key != "quantization_config"}
        with torch.device("meta"):
            plain = type(quantized)(type(quantized.config)(**settings))
        plain.load_state_dict(quantized.state_dict(), assign=True)
        plain.tie_weights()
        plain.generation_config = quantized.generation_config
        plain.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
    except OSError:
        raise
    except Exception as error:  # a damaged file can raise anything
        raise ModelError(
            f"Cannot read {file} as the GGUF file of a decoder ({' '.join(str(error).split())[:300]}). Download it "
            "again, or choose an architecture that transformers reads from GGUF (Llama, Mistral, Qwen2, ...)."
        ) from error
    finally:
        shutil.rmtree(source_folder, ignore_errors=True)
        logging.set_verbosity(level)
        if bar:
            logging.enable_progress_bar()


def check_converted(folder: Path) -> None:
    """Refuse a folder that ``convert`` wrote if one of its files is missing or changed."""
    try:
        digests = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))["written"]
        changed_names = [name for name, digest in digests.items() if get_digest(folder / name) != digest]
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ModelError(f"{folder} is damaged ({error}). Remove the folder to convert the file again.") from error
    if changed_names:
        raise ModelError(
            f"{', '.join(changed_names)} in {folder} changed after the conversion. Remove the folder to convert the file again."
        )
