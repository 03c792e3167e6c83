#!/usr/bin/env python3
"""Pack fine-tuned models into a small float16 adapter without machine-specific paths.

python scripts/train/pack_adapter.py runs/mini-0 runs/mini-1 runs/mini-2 inbedder/models/mini --rank 96
python scripts/train/pack_adapter.py runs/small-0 runs/small-1 inbedder/models/small --rank 64 --set max_new_tokens=10
python scripts/train/pack_adapter.py runs/mini-late-interaction-0 runs/mini-late-interaction-1 runs/mini-late-interaction --whole

A single adapter is copied. Several adapters of one base are averaged: the mean change of each layer (model soups, Wortsman et al.
2022) is approximated at the given rank by its largest singular values. Fully trained models of one base (masked LMs of BERT's
kind) are averaged likewise; their biases, layer norms, token type embeddings and answer head are stored in full, and their word
and position embeddings must equal those of the base. ``--whole`` writes the mean of such models as a model, for further training.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
import yaml
from safetensors.torch import save_file
from torch import Tensor, nn

from inbedder.backbones.adapters import read_weights
from inbedder.backbones.families import load_model
from inbedder.backbones.file_checks import ADAPTER_WEIGHTS
from inbedder.backbones.hub import SETTINGS_FILE
from inbedder.models.checksums import write_checksums
from inbedder.options import ModelOptions

SETTINGS = ("base", "template", "mask_length", "late_interaction", "base_encoder", "add_generic", "normalize")
"""Keys of inbedder.json that are kept."""
LINEAR_MODULES = r".*encoder\.layer\.\d+\..*(query|key|value|dense)"
FULL_MODULES = ["transform", "output.LayerNorm", "embeddings.LayerNorm", "token_type_embeddings"]


def average(models: Sequence[nn.Module]) -> dict[str, Tensor]:
    """Average the weights of models."""
    states = [model.state_dict() for model in models]
    return {name: torch.stack([state[name] for state in states]).mean(0) for name in states[0]}


def fit_low_rank(trained: Mapping[str, Tensor], base: nn.Module, rank: int) -> Any:
    """Fit an adapter of low rank to fully trained weights.

    Args:
        trained: Weights of a fully trained masked LM of BERT's kind.
        base: The model before training; it is modified.
        rank: Rank of each linear layer's change.

    Returns:
        A peft model.
    """
    from peft import LoraConfig, get_peft_model

    settings = LoraConfig(r=rank, lora_alpha=rank, bias="all", target_modules=LINEAR_MODULES, modules_to_save=FULL_MODULES)
    before = {name: tensor.clone() for name, tensor in base.state_dict().items()}
    adapted = get_peft_model(base, settings)
    retained = total = 0.0
    with torch.no_grad():
        for name, parameter in adapted.base_model.model.named_parameters():
            plain = name.replace(".base_layer", "").replace(".modules_to_save.default", "").replace(".original_module", "")
            if "lora_" not in name and plain in trained and ("bias" in name or "modules_to_save" in name):
                parameter.copy_(trained[plain])
        for name, module in adapted.base_model.model.named_modules():
            if hasattr(module, "lora_A"):
                change = trained[f"{name}.weight"] - before[f"{name}.weight"]
                u, values, v = torch.linalg.svd(change, full_matrices=False)
                root = values[:rank].sqrt()
                module.lora_B["default"].weight.copy_(u[:, :rank] * root)
                module.lora_A["default"].weight.copy_(root.unsqueeze(1) * v[:rank])
                retained, total = retained + float(values[:rank].square().sum()), total + float(values.square().sum())
    print(f"rank {rank} keeps {retained / total:.1%} of the squared change")
    return adapted


def export_adapter(adapted: Any) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Export the weights and configuration of an adapter as peft saves them."""
    with tempfile.TemporaryDirectory() as folder:
        adapted.save_pretrained(folder)
        weights = read_weights(Path(folder))
        config = json.loads((Path(folder) / "adapter_config.json").read_text(encoding="utf-8"))
    return weights, config


def average_adapters(adapters: Sequence[Mapping[str, Tensor]], scale: float, rank: int) -> dict[str, Tensor]:
    """Average the changes of adapters, approximated at a rank.

    Args:
        adapters: Weights of plain LoRA adapters of one shape.
        scale: alpha / r of each adapter.
        rank: Rank of the result.

    Returns:
        Weights of one adapter with alpha = r.
    """
    mean: dict[str, Tensor] = {}
    retained = total = 0.0
    for name in adapters[0]:
        if not name.endswith(".lora_A.weight"):
            continue
        name_b = name.replace(".lora_A.", ".lora_B.")
        change = torch.stack([scale * adapter[name_b].float() @ adapter[name].float() for adapter in adapters]).mean(0)
        u, values, v = torch.linalg.svd(change, full_matrices=False)
        root = values[:rank].sqrt()
        mean[name_b], mean[name] = u[:, :rank] * root, root.unsqueeze(1) * v[:rank]
        retained, total = retained + float(values[:rank].square().sum()), total + float(values.square().sum())
    print(f"rank {rank} keeps {retained / total:.1%} of the squared change")
    return mean


def make_adapter(
    sources: Sequence[Path], rank: int, base: str | None
) -> tuple[dict[str, Tensor], dict[str, Any], dict[str, Any]]:
    """Make one adapter of fine-tuned folders; returns its weights, peft's configuration and inbedder's settings."""
    settings = json.loads((sources[0] / SETTINGS_FILE).read_text(encoding="utf-8"))
    adapters = [read_weights(source) for source in sources if (source / ADAPTER_WEIGHTS).exists()]
    is_plain_lora = len(adapters) == len(sources) and all(
        "lora_" in name for adapter in adapters for name in adapter
    )  # no biases
    if adapters and (is_plain_lora or len(sources) == 1):
        config = json.loads((sources[0] / "adapter_config.json").read_text(encoding="utf-8"))
        if len(sources) == 1:
            return adapters[0], config, settings
        return (
            average_adapters(adapters, config["lora_alpha"] / config["r"], rank),
            config | {"r": rank, "lora_alpha": rank},
            settings,
        )
    settings["base"] = base or settings.get("base") or settings["recipe"]["model"]

    def load(name: str) -> Any:
        return load_model(ModelOptions(name, dtype="float32", device="cpu")).model

    trained = average([load(str(source)) for source in sources])
    return *export_adapter(fit_low_rank(trained, load(settings["base"]), rank)), settings


def save_whole(sources: Sequence[Path], target: Path) -> None:
    """Write the mean of fully trained models, with the tokenizer and the settings of the first."""
    models = [load_model(ModelOptions(str(source), dtype="float32", device="cpu")) for source in sources]
    mean = models[0].model
    mean.load_state_dict(average([one.model for one in models]))
    mean.save_pretrained(target)
    models[0].tokenizer.save_pretrained(target)
    shutil.copy(sources[0] / SETTINGS_FILE, target)
    write_checksums(target)


def round_halves(tensor: Tensor) -> Tensor:
    """Round to float16 with 8 fraction bits instead of 10, one more than bfloat16, which makes archives a seventh smaller."""
    bits = tensor.to(torch.float16).contiguous().view(torch.int16)
    return ((bits + 2) & -4).view(torch.float16)


def main() -> None:
    """Write the adapter, its configuration, settings and checksums."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sources", type=Path, nargs="+")
    parser.add_argument("target", type=Path)
    parser.add_argument("--rank", type=int, default=96)
    parser.add_argument("--base", help="Hub id of the base, when the recipe names a folder.")
    parser.add_argument("--whole", action="store_true", help="Write the mean of fully trained models as a model.")
    parser.add_argument(
        "--set", action="append", default=[], help="A setting of inbedder.json: key=value, the value is YAML. May repeat."
    )
    options = parser.parse_args()
    options.target.mkdir(parents=True, exist_ok=True)
    if options.whole:
        save_whole(options.sources, options.target)
        return
    weights, config, settings = make_adapter(options.sources, options.rank, options.base)
    halves = {name: round_halves(tensor) for name, tensor in weights.items()}
    save_file(halves, options.target / "adapter_model.safetensors", metadata={"format": "pt"})
    (options.target / "adapter_model.safetensors").chmod(0o644)
    settings["base"] = options.base or settings["base"]
    config["base_model_name_or_path"] = settings["base"]
    settings = {key: settings[key] for key in SETTINGS if key in settings}
    settings |= {key: yaml.safe_load(value) for key, value in (pair.split("=", 1) for pair in options.set)}
    for name, values in (("adapter_config.json", config), (SETTINGS_FILE, settings)):
        (options.target / name).write_text(json.dumps(values, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    write_checksums(options.target)


if __name__ == "__main__":
    main()
