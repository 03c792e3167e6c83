"""A GGUF file of a decoder, turned once into a folder that transformers loads in a second.

llama.cpp's quantized blocks are expanded by transformers and the package ``gguf`` and kept as bfloat16 safetensors. A converted
file stands under ``home_folder()``, named by where the file lies, its size and its time: a changed file is converted again.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from inbedder.errors import MissingExtraError, ModelError
from inbedder.io.files import read_umask, sha256_of
from inbedder.models.checksums import digest_of
from inbedder.models.data_home import home_folder

MANIFEST = "converted.json"
"""Beside converted weights: where they come from, and the SHA-256 of what was written. Written last."""


def gguf_folder(file: Path) -> Path:
    """The converted folder of a GGUF file, converted now if it is not there.

    Args:
        file: A .gguf file.

    Returns:
        A folder with config.json, tokenizer.json and model.safetensors.

    Raises:
        ModelError: When the file cannot be read as a decoder, there is no room, or what was written before is damaged.
        MissingExtraError: When ``gguf`` is not installed.
    """
    stat = file.stat()
    key = hashlib.sha256(f"{file.resolve()} {stat.st_size} {stat.st_mtime_ns}".encode()).hexdigest()[:16]
    folder = home_folder() / "gguf" / f"{file.stem}-{key}"
    if not (folder / MANIFEST).is_file():
        convert(file, folder)
    check_converted(folder)
    return folder


def convert(file: Path, folder: Path) -> None:
    """Turn a GGUF file into a folder; nothing is seen of it before it is whole.

    Args:
        file: A .gguf file.
        folder: Where the result goes; an older one is replaced.

    Raises:
        ModelError: When the file cannot be read as a decoder, or there is no room.
        MissingExtraError: When ``gguf`` is not installed.
    """
    if find_spec("gguf") is None:
        raise MissingExtraError("gguf", "mini")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        partial = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}."))
    except OSError as error:
        raise ModelError(f"Cannot write {folder}: {error.strerror}. Set INBEDDER_HOME to a folder with room.") from error
    try:
        _expand(file, partial)
        written = {path.name: sha256_of(path) for path in sorted(partial.iterdir())}
        manifest = {"file": file.name, "sha256": sha256_of(file), "written": written}
        (partial / MANIFEST).write_text(json.dumps(manifest, indent=1), encoding="utf-8")
        for path in (partial, *partial.iterdir()):
            path.chmod((0o777 if path.is_dir() else 0o666) & ~read_umask())
        shutil.rmtree(folder, ignore_errors=True)
        partial.rename(folder)
    except OSError as error:
        if (folder / MANIFEST).is_file():
            return  # another process was first
        raise ModelError(f"Cannot convert {file}: {error}. Make room, or set INBEDDER_HOME to another folder.") from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _expand(file: Path, folder: Path) -> None:
    """Write configuration, tokenizer and bfloat16 weights."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from transformers.utils import logging

    bar, level = logging.is_progress_bar_enabled(), logging.get_verbosity()
    logging.disable_progress_bar()
    logging.set_verbosity_error()  # it would warn that bfloat16 runs slower than float32
    alone = folder / ".alone"  # a folder without whatever else lies beside the file, such as an adapter or code
    try:
        alone.mkdir()
        (alone / file.name).symlink_to(file.resolve())
        source: dict[str, Any] = {"gguf_file": file.name, "trust_remote_code": False}
        tokenizer = AutoTokenizer.from_pretrained(alone, **source)
        quantized = AutoModelForCausalLM.from_pretrained(alone, dtype=torch.bfloat16, **source)
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
            f"{file} cannot be read as the GGUF file of a decoder ({' '.join(str(error).split())[:300]}). Download it "
            "again, or choose an architecture that transformers reads from GGUF (Llama, Mistral, Qwen2, ...)."
        ) from error
    finally:
        shutil.rmtree(alone, ignore_errors=True)
        logging.set_verbosity(level)
        if bar:
            logging.enable_progress_bar()


def check_converted(folder: Path) -> None:
    """Refuse a folder that ``convert`` wrote when a file in it is missing or changed."""
    try:
        written = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))["written"]
        damaged = [name for name, digest in written.items() if digest_of(folder / name) != digest]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ModelError(f"{folder} is damaged ({error}). Remove the folder; it is made again.") from error
    if damaged:
        raise ModelError(f"{', '.join(damaged)} in {folder} changed since it was written. Remove the folder; it is made again.")
