"""Read texts, and pack the base of mini for a machine without a network.

The base travels in about 12 MB instead of 91: one byte per weight with a scale per row, and only those rows of the vocabulary
that the suite's texts use; the others are 0. Vectors of such weights differ a little from those of the published ones, so the
suite compares them only with each other: a GPU with the CPU of the same machine.
"""

from __future__ import annotations

import csv
import json
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from inbedder.models.bundled import BASE_FILES, find_base_folder, find_installed_base
from inbedder.prompting.templates import get_template
from scripts.bench.benchmark_inputs import QUESTIONS

ROOT = Path(__file__).resolve().parents[3]
CARRIED = ROOT / ".gpu"
WEIGHTS, EMBEDDINGS = "model.safetensors", "embeddings.word_embeddings.weight"


def read_sentences() -> list[str]:
    """Read every distinct text of the repository's own data: reviews, sentence pairs, requests."""
    with (ROOT / "inbedder" / "demo_texts" / "reviews.csv").open(encoding="utf-8", newline="") as stream:
        sentences = [row[max(row, key=lambda name: len(str(row[name])))] for row in csv.DictReader(stream)]
    for path in sorted((ROOT / "evaluation" / "data").glob("*.jsonl")):
        rows = (json.loads(line) for line in path.read_text(encoding="utf-8").splitlines())
        sentences += [value for row in rows for value in row.values() if isinstance(value, str) and " " in value]
    return list(dict.fromkeys(sentences))


def sample_texts(count: int) -> list[str]:
    """Sample distinct texts, each one to four of ``read_sentences`` joined."""
    sentences, draws = read_sentences(), np.random.default_rng(0)
    joined: dict[str, None] = {}
    while len(joined) < count:
        joined[" ".join(draws.choice(sentences, draws.integers(1, 5)))] = None
    return list(joined)


def pack_base(base: Path, folder: Path) -> None:
    """Write the base of mini with one byte per weight and the rows of the vocabulary that the suite's texts use."""
    from transformers import AutoTokenizer

    for name in BASE_FILES:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        if name != WEIGHTS:
            shutil.copy(base / name, folder / name)
    tokenizer = AutoTokenizer.from_pretrained(base)
    prompts = [get_template("compact").render(text, question).string for text in read_sentences() for question in QUESTIONS[:1]]
    ids = {token for row in tokenizer([*prompts, *QUESTIONS], add_special_tokens=False)["input_ids"] for token in row}
    rows = torch.tensor(sorted(ids | set(tokenizer.all_special_ids)))
    packed: dict[str, Tensor] = {"rows": rows.short()}
    for name, tensor in load_file(base / WEIGHTS).items():
        if name == EMBEDDINGS:
            packed["shape"] = torch.tensor(tensor.shape)
            tensor = tensor[rows]
        if tensor.ndim < 2:
            packed[name] = tensor
            continue
        scale = tensor.abs().amax(1, keepdim=True).clamp(min=1e-12) / 127
        packed |= {name: (tensor / scale).round().to(torch.int8), f"{name}.scale": scale}
    save_file(packed, folder / WEIGHTS)


def find_base(folder: Path, temporary: Path) -> tuple[Path, str]:
    """Find the base of mini.

    Args:
        folder: The carried folder.
        temporary: An empty folder for restored weights.

    Returns:
        The published base if a package here holds it, else one restored from the carried bytes; and which of both it is.
    """
    if find_installed_base() is not None:
        return find_base_folder(), "published weights"
    if not (folder / "base").is_dir():
        sys.exit(f"No package holds the base of mini, and neither does {folder}. Carry it: scripts/bench/gpu_suite prepare")
    shutil.copytree(folder / "base", temporary, dirs_exist_ok=True)
    packed = load_file(folder / "base" / WEIGHTS)
    rows, shape = packed.pop("rows").long(), packed.pop("shape").tolist()
    scales = {name.removesuffix(".scale"): packed.pop(name) for name in list(packed) if name.endswith(".scale")}
    restored = {name: tensor.float() * scales[name] if name in scales else tensor for name, tensor in packed.items()}
    restored[EMBEDDINGS] = torch.zeros(shape).index_copy(0, rows, restored[EMBEDDINGS])
    save_file(restored, temporary / WEIGHTS, metadata={"format": "pt"})
    return temporary, "weights of one byte each, without unused rows of the vocabulary"


def copy_mini(base: Path, folder: Path) -> Path:
    """Copy the bundled adapter so that it takes its base from another folder."""
    shutil.copytree(ROOT / "inbedder" / "models" / "mini", folder, ignore=shutil.ignore_patterns("checksums.json", "*.md"))
    _change_json(folder / "adapter_config.json", {"base_model_name_or_path": str(base)})
    _change_json(folder / "inbedder.json", {"base": str(base), "base_encoder": str(base)})
    return folder


def _change_json(path: Path, changes: dict[str, Any]) -> None:
    path.write_text(json.dumps(json.loads(path.read_text(encoding="utf-8")) | changes), encoding="utf-8")
