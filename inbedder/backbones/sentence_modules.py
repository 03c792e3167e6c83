"""The modules of a sentence-transformers checkpoint: pooling, Dense, Normalize, limits and prompts.

``modules.json`` lists the modules, each in its own folder with a ``config.json`` and, for Dense, its weights. Only supported
modules are read. Code of a repository never runs, and pickled weights are read by torch's restricted loader only.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import huggingface_hub
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from inbedder.backbones.file_checks import (
    ADAPTER_CONFIG,
    ADAPTER_WEIGHTS,
    INDEX,
    PICKLED_ADAPTER_WEIGHTS,
    PICKLED_WEIGHTS,
    WEIGHTS,
    check_json_files,
    check_not_adapter,
    check_weights,
    find_adapter_weights,
    find_pickled_weights,
    list_shards,
    list_weight_files,
)
from inbedder.backbones.hub import MODULES_FILE, ModelFiles, make_load_error, read_json_object
from inbedder.backbones.pickled_weights import read_pickled_weights
from inbedder.errors import ModelError
from inbedder.io.files import is_inside
from inbedder.models.checksums import check_checksums
from inbedder.vectors.pooling import POOLINGS, list_poolings

logger = logging.getLogger(__name__)

POOLINGS_BY_MODE = {POOLINGS[name].mode: name for name in list_poolings("embedding")}
"""sentence-transformers' supported poolings and their names here; "mean" is text-mean if the prompt is not pooled."""
_LEGACY_MODES = ("cls_token", "max_tokens", "mean_tokens", "mean_sqrt_len_tokens", "weightedmean_tokens", "lasttoken")
_INSTRUCTOR_KEYS = {"pooling_mode_weightedmean_tokens", "pooling_mode_lasttoken"}
"""The keys that distinguish INSTRUCTOR's pooling settings from those of GTR and sentence-T5."""
_ACTIVATIONS = ("Identity", "Tanh", "ReLU", "GELU", "SiLU", "Sigmoid")
_IGNORED_PATTERNS = ["*.bin", "*.pt", "*.pth", "*.ckpt", "*.pkl", "*.h5", "*.msgpack", "*.ot", "*.gguf", "onnx/*", "openvino/*"]
"""Files of a repository that sentence-transformers does not need if it has safetensors."""


class Normalize(nn.Module):
    """A module that scales vectors to length 1."""

    def forward(self, vectors: Tensor) -> Tensor:
        """Scale vectors to length 1, shape (batch, d)."""
        return nn.functional.normalize(vectors, dim=-1)


@dataclass(frozen=True)
class SentenceModules:
    """The modules after the transformer, and the checkpoint's limits and prompts."""

    pooling: str = "text-mean"
    """The pooling that it was trained with."""
    output_layers: nn.Sequential = field(default_factory=lambda: nn.Sequential(Normalize()))
    """Dense and Normalize, in order."""
    max_length: int | None = None
    """Maximum prompt length in tokens; None leaves it to the tokenizer."""
    lowercase: bool = False
    """Whether to lowercase texts before the tokenizer."""
    prompts: Mapping[str, str] = field(default_factory=dict)
    """Default prompts for a "query", a "document" and any other text ("")."""
    template: str | None = None
    """Name or pattern of the prompts' template; None derives it from the prompts."""
    pooled_tokens: int = 1
    """Number of last tokens that the pooling last-token averages."""


def read_modules(files: ModelFiles, *, is_named: bool, is_t5: bool = False) -> SentenceModules:
    """Read ``modules.json`` and the modules that it lists.

    Args:
        files: The opened model.
        is_named: Whether the user named the backbone. It matters for pooling settings without ``include_prompt``, which
            sentence-transformers wrote before 2.4: a named backbone does not pool the prompt, otherwise it is pooled as there.
        is_t5: Whether the encoder is a T5, whose prompt is not pooled with such settings either: the published checkpoints are
            INSTRUCTOR, and GTR and sentence-T5, which were trained without prompts. Their files differ in two keys that
            INSTRUCTOR's code adds to the pooling settings; without these a query has no prompt by default.

    Returns:
        The modules. A folder without ``modules.json`` has INSTRUCTOR's mean over the text and Normalize.

    Raises:
        ModelError: If a module is not supported, or its weights are missing or damaged.
    """
    name, module_list = files.name, _read_module_list(files)
    if module_list is None:
        return SentenceModules()
    kinds = [_get_class_name(str(module["type"])) for module in module_list]
    if kinds[:2] != ["Transformer", "Pooling"] or set(kinds[2:]) - {"Dense", "Normalize"} or module_list[0]["path"]:
        raise ModelError(
            f"{name} consists of {', '.join(str(module['type']) for module in module_list)}. Supported: a Transformer at the top "
            "of the folder, a Pooling, then Dense and Normalize. Or name another backbone, such as backbone='masked'."
        )
    output_layers = nn.Sequential()
    for kind, module in zip(kinds[2:], module_list[2:], strict=True):
        output_layers.append(_load_dense(files, str(module["path"])) if kind == "Dense" else Normalize())
    transformer = _read_settings_file(files, "sentence_bert_config.json")
    max_length = transformer.get("max_seq_length")
    if max_length is not None and (type(max_length) is not int or max_length < 1):
        raise ModelError(
            f"max_seq_length in sentence_bert_config.json of {name} is {max_length!r}. Set it to a positive integer."
        )
    if "message" in (transformer.get("modality_config") or {}):
        raise ModelError(
            f"{name} reads its texts through a chat template, which is not supported. Use sentence-transformers itself."
        )
    pooling = _read_settings_file(files, f"{module_list[1]['path']}/config.json")
    prompts = _read_prompts(name, _read_settings_file(files, "config_sentence_transformers.json"))
    if is_t5 and not prompts and "include_prompt" not in pooling and not pooling.keys() >= _INSTRUCTOR_KEYS:
        prompts = {"query": "", "document": ""}
    return SentenceModules(
        pooling=_read_pooling(name, pooling, skips_prompt=is_named or is_t5),
        output_layers=output_layers,
        max_length=max_length,
        lowercase=bool(transformer.get("do_lower_case")),
        prompts=prompts,
    )


def check_width(output_layers: nn.Sequential, width: int, name: str) -> None:
    """Reject Dense layers whose input size is not the ``width`` of the layer before them."""
    for layer in (module for module in output_layers.modules() if isinstance(module, nn.Linear)):
        if layer.in_features != width:
            raise ModelError(
                f"A Dense of {name} takes vectors of {layer.in_features} dimensions, not {width}: its files belong to two "
                "models. Download it again."
            )
        width = layer.out_features


def list_module_paths(folder: Path) -> list[Path]:
    """List the paths of the modules in a folder other than the transformer's, sorted; none without ``modules.json``."""
    module_list = _read_module_list(ModelFiles(str(folder))) or []
    return [Path(path) for path in sorted({module["path"] for module in module_list if module["path"]})]


def list_module_files(folder: Path) -> list[Path]:
    """List the settings and weights of a folder's modules, in a fixed order; none without ``modules.json``."""
    folders = [folder / path for path in list_module_paths(folder)]
    return [file for path in folders for file in (path / "config.json", *list_weight_files(path)) if file.is_file()]


def find_sentence_folder(name: str) -> Path:
    """Find or download a folder for sentence-transformers; reject one that would run code or read files elsewhere."""
    folder = find_checkpoint_folder(name)
    files = ModelFiles(str(folder))
    check_checksums(files.find)
    for module in _read_module_list(files) or []:
        if not str(module["type"]).startswith("sentence_transformers."):
            raise ModelError(f"{name} contains {module['type']}, whose code inbedder does not run. Choose another model.")
    for subfolder in (folder, *(path for path in sorted(folder.rglob("*")) if path.is_dir())):
        if not any(part.startswith("checkpoint-") for part in subfolder.relative_to(folder).parts):
            _check_files(subfolder)
    return folder


def find_checkpoint_folder(name: str, revision: str | None = None) -> Path:
    """Find a folder, or download a repository with pickled weights only where the model or a module has no others."""
    if Path(name).is_dir():
        return Path(name)
    try:
        folder = Path(huggingface_hub.snapshot_download(name, revision=revision, ignore_patterns=_IGNORED_PATTERNS))
        safetensors = (WEIGHTS, INDEX, ADAPTER_WEIGHTS)
        paths = [
            path
            for path in (Path(), *list_module_paths(folder))
            if not any((folder / path / file).is_file() for file in safetensors)
        ]
        patterns = [(path / file).as_posix() for path in paths for file in ("pytorch_model*.bin*", PICKLED_ADAPTER_WEIGHTS)]
        return (
            Path(huggingface_hub.snapshot_download(name, revision=folder.name, allow_patterns=patterns)) if patterns else folder
        )
    except ModelError:
        raise
    except Exception as error:  # the hub's library raises many kinds
        raise make_load_error(name, error) from error


def _check_files(folder: Path) -> None:
    """Reject a folder in which sentence-transformers, transformers or peft would read files elsewhere or run code.

    They read pickled weights by torch's restricted loader too. Each pickle is opened here first, so that all loaders reject it
    with the same message.
    """
    files = ModelFiles(str(folder))
    check_json_files(files)
    for index in folder.glob("*.safetensors.index.json"):
        list_shards(index, folder)
    read_pickled_weights(find_pickled_weights(files))
    if (folder / ADAPTER_CONFIG).is_file():
        if find_adapter_weights(folder).name != ADAPTER_WEIGHTS:
            read_pickled_weights([folder / PICKLED_ADAPTER_WEIGHTS])
        if not (folder / "config.json").is_file():
            base = ModelFiles(str(read_json_object(folder / ADAPTER_CONFIG).get("base_model_name_or_path")))
            check_not_adapter(base)
            check_json_files(base)
            check_weights(base)
            read_pickled_weights(find_pickled_weights(base))


def _read_module_list(files: ModelFiles) -> list[dict[str, Any]] | None:
    """Read the modules that ``modules.json`` lists, all inside its folder; None if there is no such file."""
    name, path = files.name, files.find(MODULES_FILE)
    if path is None:
        return None
    try:
        module_list = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ModelError(f"{MODULES_FILE} of {name} is not valid JSON ({error}). Download it again.") from error
    if not isinstance(module_list, list) or not all(
        isinstance(module, dict) and {"type", "path"} <= module.keys() and isinstance(module["path"], str)
        for module in module_list
    ):
        raise ModelError(f"{MODULES_FILE} of {name} is malformed: it must list modules with a type and a path.")
    for module in module_list:
        if not is_inside(module["path"]):
            raise ModelError(
                f"{MODULES_FILE} of {name} points outside its folder, to {module['path']!r}. Do not use this "
                "model: it was tampered with."
            )
    return module_list


def _read_settings_file(files: ModelFiles, file: str) -> dict[str, Any]:
    """Read a JSON object from a file; an empty one if the file does not exist."""
    path = files.find(file)
    return {} if path is None else read_json_object(path)


def _get_class_name(dotted: str) -> str:
    """Return the class name of a sentence-transformers module, or the full name of any other, which is not supported."""
    return dotted.rsplit(".", 1)[-1] if dotted.startswith("sentence_transformers.") else dotted


def _read_pooling(name: str, settings: dict[str, Any], *, skips_prompt: bool) -> str:
    listed_modes = settings.get("pooling_mode") or [
        mode.removesuffix("_token").removesuffix("_tokens") for mode in _LEGACY_MODES if settings.get(f"pooling_mode_{mode}")
    ]
    modes = [listed_modes] if isinstance(listed_modes, str) else list(listed_modes) or ["mean"]
    includes_prompt = settings.get("include_prompt")
    if len(modes) > 1 or modes[0] not in POOLINGS_BY_MODE or (modes[0] == "cls" and includes_prompt is False):
        suffix = " without the prompt" if includes_prompt is False else ""
        raise ModelError(f"{name} pools by {' and '.join(modes)}{suffix}. Supported: {', '.join(POOLINGS_BY_MODE)}.")
    if modes[0] != "mean":
        return POOLINGS_BY_MODE[modes[0]]
    if includes_prompt is None:
        includes_prompt = not skips_prompt
        logger.info(
            "%s does not say whether instructions are pooled: %s (pooling='mean' pools them, pooling='text-mean' does not).",
            Path(name).name,
            "they are, as in sentence-transformers" if includes_prompt else "they are not, as in INSTRUCTOR",
        )
    return "mean" if includes_prompt else "text-mean"


def _read_prompts(name: str, settings: dict[str, Any]) -> dict[str, str]:
    """Read the default prompts of sentence-transformers' encode, encode_query and encode_document."""
    prompts = settings.get("prompts") or {}
    if not isinstance(prompts, dict):
        raise ModelError(f"prompts in config_sentence_transformers.json of {name} must map names to prompts.")
    document = next((prompts[key] for key in ("document", "passage", "corpus") if prompts.get(key) is not None), None)
    named_prompts = {"query": prompts.get("query"), "document": document, "": prompts.get(settings.get("default_prompt_name"))}
    return {key: str(prompt) for key, prompt in named_prompts.items() if prompt}


def _load_dense(files: ModelFiles, path: str) -> nn.Sequential:
    """Load a linear layer and its activation, in float32."""
    name, settings = files.name, _read_settings_file(files, f"{path}/config.json")
    activation = str(settings.get("activation_function", "torch.nn.modules.activation.Tanh"))
    unsupported = [
        key for key in ("module_input_name", "module_output_name") if settings.get(key) not in (None, "sentence_embedding")
    ]
    unsupported += ["use_residual"] if settings.get("use_residual") else []
    unsupported += [] if _get_activation_name(activation) else [f"activation_function {activation}"]
    if unsupported:
        raise ModelError(
            f"{path} of {name} has {', '.join(unsupported)}, which is not supported. Use sentence-transformers itself."
        )
    candidates = (files.find(f"{path}/{file}") for file in (WEIGHTS, PICKLED_WEIGHTS))
    weights = next((file for file in candidates if file is not None), None)
    if weights is None:
        raise ModelError(f"{path} of {name} has no {WEIGHTS}. Download the model again, or save it again.")
    try:
        table = read_pickled_weights([weights]) if weights.suffix == ".bin" else load_file(weights)
        tensors = {key.removeprefix("linear."): tensor.float() for key, tensor in table.items()}
        out_features, in_features = tensors["weight"].shape
        linear = nn.Linear(in_features, out_features, bias="bias" in tensors)
        linear.load_state_dict(tensors)
    except (SafetensorError, RuntimeError, KeyError, ValueError) as error:
        raise ModelError(f"The weights in {path} of {name} are damaged ({' '.join(str(error).split())[:200]}).") from error
    return nn.Sequential(linear, getattr(nn, _get_activation_name(activation))())


def _get_activation_name(dotted: str) -> str:
    """Return the class name of a supported torch activation, else ""."""
    name = dotted.rsplit(".", 1)[-1]
    return name if dotted.startswith("torch.nn.") and name in _ACTIVATIONS else ""
