"""Saved models: the folder that ``InBedder(folder)`` loads, and the same folder as a repository of the hub.

The functions whose first argument is a model are methods of ``InBedder``. A model of a folder (a trained or a bundled one) is
saved as its own files with its own card: an adapter stays an adapter. Any other model is written anew, in its compute dtype.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import asdict, fields, replace
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from inbedder.backbones.file_checks import ADAPTER_CONFIG, ADAPTER_WEIGHTS
from inbedder.backbones.hub import SETTINGS_FILE, Settings, read_json_object
from inbedder.encoding.default_options import resolve_encoding
from inbedder.encoding.protocols import Encoder
from inbedder.errors import InputError, ModelError, format_value
from inbedder.io.files import atomic_folder
from inbedder.models.bundled import resolve_name
from inbedder.models.checksums import write_checksums
from inbedder.options import EncodingOptions
from inbedder.runtime.user_paths import expand_path

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from inbedder.encoding.pipeline import EncodingPipeline

CARD_FILE = "README.md"
LEFT_OUT = shutil.ignore_patterns("checkpoint-*", ".*", "*.bin", "*.pt", "*.pth", "*.pkl", "__pycache__")
"""Files of a folder that are not copied: checkpoints of the training, hidden files, pickles."""
_FRONT_MATTER = """---
library_name: inbedder
pipeline_tag: sentence-similarity
tags: [inbedder]
---

"""
_CARD = """# {name}

Instruction-following text embeddings, saved by inbedder {version} from `{name}` ({kind}, {pooling}).

```python
from inbedder import InBedder

vectors = InBedder("{name}").encode(texts, "What is the complaint about?")
```
"""


def save_pretrained(model: Encoder, folder: str | os.PathLike[str]) -> None:
    """Write a folder that ``InBedder(folder)`` loads.

    Args:
        model: The model.
        folder: A new or empty folder.

    Raises:
        InputError: If the folder is not empty, or the model has an option that a folder does not store, such as ``layer``.
        ModelError: If the weights cannot be written.

    Example:
        >>> from inbedder import InBedder
        >>> InBedder().save_pretrained("saved")
        >>> InBedder("saved").encode("The soup was cold.", "@topic").shape
        (384,)
    """
    pipeline = model.pipeline
    target, settings = check_new_folder(folder), make_settings(pipeline)
    _check_options(pipeline, settings)
    source = _find_source(pipeline)
    with atomic_folder(target) as temporary:
        if source is not None:
            shutil.copytree(source, temporary, ignore=LEFT_OUT, dirs_exist_ok=True)
            write_json(temporary / SETTINGS_FILE, _drop_none(settings))
        elif pipeline.backbone.kind == "embedding":
            name = format_value(pipeline.options.model.model)
            raise ModelError(f"{name} is a model of sentence-transformers. Save it with model.save_sentence_transformer(folder).")
        else:
            check_weights(pipeline)
            write_model(pipeline, pipeline.backbone.tokenizer, temporary)
        card = temporary / CARD_FILE
        text = card.read_text(encoding="utf-8") if card.is_file() else _make_card(pipeline)
        card.write_text(text if text.startswith("---\n") else _FRONT_MATTER + text, encoding="utf-8")
        write_checksums(temporary)


def push_to_hub(
    model: Encoder,
    repo_id: str,
    *,
    token: str | None = None,
    private: bool | None = None,
    revision: str | None = None,
    commit_message: str | None = None,
    create_pr: bool = False,
    exist_ok: bool = False,
) -> str:
    """Upload the folder of ``save_pretrained``, with its card, to a repository that ``InBedder(repo_id)`` loads.

    Args:
        model: The model.
        repo_id: The repository, such as "me/complaints", which is created.
        token: A token of the hub; None takes that of ``hf auth login``.
        private: Whether a new repository is private; None takes the account's default.
        revision: The branch to push to, created if necessary; None takes the main branch.
        commit_message: Message of the commit.
        create_pr: Whether to open a pull request of an existing repository.
        exist_ok: Whether the repository may exist.

    Returns:
        The URL of the commit or pull request.

    Raises:
        InputError: If the model has an option that a folder does not store.
        ModelError: If the model needs a local folder that others lack, its weights cannot be written, or the hub refuses it.

    Example:
        >>> from inbedder import InBedder
        >>> InBedder("runs/complaints").push_to_hub("me/complaints", private=True)  # doctest: +SKIP
    """
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError

    _check_bases(model.pipeline)
    with TemporaryDirectory() as temporary:
        folder = Path(temporary, "model")
        save_pretrained(model, folder)
        card = folder / CARD_FILE
        text = card.read_text(encoding="utf-8")
        for name in (model.name, Path(model.name).name):  # a trained model's card names the folder of the training
            text = text.replace(f'InBedder("{name}")', f'InBedder("{repo_id}")')
        card.write_text(text, encoding="utf-8")
        api = HfApi(token=token)
        try:
            repo_id = api.create_repo(repo_id, private=private, exist_ok=exist_ok or create_pr).repo_id
            if revision is not None:
                api.create_branch(repo_id, branch=revision, exist_ok=True)
            commit = api.upload_folder(
                repo_id=repo_id,
                folder_path=folder,
                commit_message=commit_message or "Add a model of inbedder",
                revision=revision,
                create_pr=create_pr,
            )
        except (HfHubHTTPError, HFValidationError, OSError) as error:
            reason = " ".join(str(error).split())[:400]
            message = f"{format_value(repo_id)} was not pushed ({reason}). Check its name, the network and `hf auth whoami`; "
            raise ModelError(f"{message}pass exist_ok=True if the repository exists.") from error
    return str(commit.pr_url if create_pr else commit.commit_url)


def check_new_folder(folder: str | os.PathLike[str]) -> Path:
    """Expand the path of a new or empty folder, and reject any other."""
    target = expand_path(folder)
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise InputError(f"{format_value(str(target))} is not empty. Choose a new folder.")
    return target


def check_weights(pipeline: EncodingPipeline) -> None:
    """Reject a model whose weights cannot be written."""
    options = pipeline.options.model
    if not isinstance(pipeline.backbone.model, nn.Module) or options.quantization or options.is_onnx:
        raise ModelError(
            f"The weights of {options.model} cannot be written. Load it with its usual backbone and no quantization."
        )


def has_text_model(pipeline: EncodingPipeline) -> bool:
    """Whether the base of an adapter reads the text, which no module of sentence-transformers does."""
    return getattr(pipeline.backbone, "text_model", None) is not None


def make_settings(pipeline: EncodingPipeline) -> Settings:
    """Make the settings of ``inbedder.json``: those of the training, with the options that a folder stores."""
    encoding, template = pipeline.options.encoding, pipeline.template
    is_embedding = pipeline.backbone.kind == "embedding"
    return replace(
        pipeline.settings,
        template=template.pattern if template.name == "custom" else template.name,
        backbone="embedding" if is_embedding else None,
        mask_length=getattr(pipeline.backbone, "mask_length", None) or None,
        max_new_tokens=encoding.max_new_tokens,
        min_confidence=encoding.min_confidence or None,
        subtract_instruction=encoding.subtract_instruction or None,
        beside=None if encoding.beside == pipeline.settings.beside is None else encoding.beside,
        normalize=encoding.normalize_embeddings or None,
    )


def write_model(pipeline: EncodingPipeline, tokenizer: PreTrainedTokenizerBase, folder: Path) -> None:
    """Write weights, tokenizer and settings that ``InBedder(folder)`` loads."""
    weights: Any = pipeline.backbone.model
    settings = make_settings(pipeline)
    if has_text_model(pipeline):  # two models share the base, so the adapter is written; the base is loaded by its name
        for name in (ADAPTER_CONFIG, ADAPTER_WEIGHTS):
            shutil.copy(Path(str(pipeline.backbone.adapter)) / name, folder)
    else:
        settings = replace(settings, base=None)
        with torch.inference_mode(False):
            weights.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    write_json(folder / SETTINGS_FILE, _drop_none(settings))


def write_json(path: Path, value: Mapping[str, Any] | list[dict[str, Any]]) -> None:
    """Write indented JSON."""
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def _drop_none(settings: Settings) -> dict[str, Any]:
    return {name: value for name, value in asdict(settings).items() if value is not None}


def _find_source(pipeline: EncodingPipeline) -> Path | None:
    """Find the folder of safetensors that a model was loaded from; None if there is no such."""
    folder = Path(resolve_name(pipeline.options.model.model))
    return folder if folder.is_dir() and any(folder.glob("*.safetensors")) else None


def _check_options(pipeline: EncodingPipeline, settings: Settings) -> None:
    """Reject encoding options that a folder with these settings would not have."""
    name, encoding = pipeline.options.model.model, pipeline.options.encoding
    default = resolve_encoding(EncodingOptions(), pipeline.backbone, settings, name)
    changed = [option.name for option in fields(default) if getattr(default, option.name) != getattr(encoding, option.name)]
    if changed:
        values = ", ".join(f"{option}={format_value(getattr(encoding, option))}" for option in changed)
        raise InputError(f"A folder does not store {values}. Save the model without, and pass it to InBedder(folder, ...).")


def _check_bases(pipeline: EncodingPipeline) -> None:
    """Reject a model that others cannot load because it names a local folder."""
    source, settings = _find_source(pipeline), pipeline.settings
    names = [settings.base, settings.base_encoder, settings.beside]
    if source is not None and (source / ADAPTER_CONFIG).is_file():
        names.append(read_json_object(source / ADAPTER_CONFIG).get("base_model_name_or_path"))
    for name in names:
        if name and Path(name).exists():
            raise ModelError(
                f"{pipeline.options.model.model} needs the local folder {name}, which others do not have. Push that model first, "
                f"and put its name into {SETTINGS_FILE} and {ADAPTER_CONFIG}."
            )


def _make_card(pipeline: EncodingPipeline) -> str:
    name, pooling = pipeline.options.model.model, str(pipeline.options.encoding.pooling)
    return _CARD.format(name=Path(name).name, version=version("inbedder"), kind=pipeline.backbone.kind, pooling=pooling)
