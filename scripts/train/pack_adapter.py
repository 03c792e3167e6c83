#!/usr/bin/env python3
"""Pack the mean of fine-tuned adapters of one shape in float16, without machine-specific paths.

python scripts/train/pack_adapter.py runs/small-0 runs/small-1 runs/packed --base SmolLM2-135M-Instruct --set max_new_tokens=10
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
import yaml
from safetensors.torch import load_file, save_file
from torch import Tensor

from inbedder.backbones.file_checks import ADAPTER_WEIGHTS
from inbedder.backbones.hub import SETTINGS_FILE
from inbedder.models.checksums import write_checksums


def average_adapters(adapters: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """Average the changes of plain LoRA adapters of one shape, approximated at their rank by the largest singular values."""
    mean: dict[str, Tensor] = {}
    for name, first in adapters[0].items():
        name_b = name.replace(".lora_A.", ".lora_B.")
        if name_b != name:
            change = torch.stack([adapter[name_b].float() @ adapter[name].float() for adapter in adapters]).mean(0)
            u, values, v = torch.linalg.svd(change, full_matrices=False)
            root = values[: len(first)].sqrt()
            mean[name], mean[name_b] = root.unsqueeze(1) * v[: len(root)], u[:, : len(root)] * root
    return mean


def main() -> None:
    """Write the adapter, its configuration, settings and checksums."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sources", type=Path, nargs="+")
    parser.add_argument("target", type=Path)
    parser.add_argument("--base", required=True, help="Name of the base, in place of the folder that was trained.")
    parser.add_argument(
        "--set", action="append", default=[], help="A setting of inbedder.json: key=value, the value is YAML. May repeat."
    )
    options = parser.parse_args()
    options.target.mkdir(parents=True, exist_ok=True)
    weights = average_adapters([load_file(source / ADAPTER_WEIGHTS) for source in options.sources])
    save_file(
        {name: tensor.half().contiguous() for name, tensor in weights.items()},
        options.target / ADAPTER_WEIGHTS,
        metadata={"format": "pt"},
    )
    config, settings = (
        json.loads((options.sources[0] / file).read_text(encoding="utf-8")) for file in ("adapter_config.json", SETTINGS_FILE)
    )
    config["base_model_name_or_path"] = settings["base"] = options.base
    settings |= {key: yaml.safe_load(value) for key, value in (pair.split("=", 1) for pair in options.set)}
    for name, values in (("adapter_config.json", config), (SETTINGS_FILE, settings)):
        (options.target / name).write_text(json.dumps(values, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    write_checksums(options.target)


if __name__ == "__main__":
    main()
