"""A model as a folder of sentence-transformers.

Built-in modules of sentence-transformers, which need nothing of this package, express

- embedding models whose instruction stands in front of the text: Transformer, Pooling, Dense, Normalize;
- masked LMs read by avg-gen: a chat template puts the text, the instruction and the masks together, WordWeights weighs masks by 1
  and all other tokens by 0, and Pooling takes the mean;
- causal LMs read by 1st-gen: the same chat template, and Pooling of the last token.

Of texts that are too long they cut the same end, sometimes a token earlier or later, and special tokens written in a text are
special to them. All other readings (text and question apart, decoded or re-encoded answers, other layers,
words left out, ``subtract_instruction``, a base encoder, a second model, other templates of embedding models) are left to
``integrations/sentence_transformers.py``: the folder names that module, so that loading it needs inbedder installed and
``trust_remote_code=True``.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from copy import deepcopy
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from inbedder.backbones.hub import SETTINGS_FILE
from inbedder.backbones.late_interaction import LateInteractionBackbone
from inbedder.errors import InputError, MissingExtraError, ModelError
from inbedder.io.files import atomic_folder
from inbedder.pooling import POOLINGS
from inbedder.prompting.templates import read_prompts, resolve_instruction
from inbedder.prompting.tokenization import count_special_edges

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from inbedder.encoding.parts import Parts

MODEL_FOLDER = "model"
"""Where the model is in a folder that needs inbedder."""
SPEC_FILE = "sentence_inbedder_config.json"
"""The ``VectorSpec`` of that model."""
OWN_MODULE = "inbedder.integrations.sentence_transformers.AnswerVectors"
SAMPLES = ("The battery died, twice.", "Zażółć gęślą jaźń №5", "")
"""Texts whose prompts tell whether a chat template says what our template says."""
_CARD = """---
library_name: sentence-transformers
pipeline_tag: sentence-similarity
tags: [inbedder, sentence-transformers]
---

Text embeddings that follow an instruction, written by inbedder {version} from `{name}` ({kind}, {pooling}).

```python
from sentence_transformers import SentenceTransformer

model = SentenceTransformer("FOLDER"{trust})
model.encode(texts, prompt_name="complaint")
model.encode(texts, prompt={prompt})
```

{needs}
"""


def export_model(parts: Parts, folder: str | os.PathLike[str]) -> None:
    """Write a folder that ``SentenceTransformer(folder)`` loads.

    Args:
        parts: The model's.
        folder: A new or empty folder.

    Raises:
        InputError: When the folder is not empty.
        ModelError: When the weights cannot be written.
        MissingExtraError: When sentence-transformers is not installed.
    """
    target = Path(folder)
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise InputError(f"{target} is not empty. Choose a new folder.")
    try:
        sentence_transformers = version("sentence-transformers")
    except ImportError as error:
        raise MissingExtraError("sentence-transformers") from error
    weights = parts.backbone.model
    if not isinstance(weights, nn.Module) or parts.options.model.quantization or parts.options.model.is_onnx:
        raise ModelError(
            f"The weights of {parts.options.model.model} cannot be written. Load it with its usual backbone and no quantization."
        )
    with atomic_folder(target) as temporary:
        _write_folder(parts, temporary, sentence_transformers)


def _write_folder(parts: Parts, target: Path, sentence_transformers: str) -> None:
    """Write all files; ``sentence_transformers`` is the installed version."""
    chat = None if parts.backbone.kind == "embedding" else _make_chat_tokenizer(parts)
    plain = _is_prefix(parts) if parts.backbone.kind == "embedding" else chat is not None
    home = target if plain else target / MODEL_FOLDER
    home.mkdir(exist_ok=True)
    _write_model(parts, chat or parts.backbone.tokenizer, home)
    if plain or parts.backbone.kind == "embedding":
        _write_modules(home, _write_built_in_modules(parts, home))
    if not plain:
        _write_modules(target, [("0", MODEL_FOLDER, OWN_MODULE)])
    _write_json(home / SPEC_FILE, parts.spec.to_dict())
    prompts = {"query": "", "document": ""} | _list_prompts(parts)
    default = prompts.pop("", None)
    if default:
        prompts["default"] = default
    config: dict[str, Any] = {"__version__": {"sentence_transformers": sentence_transformers}, "similarity_fn_name": "cosine"}
    config |= {"prompts": prompts, "default_prompt_name": "default" if default else None, "model_type": "SentenceTransformer"}
    _write_json(target / "config_sentence_transformers.json", config)
    (target / "README.md").write_text(_write_card(parts, plain), encoding="utf-8")


def _has_plain_states(parts: Parts) -> bool:
    """Whether a vector is the last layer's pooled states, which built-in modules give."""
    encoding = parts.options.encoding
    combined = encoding.subtract_instruction or encoding.add_generic or encoding.filter_words or parts.second_model is not None
    return encoding.layer in (-1, parts.backbone.num_layers) and not combined and parts.base is None


def _is_late_interaction(parts: Parts) -> bool:
    """Whether a masked LM reads text and question apart, which no module of sentence-transformers does."""
    return isinstance(parts.backbone, LateInteractionBackbone)


def _is_prefix(parts: Parts) -> bool:
    """Whether an embedding model's prompt is an instruction's words in front of the text."""
    return (
        _has_plain_states(parts)
        and parts.template.without_template
        and parts.template.extract_instruction("") is not None
        and not (
            parts.template.fixed_parts[2] or parts.template.pattern.endswith("{instruction}") or parts.template.without_input
        )
    )


def _make_chat_tokenizer(parts: Parts) -> PreTrainedTokenizerBase | None:
    """The tokenizer, with a chat template that makes our prompts of system and user messages; None where there is none."""
    read = {"masked": "avg-gen", "causal": "1st-gen"}.get(parts.backbone.kind)
    if (
        str(parts.options.encoding.pooling) != read
        or not _has_plain_states(parts)
        or parts.tokenizer.truncation_side != "right"
        or _is_late_interaction(parts)
    ):
        return None
    tokenizer = deepcopy(parts.backbone.tokenizer)
    encoding = tokenizer("a").encodings[0]
    opening, closing = count_special_edges(encoding)
    edges = [
        tokenizer.convert_ids_to_tokens(ids) for ids in (encoding.ids[:opening], encoding.ids[len(encoding.ids) - closing :])
    ]
    behind = [*[tokenizer.mask_token] * parts.backbone.mask_length, *edges[1]]
    tokenizer.chat_template = _make_chat_template(parts, "".join(edges[0]), "".join(behind))
    tokenizer.padding_side = "right"
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token or tokenizer.unk_token
    for instruction in ("", "What is it?"):
        for text in SAMPLES:
            messages = [{"role": "user", "content": text}]
            messages = [{"role": "system", "content": instruction}, *messages] if instruction else messages
            ids = tokenizer.apply_chat_template(messages, tokenize=True, return_dict=True)["input_ids"]
            asked = instruction or resolve_instruction(parts.defaults.any)
            if list(ids) != parts.tokenizer([text], [asked])[0].ids.tolist():
                return None
    return tokenizer


def _make_chat_template(parts: Parts, opening: str, closing: str) -> str:
    """Our template in Jinja: the system message is the instruction, the last message the text."""
    template = parts.template
    slots = {"{input}": "text", "{instruction}": "asked"}
    before, between, after = template.fixed_parts
    first, second = ("text", "asked") if template.text_first else ("asked", "text")
    whole = _join_parts(opening + before, first, between, second, after + closing)
    if template.without_input:
        before, after = template.without_input.split("{instruction}")
        whole = f"({whole}) if text else ({_join_parts(opening + before, slots['{instruction}'], after + closing)})"
    default = json.dumps(resolve_instruction(parts.defaults.any))
    return (
        "{%- set text = messages[-1]['content'] -%}"
        f"{{%- set asked = messages[0]['content'] if messages[0]['role'] == 'system' else {default} -%}}"
        f"{{{{- {whole} -}}}}"
    )


def _join_parts(*parts: str) -> str:
    """Fixed text and variables in turn, as one expression of Jinja."""
    return " ~ ".join(part if number % 2 else json.dumps(part) for number, part in enumerate(parts))


def _write_built_in_modules(parts: Parts, home: Path) -> list[tuple[str, str, str]]:
    """Write sentence-transformers' own modules: name, folder and class of each."""
    from sentence_transformers.base.modules import Dense, Normalize, Transformer
    from sentence_transformers.sentence_transformer.modules import Pooling, WordWeights

    kind, tokenizer = parts.backbone.kind, parts.backbone.tokenizer
    reads = {"text": {"method": "forward", "method_output_name": "last_hidden_state"}}
    if kind != "embedding":
        reads["message"] = {**reads["text"], "format": "flat"}
    about = {"transformer_task": "feature-extraction", "modality_config": reads, "module_output_name": "token_embeddings"}
    _write_json(home / "sentence_bert_config.json", {**about, "max_seq_length": parts.tokenizer.max_length})
    width = parts.backbone.model.config.get_text_config().hidden_size
    modules: list[Any] = [
        Pooling(
            width,
            POOLINGS[str(parts.options.encoding.pooling)].mode,
            include_prompt=str(parts.options.encoding.pooling) != "text-mean",
        )
    ]
    if kind == "masked":
        words = [str(token) for token in tokenizer.convert_ids_to_tokens(range(len(tokenizer)))]
        modules.insert(0, WordWeights(words, {str(tokenizer.mask_token): 1.0}, unknown_word_weight=0.0))
    for layer in getattr(parts.backbone, "after", ()):
        if isinstance(layer, nn.Sequential):
            linear, activation = layer
            dense = Dense(linear.in_features, linear.out_features, linear.bias is not None, activation)
            dense.linear.load_state_dict(linear.state_dict())
            modules.append(dense)
        else:
            modules.append(Normalize())
    if parts.options.encoding.normalize and not isinstance(modules[-1], Normalize):
        modules.append(Normalize())
    listed = [("0", "", f"{Transformer.__module__}.{Transformer.__name__}")]
    for number, module in enumerate(modules, 1):
        path = f"{number}_{type(module).__name__}"
        (home / path).mkdir()
        module.save(str(home / path))
        listed.append((str(number), path, f"{type(module).__module__}.{type(module).__name__}"))
    return listed


def _write_model(parts: Parts, tokenizer: PreTrainedTokenizerBase, home: Path) -> None:
    """Weights, tokenizer and settings, as ``InBedder(home)`` loads them."""
    weights: Any = parts.backbone.model
    with torch.inference_mode(False):
        weights.save_pretrained(home)
    tokenizer.save_pretrained(home)
    embeds = parts.backbone.kind == "embedding"
    settings = {
        "template": parts.template.pattern if parts.template.name == "custom" else parts.template.name,
        "backbone": "embedding" if embeds else None,
        "mask_length": parts.backbone.mask_length or None,
        "late_interaction": _is_late_interaction(parts) or None,
        "max_new_tokens": parts.options.encoding.max_new_tokens,
        "normalize": parts.options.encoding.normalize or None,
        "base_encoder": parts.settings.base_encoder,
    }
    _write_json(home / SETTINGS_FILE, {name: value for name, value in settings.items() if value is not None})


def _list_prompts(parts: Parts) -> dict[str, str]:
    """What sentence-transformers puts in front of a text, or gives as the system message, by name; "" is its default."""
    asked = {name: str(question) for name, question in read_prompts("instructions").items()}
    if parts.backbone.kind != "embedding":
        return asked
    asked |= {
        "query": parts.defaults.query or "",
        "document": parts.defaults.document or "",
        "": resolve_instruction(parts.defaults.any),
    }
    if not _is_prefix(parts):
        return asked
    return {name: parts.template.render("", question).string if question else "" for name, question in asked.items()}


def _write_card(parts: Parts, plain: bool) -> str:
    needs = "It needs sentence-transformers 6.2 or later, and nothing else."
    if not plain:
        needs = (
            "Its vectors are made by inbedder, which must be installed (`pip install inbedder`), and "
            f'sentence-transformers asks for `trust_remote_code=True` to import it. `InBedder("FOLDER/{MODEL_FOLDER}")` loads '
            "the model itself."
        )
    question = resolve_instruction("@complaint")
    prompt = json.dumps(_list_prompts(parts)["complaint"] if plain else question)
    how = {
        "name": Path(parts.options.model.model).name,
        "kind": parts.backbone.kind,
        "pooling": str(parts.options.encoding.pooling),
        "version": version("inbedder"),
    }
    return _CARD.format(trust="" if plain else ", trust_remote_code=True", prompt=prompt, needs=needs, **how)


def _write_modules(folder: Path, modules: list[tuple[str, str, str]]) -> None:
    listed = [{"idx": number, "name": name, "path": path, "type": kind} for number, (name, path, kind) in enumerate(modules)]
    _write_json(folder / "modules.json", listed)


def _write_json(path: Path, value: Mapping[str, Any] | list[dict[str, Any]]) -> None:
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
