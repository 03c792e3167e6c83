"""What a checkpoint of sentence-transformers says in its files: pooling, Dense, Normalize, limits and prompts.

``modules.json`` lists the modules, each in a folder of its own with a ``config.json`` and, for Dense, a ``model.safetensors``.
Only modules whose meaning is known here are read; code of a repository is never run and pickled weights are never opened.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from huggingface_hub import snapshot_download
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from inbedder.backbones.file_checks import (
    ADAPTER_CONFIG,
    INDEX,
    WEIGHTS,
    check_adapter_weights,
    check_index,
    check_sums,
    check_tables,
    check_weights,
    check_whole,
    no_weights,
)
from inbedder.backbones.hub import MODULES_FILE, hub_file, not_loaded, read_table
from inbedder.errors import ModelError
from inbedder.io.files import is_inside
from inbedder.pooling import POOLINGS, poolings_of

logger = logging.getLogger(__name__)

POOLINGS_BY_MODE = {POOLINGS[name].mode: name for name in poolings_of("embedding")}
"""sentence-transformers' poolings that are known here, and their names here; "mean" is text-mean where no prompt is pooled."""
_LEGACY = ("cls_token", "max_tokens", "mean_tokens", "mean_sqrt_len_tokens", "weightedmean_tokens", "lasttoken")
_ACTIVATIONS = ("Identity", "Tanh", "ReLU", "GELU", "SiLU", "Sigmoid")
_NOT_NEEDED = ["*.bin", "*.pt", "*.pth", "*.ckpt", "*.pkl", "*.h5", "*.msgpack", "*.ot", "*.gguf", "onnx/*", "openvino/*"]
"""Files of a repository that sentence-transformers needs not, pickles among them."""


class Normalize(nn.Module):
    """Vectors of length 1."""

    def forward(self, vectors: Tensor) -> Tensor:
        """Scale vectors, shape (batch, d)."""
        return nn.functional.normalize(vectors, dim=-1)


@dataclass(frozen=True)
class SentenceModules:
    """All that follows the transformer, and what it wants to be asked."""

    pooling: str = "text-mean"
    """The pooling it was trained with."""
    after: nn.Sequential = field(default_factory=lambda: nn.Sequential(Normalize()))
    """Dense and Normalize, in their order."""
    max_length: int | None = None
    """Most tokens it reads, or None where only its tokenizer knows."""
    lower: bool = False
    """Whether texts are put in lower case although its tokenizer does not."""
    prompts: Mapping[str, str] = field(default_factory=dict)
    """What stands in front of a "query", a "document" and any other text ("") where nobody says."""


def read_modules(name: str, revision: str | None, *, explicit: bool) -> SentenceModules:
    """Read ``modules.json`` and what it points to.

    Args:
        name: A folder or a hub id.
        revision: Branch, tag or commit on the hub.
        explicit: Whether the user named the backbone. Where the pooling's settings do not say whether a prompt is pooled (they
            are older than the question, as in the published INSTRUCTOR checkpoints), it then is not; else it is, as in
            sentence-transformers.

    Returns:
        The modules. A folder without ``modules.json`` has INSTRUCTOR's mean over the text and Normalize.

    Raises:
        ModelError: When a module is of a kind that is not known here, or its weights are missing, pickled or damaged.
    """
    listed = _listed(name, revision)
    if listed is None:
        return SentenceModules()
    kinds = [_kind(str(module["type"])) for module in listed]
    if kinds[:2] != ["Transformer", "Pooling"] or set(kinds[2:]) - {"Dense", "Normalize"} or listed[0]["path"]:
        raise ModelError(
            f"{name} is made of {', '.join(str(one['type']) for one in listed)}. Known here is a Transformer at the top of the "
            "folder, a Pooling, and Dense and Normalize behind it; or name another backbone, such as backbone='masked'."
        )
    after = nn.Sequential()
    for kind, module in zip(kinds[2:], listed[2:], strict=True):
        after.append(_dense(name, str(module["path"]), revision) if kind == "Dense" else Normalize())
    transformer = _table(name, "sentence_bert_config.json", revision)
    max_length = transformer.get("max_seq_length")
    if max_length is not None and (type(max_length) is not int or max_length < 1):
        raise ModelError(f"max_seq_length in sentence_bert_config.json of {name} is {max_length!r}. Make it a whole number.")
    if "message" in (transformer.get("modality_config") or {}):
        raise ModelError(
            f"{name} reads its texts through a chat template, which is not known here. Use sentence-transformers itself."
        )
    return SentenceModules(
        pooling=_pooling(name, _table(name, f"{listed[1]['path']}/config.json", revision), explicit),
        after=after,
        max_length=max_length,
        lower=bool(transformer.get("do_lower_case")),
        prompts=_prompts(name, _table(name, "config_sentence_transformers.json", revision)),
    )


def check_width(after: nn.Sequential, width: int, name: str) -> None:
    """Refuse Dense layers that do not take vectors of the ``width`` before them."""
    for layer in (module for module in after.modules() if isinstance(module, nn.Linear)):
        if layer.in_features != width:
            raise ModelError(
                f"A Dense of {name} takes vectors of {layer.in_features} numbers, not of {width}: its files are of two models. "
                "Download it again."
            )
        width = layer.out_features


def module_files(folder: Path) -> list[Path]:
    """The settings and weights of the modules of a folder, in a fixed order; none without ``modules.json``."""
    paths = sorted({str(module["path"]) for module in _listed(str(folder), None) or [] if module["path"]})
    files = [folder / path / file for path in paths for file in ("config.json", WEIGHTS)]
    return [file for file in files if file.is_file()]


def sentence_folder(name: str) -> Path:
    """Find or download the folder that sentence-transformers loads; refuse one that leads to a pickle, to code or elsewhere."""
    folder = Path(name)
    if not folder.is_dir():
        try:
            folder = Path(snapshot_download(name, ignore_patterns=_NOT_NEEDED))
        except Exception as error:  # the hub's library raises many kinds
            raise not_loaded(name, error) from error
    check_sums(str(folder))
    for module in _listed(str(folder), None) or []:
        if not str(module["type"]).startswith("sentence_transformers."):
            raise ModelError(f"{name} is made of {module['type']}, whose code is not run. Choose another model.")
    for place in (folder, *(path for path in sorted(folder.rglob("*")) if path.is_dir())):
        if not any(part.startswith("checkpoint-") for part in place.relative_to(folder).parts):
            _check_place(place)
    return folder


def _check_place(folder: Path) -> None:
    """Refuse a folder in which sentence-transformers, transformers or peft would open a pickle, or leave it."""
    check_tables(folder)
    for index in folder.glob("*.safetensors.index.json"):
        check_index(index, folder)
    if (folder / ADAPTER_CONFIG).is_file():
        check_adapter_weights(folder)
        if not (folder / "config.json").is_file():
            base = str(read_table(folder / ADAPTER_CONFIG).get("base_model_name_or_path"))
            check_whole(base)
            check_weights(base)
    if any(folder.glob("pytorch_model*.bin*")) and not any((folder / file).is_file() for file in (WEIGHTS, INDEX)):
        raise no_weights(folder)


def _listed(name: str, revision: str | None) -> list[dict[str, Any]] | None:
    """The modules that ``modules.json`` lists, each in a folder inside; None where there is no such file."""
    path = hub_file(name, MODULES_FILE, revision)
    if path is None:
        return None
    try:
        listed = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ModelError(f"{MODULES_FILE} of {name} is no JSON ({error}). Download it again.") from error
    if not isinstance(listed, list) or not all(
        isinstance(module, dict) and {"type", "path"} <= module.keys() and isinstance(module["path"], str) for module in listed
    ):
        raise ModelError(f"{MODULES_FILE} of {name} is malformed: it must list modules with a type and a path.")
    for module in listed:
        if not is_inside(module["path"]):
            raise ModelError(
                f"{MODULES_FILE} of {name} leads out of its folder, to {module['path']!r}. Do not use this "
                "model: it was tampered with."
            )
    return listed


def _table(name: str, file: str, revision: str | None) -> dict[str, Any]:
    """A json file that must hold a table; an empty one where there is none."""
    path = hub_file(name, file, revision)
    return {} if path is None else read_table(path)


def _kind(dotted: str) -> str:
    """The class of a module of sentence-transformers; anybody else's keeps its whole name, so that it is not known."""
    return dotted.rsplit(".", 1)[-1] if dotted.startswith("sentence_transformers.") else dotted


def _pooling(name: str, settings: dict[str, Any], explicit: bool) -> str:
    named = settings.get("pooling_mode") or [
        mode.removesuffix("_token").removesuffix("_tokens") for mode in _LEGACY if settings.get(f"pooling_mode_{mode}")
    ]
    modes = [named] if isinstance(named, str) else list(named) or ["mean"]
    pooled = settings.get("include_prompt")
    if len(modes) > 1 or modes[0] not in POOLINGS_BY_MODE or (modes[0] == "cls" and pooled is False):
        without = " without the prompt" if pooled is False else ""
        raise ModelError(f"{name} pools by {' and '.join(modes)}{without}. Known here: {', '.join(POOLINGS_BY_MODE)}.")
    if modes[0] != "mean":
        return POOLINGS_BY_MODE[modes[0]]
    if pooled is None:
        pooled = not explicit
        logger.info(
            "%s does not say whether instructions are pooled: %s (pooling='mean' pools them, pooling='text-mean' does not).",
            name,
            "they are, as in sentence-transformers" if pooled else "they are not, as in INSTRUCTOR",
        )
    return "mean" if pooled else "text-mean"


def _prompts(name: str, settings: dict[str, Any]) -> dict[str, str]:
    """The prompts that sentence-transformers' encode, encode_query and encode_document take of themselves."""
    prompts = settings.get("prompts") or {}
    if not isinstance(prompts, dict):
        raise ModelError(f"prompts in config_sentence_transformers.json of {name} must be a table of names and prompts.")
    document = next((prompts[key] for key in ("document", "passage", "corpus") if prompts.get(key) is not None), None)
    found = {"query": prompts.get("query"), "document": document, "": prompts.get(settings.get("default_prompt_name"))}
    return {key: str(prompt) for key, prompt in found.items() if prompt}


def _dense(name: str, path: str, revision: str | None) -> nn.Sequential:
    """A linear layer and its activation, float32."""
    settings = _table(name, f"{path}/config.json", revision)
    activation = str(settings.get("activation_function", "torch.nn.modules.activation.Tanh"))
    unknown = [
        key for key in ("module_input_name", "module_output_name") if settings.get(key) not in (None, "sentence_embedding")
    ]
    unknown += ["use_residual"] if settings.get("use_residual") else []
    unknown += [] if _torch_class(activation) else [f"activation_function {activation}"]
    if unknown:
        raise ModelError(f"{path} of {name} has {', '.join(unknown)}, which is not known here. Use sentence-transformers itself.")
    weights = hub_file(name, f"{path}/model.safetensors", revision)
    if weights is None:
        raise ModelError(
            f"{path} of {name} brings no model.safetensors, and pickled weights (pytorch_model.bin) are not loaded. "
            "Save the checkpoint anew with sentence-transformers, which writes safetensors: "
            f"SentenceTransformer({name!r}).save_pretrained('FOLDER'), then load FOLDER."
        )
    try:
        tensors = {key.removeprefix("linear."): tensor.float() for key, tensor in load_file(weights).items()}
        wide, deep = tensors["weight"].shape
        linear = nn.Linear(deep, wide, bias="bias" in tensors)
        linear.load_state_dict(tensors)
    except (SafetensorError, RuntimeError, KeyError, ValueError) as error:
        raise ModelError(f"The weights in {path} of {name} are damaged ({' '.join(str(error).split())[:200]}).") from error
    return nn.Sequential(linear, getattr(nn, _torch_class(activation))())


def _torch_class(dotted: str) -> str:
    """The name of a known activation of torch, else ""."""
    name = dotted.rsplit(".", 1)[-1]
    return name if dotted.startswith("torch.nn.") and name in _ACTIVATIONS else ""
