"""Conversion of a decoder's GGUF file, once, into a folder that transformers loads in a second.

transformers and the package ``gguf`` expand llama.cpp's quantized blocks; the result is saved as bfloat16 safetensors under
``get_home_folder()``. Its folder's name depends on the file's path, size and modification time, so a changed file is converted
again.

Some files hold the word matrix of a tied decoder twice, as input matrix in fewer bits and as output matrix in more. The converted
decoder is tied again, to the output matrix.
"""

from __future__ import annotations

import hashlib
import shutil
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from inbedder.errors import MissingExtraError, ModelError
from inbedder.models.converted import MANIFEST, check_converted, write_converted
from inbedder.models.data_home import get_home_folder
from inbedder.runtime.transformers_output import silence_gguf_bar, silence_transformers

MAX_TIED_DIFFERENCE = 0.15
"""Maximum mean difference of two word matrices that are one, relative to the mean size of their numbers.

Measured on the word matrix of Qwen2.5-Coder 0.5B: blocks of 5 bits differ from those of 8 bits by 0.046, of 4 bits by 0.083 to
0.093, of 3 bits by about 0.18; the vectors of other words differ by 1.24.
"""


def get_converted_folder(file: Path) -> Path:
    """Return the folder of a converted .gguf file of a decoder; convert it if it has none."""
    stat = file.stat()
    key = hashlib.sha256(f"{file.resolve()} {stat.st_size} {stat.st_mtime_ns}".encode()).hexdigest()[:16]
    folder = get_home_folder() / "gguf" / f"{file.stem}-{key}"
    if not (folder / MANIFEST).is_file():
        write_converted(file, folder, write_decoder)
    check_converted(folder)
    return folder


def write_decoder(file: Path, folder: Path) -> None:
    """Write configuration, tokenizer and bfloat16 weights of a decoder's .gguf file into an empty folder."""
    if find_spec("gguf") is None:
        raise MissingExtraError("gguf", "mini")
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    source_folder = folder / ".source"  # holds a link to the file only, no adapter or code from its folder
    try:
        source_folder.mkdir()
        (source_folder / file.name).symlink_to(file.resolve())
        source: dict[str, Any] = {"gguf_file": file.name, "trust_remote_code": False}
        with silence_transformers(expected_gaps=True), silence_gguf_bar():  # it would warn that bfloat16 is slow
            tokenizer = AutoTokenizer.from_pretrained(source_folder, **source)
            quantized = AutoModelForCausalLM.from_pretrained(source_folder, dtype=torch.bfloat16, **source)
        share_word_matrix(quantized)
        settings = {key: value for key, value in quantized.config.to_dict().items() if key != "quantization_config"}
        with torch.device("meta"):
            plain = type(quantized)(type(quantized.config)(**settings))
        plain.load_state_dict(quantized.state_dict(), assign=True)
        plain.tie_weights()
        plain.generation_config = quantized.generation_config
        with silence_transformers(expected_gaps=True):
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


def share_word_matrix(model: Any) -> bool:
    """Tie a decoder's input matrix to its output matrix if they are nearly equal, as ``MAX_TIED_DIFFERENCE`` says.

    llama.cpp quantizes the output matrix to more bits, so that is the one that stays.

    Args:
        model: A causal LM. Its matrices and configuration change.

    Returns:
        Whether they are tied now and were not before.
    """
    import torch

    inputs, outputs = model.get_input_embeddings(), model.get_output_embeddings()
    if not model._tied_weights_keys or inputs is None or outputs is None:  # the architecture has no tied form
        return False
    source, target = inputs.weight.detach(), outputs.weight.detach()
    if source.data_ptr() == target.data_ptr() or source.shape != target.shape:
        return False
    difference = (source - target).abs().mean(dtype=torch.float32)
    if not difference <= MAX_TIED_DIFFERENCE * target.abs().mean(dtype=torch.float32):
        return False
    inputs.weight = outputs.weight
    model.config.tie_word_embeddings = True
    return True
