#!/usr/bin/env python3
"""Make a fine-tuned adapter small enough for git: float16 weights, no machine paths.

python scripts/pack_adapter.py runs/mini inbedder/models/mini
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from inbedder.backbones.loading import SETTINGS_FILE


def main() -> None:
    """Copy adapter, configuration and settings."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=Path)
    parser.add_argument("target", type=Path)
    options = parser.parse_args()
    options.target.mkdir(parents=True, exist_ok=True)
    weights = {name: tensor.to(torch.float16) for name, tensor in load_file(options.source / "adapter_model.safetensors").items()}
    save_file(weights, options.target / "adapter_model.safetensors", metadata={"format": "pt"})
    (options.target / "adapter_model.safetensors").chmod(0o644)
    settings = json.loads((options.source / SETTINGS_FILE).read_text(encoding="utf-8"))
    config = json.loads((options.source / "adapter_config.json").read_text(encoding="utf-8"))
    config["base_model_name_or_path"] = settings["base"]
    settings = {key: settings[key] for key in ("base", "template", "mask_length")}
    for name, values in (("adapter_config.json", config), (SETTINGS_FILE, settings)):
        (options.target / name).write_text(json.dumps(values, indent=1, sort_keys=True) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
