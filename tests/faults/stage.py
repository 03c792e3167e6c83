"""What a campaign needs before its first fault: tiny models with checksums, an adapter, tables, and the right vectors."""

from __future__ import annotations

import gzip
import json
import random
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet
import torch
from numpy.typing import NDArray
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM
from transformers.utils import logging

from inbedder import InBedder
from inbedder.models.checksums import write_checksums
from tests.faults.campaign import UndetectedError

ROOT = Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests" / "data" / "golden"
FAMILIES = ("opt", "llama", "roberta")
INSTRUCTION = "What does the customer need?"
WORDS = "lamp box delivery late voucher account guitar stage child red shirt crushed still works fine love return money".split()
DAMAGES = ("flip a bit", "flip a bit", "flip 20 bits", "zero a page", "garble", "truncate", "truncate", "empty", "remove")
ROUNDING = 1e-4
"""Of the largest number: texts that come in other batches give other last bits."""


def texts_of(count: int, seed: int = 0) -> list[str]:
    """Different texts of a few words.

    Args:
        count: How many.
        seed: Of the choice of words.

    Returns:
        The texts.
    """
    draw = random.Random(seed)
    return [f"{' '.join(draw.choices(WORDS, k=draw.randrange(3, 9)))} {number}" for number in range(count)]


class Stage:
    """A folder with all that faults are made to. Faults copy what they damage."""

    def __init__(self, folder: Path) -> None:
        """Make everything.

        Args:
            folder: An empty folder.
        """
        logging.disable_progress_bar()
        self.folder = folder
        self.models = {family: folder / family for family in FAMILIES}
        for family, place in self.models.items():
            shutil.copytree(GOLDEN / family, place)
            write_checksums(place)
        self.adapter = folder / "adapter"
        _make_adapter(self.models["opt"], self.adapter)
        self.few = texts_of(6, seed=1)
        self.vectors = {
            name: load(place).encode(self.few, INSTRUCTION) for name, place in {**self.models, "adapter": self.adapter}.items()
        }
        self.texts = texts_of(600)
        self.table = folder / "texts.csv"
        self.table.write_text("\n".join(["text", *self.texts]) + "\n", encoding="utf-8")
        self.inputs = _make_inputs(self.texts[:300], folder / "inputs")


def load(folder: Path, cache: Path | None = None) -> InBedder:
    """A model in float32, so that its vectors do not depend on the kind of CPU more than they must."""
    return InBedder(str(folder), device="cpu", dtype="float32", cache=cache)


def _make_adapter(base: Path, folder: Path) -> None:
    torch.manual_seed(0)
    model = get_peft_model(AutoModelForCausalLM.from_pretrained(base), LoraConfig(r=4, target_modules=["q_proj", "v_proj"]))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if ".lora_B." in name:
                parameter.normal_(std=0.5)
    model.save_pretrained(folder)
    (folder / "inbedder.json").write_text(json.dumps({"base": str(base), "template": "alpaca"}), encoding="utf-8")
    write_checksums(folder)


def _make_inputs(texts: list[str], folder: Path) -> list[Path]:
    """The same texts as .parquet with checksums of its pages, .csv.gz and .jsonl.gz."""
    folder.mkdir()
    table = pyarrow.table({"text": texts, "stars": list(range(len(texts)))})
    pyarrow.parquet.write_table(table, folder / "texts.parquet", row_group_size=100, write_page_checksum=True)
    lines = "".join(f"{text},{number}\n" for number, text in enumerate(texts))
    (folder / "texts.csv.gz").write_bytes(gzip.compress(f"text,stars\n{lines}".encode(), mtime=0))
    rows = "".join(json.dumps({"text": text}) + "\n" for text in texts)
    (folder / "texts.jsonl.gz").write_bytes(gzip.compress(rows.encode(), mtime=0))
    return sorted(folder.iterdir())


def check_vectors(vectors: NDArray[np.float32], right: NDArray[np.float32], label: str) -> None:
    """Compare vectors with the right ones, up to rounding.

    Args:
        found: float32, shape (n, d).
        right: float32, shape (n, d).
        what: What gave them.

    Raises:
        UndetectedError: When they differ.
    """
    if vectors.shape != right.shape:
        raise UndetectedError(f"{label} gave vectors of shape {vectors.shape}, not {right.shape}")
    difference = float(np.abs(vectors - right).max())
    if not difference <= ROUNDING * float(np.abs(right).max()):  # so that NaN differs
        raise UndetectedError(f"{label} gave vectors that are off by {difference:.3g}")


def damage(path: Path, draw: random.Random) -> str:
    """Damage a file.

    Args:
        path: The file.
        draw: Chooses how and where.

    Returns:
        What was done to it.
    """
    content = bytearray(path.read_bytes())
    kind, start = draw.choice(DAMAGES), draw.randrange(max(1, len(content)))
    if kind == "remove":
        path.unlink()
        return f"{path.name}: remove"
    if kind.startswith("flip") and content:
        for _ in range(1 if kind == "flip a bit" else 20):
            start = draw.randrange(len(content))
            content[start] ^= 1 << draw.randrange(8)
    elif kind == "zero a page":
        start = start // 4096 * 4096
        content[start : start + 4096] = bytes(len(content[start : start + 4096]))
    elif kind == "garble":
        content[start : start + 300] = draw.randbytes(len(content[start : start + 300]))
    else:
        del content[0 if kind == "empty" else start :]
    path.write_bytes(content)
    return f"{path.name}: {kind} at {start} of {len(content)} bytes left"


def same_file(path: Path, right: Path, loosely: bool) -> bool:
    """Whether an output is the right one; loosely, numbers may differ by rounding."""
    if path.suffix == ".npy":
        return _same_numbers(np.load(path, allow_pickle=False), np.load(right, allow_pickle=False), loosely)
    if path.suffix == ".parquet":
        tables = [pyarrow.parquet.read_table(place) for place in (path, right)]
        numbers = [np.stack(table["embedding"].to_numpy()) for table in tables]
        other_columns = [table.drop_columns(["embedding"]) for table in tables]
        return bool(other_columns[0].equals(other_columns[1])) and _same_numbers(*numbers, loosely)
    return path.read_bytes() == right.read_bytes()


def _same_numbers(one: Any, second: Any, loosely: bool) -> bool:
    if one.shape != second.shape:
        return False
    return bool(np.abs(one - second).max() <= (ROUNDING * np.abs(second).max() if loosely else 0))
