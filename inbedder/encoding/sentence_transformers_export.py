"""Export of a model as a folder of sentence-transformers.

Built-in modules of sentence-transformers, which do not need inbedder, express

- embedding models whose instruction is before the text: Transformer, Pooling, Dense, Normalize;
- masked LMs with avg-gen: a chat template joins the text, the instruction and the masks, WordWeights weights masks by 1 and all
  other tokens by 0, and Pooling takes the mean;
- causal LMs with 1st-gen: the same chat template, and Pooling of the last token.

They cut long texts at the same end, but sometimes a token earlier or later, and they treat special tokens written in a text as
special. All other models (late interaction, decoded or re-encoded answers, other layers, filtered words,
``subtract_instruction``, ``truncate_dim``, a base encoder, a second model, other templates of embedding models) use
``integrations/sentence_transformers.py``: the folder names that module, so that loading it needs inbedder and
``trust_remote_code=True``.
"""

from __future__ import annotations

import json
import os
from copy import deepcopy
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import nn

from inbedder.encoding.protocols import Encoder
from inbedder.encoding.saved_model import check_new_folder, check_weights, has_text_model, write_json, write_model
from inbedder.errors import InputError, MissingExtraError
from inbedder.io.files import atomic_folder
from inbedder.prompting.templates import read_prompts, resolve_instruction
from inbedder.prompting.tokenization import count_special_edges
from inbedder.vectors.pooling import POOLINGS, TWO_LAYERS

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from inbedder.encoding.pipeline import EncodingPipeline

MODEL_FOLDER = "model"
"""The model's folder inside an exported folder that needs inbedder."""
SPEC_FILE = "sentence_inbedder_config.json"
"""The file of that model's ``VectorSpec``."""
INBEDDER_MODULE = "inbedder.integrations.sentence_transformers.AnswerVectors"
TEST_TEXTS = ("The battery died, twice.", "Zażółć gęślą jaźń №5", "")
"""Texts on which a chat template and our template must give the same token ids."""
_CARD = """---
library_name: sentence-transformers
pipeline_tag: sentence-similarity
tags: [inbedder, sentence-transformers]
---

Instruction-following text embeddings, exported by inbedder {version} from `{name}` ({kind}, {pooling}).

```python
from sentence_transformers import SentenceTransformer

model = SentenceTransformer("FOLDER"{trust})
model.encode(texts, prompt_name="complaint")
model.encode(texts, prompt={prompt})
```

{requirements}
"""


def save_sentence_transformer(model: Encoder, folder: str | os.PathLike[str]) -> None:
    """Write a folder that ``SentenceTransformer(folder)`` loads.

    Some models also need inbedder to load; the module's description lists which.

    Args:
        model: The model.
        folder: A new or empty folder.

    Raises:
        InputError: If the folder is not empty, or the model's ``precision`` is not float32.
        ModelError: If the weights cannot be written, or are two models'.
        MissingExtraError: If sentence-transformers is not installed.

    Example:
        >>> from pathlib import Path
        >>> from inbedder import InBedder
        >>> InBedder().save_sentence_transformer("exported")
        >>> Path("exported/modules.json").is_file()
        True
    """
    pipeline = model.pipeline
    target = check_new_folder(folder)
    if (precision := pipeline.options.encoding.precision) != "float32":
        raise InputError(
            f"An exported model has no precision={precision!r}. Export model.replace(precision='float32'), and pass precision to "
            "SentenceTransformer.encode."
        )
    try:
        library_version = version("sentence-transformers")
    except ImportError as error:
        raise MissingExtraError("sentence-transformers") from error
    check_weights(pipeline)
    with atomic_folder(target) as temporary:
        _write_folder(pipeline, temporary, library_version)


def _write_folder(pipeline: EncodingPipeline, target: Path, library_version: str) -> None:
    """Write all files, for the installed version of sentence-transformers."""
    chat_tokenizer = None if pipeline.backbone.kind == "embedding" else _make_chat_tokenizer(pipeline)
    is_plain = _is_prefix(pipeline) if pipeline.backbone.kind == "embedding" else chat_tokenizer is not None
    model_folder = target if is_plain else target / MODEL_FOLDER
    model_folder.mkdir(exist_ok=True)
    write_model(pipeline, chat_tokenizer or pipeline.backbone.tokenizer, model_folder)
    if is_plain or pipeline.backbone.kind == "embedding":
        _write_modules(model_folder, _write_built_in_modules(pipeline, model_folder))
    if not is_plain:
        _write_modules(target, [("0", MODEL_FOLDER, INBEDDER_MODULE)])
    write_json(model_folder / SPEC_FILE, pipeline.spec.to_dict())
    prompts = {"query": "", "document": ""} | _list_prompts(pipeline)
    default = prompts.pop("", None)
    if default:
        prompts["default"] = default
    config: dict[str, Any] = {"__version__": {"sentence_transformers": library_version}, "similarity_fn_name": "cosine"}
    config |= {"prompts": prompts, "default_prompt_name": "default" if default else None, "model_type": "SentenceTransformer"}
    write_json(target / "config_sentence_transformers.json", config)
    (target / "README.md").write_text(_make_card(pipeline, is_plain), encoding="utf-8")


def _has_plain_states(pipeline: EncodingPipeline) -> bool:
    """Whether a vector is only the last layer's pooled states, which built-in modules compute."""
    encoding = pipeline.options.encoding
    is_combined = encoding.subtract_instruction or encoding.filter_words or pipeline.second_model is not None
    is_changed = is_combined or encoding.truncate_dim is not None or encoding.pooling == TWO_LAYERS
    return encoding.layer in (-1, pipeline.backbone.num_layers) and not is_changed and pipeline.base is None


def _is_prefix(pipeline: EncodingPipeline) -> bool:
    """Whether an embedding model's prompt is the instruction followed by the text."""
    return (
        _has_plain_states(pipeline)
        and pipeline.template.without_template
        and pipeline.template.extract_instruction("") is not None
        and not (
            pipeline.template.fixed_parts[2]
            or pipeline.template.pattern.endswith("{instruction}")
            or pipeline.template.without_input
        )
    )


def _make_chat_tokenizer(pipeline: EncodingPipeline) -> PreTrainedTokenizerBase | None:
    """Return a tokenizer whose chat template renders our prompts from system and user messages; None if there is no such."""
    pooling = {"masked": "avg-gen", "causal": "1st-gen"}.get(pipeline.backbone.kind)
    if (
        str(pipeline.options.encoding.pooling) != pooling
        or not _has_plain_states(pipeline)
        or pipeline.tokenizer.truncation_side != "right"
        or has_text_model(pipeline)
        or pipeline.template.system is not None  # the tokenizer keeps its own chat template
    ):
        return None
    tokenizer = deepcopy(pipeline.backbone.tokenizer)
    encoding = tokenizer("a").encodings[0]
    num_opening, num_closing = count_special_edges(encoding)
    opening = tokenizer.convert_ids_to_tokens(encoding.ids[:num_opening])
    closing = tokenizer.convert_ids_to_tokens(encoding.ids[len(encoding.ids) - num_closing :])
    masks = [tokenizer.mask_token] * pipeline.backbone.mask_length
    tokenizer.chat_template = _make_chat_template(pipeline, "".join(opening), "".join([*masks, *closing]))
    tokenizer.padding_side = "right"
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token or tokenizer.unk_token
    for instruction in ("", "What is it?"):
        for text in TEST_TEXTS:
            messages = [{"role": "user", "content": text}]
            messages = [{"role": "system", "content": instruction}, *messages] if instruction else messages
            ids = tokenizer.apply_chat_template(messages, tokenize=True, return_dict=True)["input_ids"]
            question = instruction or resolve_instruction(pipeline.defaults.any)
            if list(ids) != pipeline.tokenizer([text], [question])[0].ids.tolist():
                return None
    return tokenizer


def _make_chat_template(pipeline: EncodingPipeline, opening: str, closing: str) -> str:
    """Write our template in Jinja: the system message is the instruction, the last message the text."""
    template = pipeline.template
    before, middle, after = template.fixed_parts
    first, second = ("text", "question") if template.text_first else ("question", "text")
    prompt = _join_parts(opening + before, first, middle, second, after + closing)
    if template.without_input:
        before, after = template.without_input.split("{instruction}")
        prompt = f"({prompt}) if text else ({_join_parts(opening + before, 'question', after + closing)})"
    default = json.dumps(resolve_instruction(pipeline.defaults.any))
    return (
        "{%- set text = messages[-1]['content'] -%}"
        f"{{%- set question = messages[0]['content'] if messages[0]['role'] == 'system' else {default} -%}}"
        f"{{{{- {prompt} -}}}}"
    )


def _join_parts(*parts: str) -> str:
    """Join alternating fixed text and variables to one Jinja expression."""
    return " ~ ".join(part if number % 2 else json.dumps(part) for number, part in enumerate(parts))


def _write_built_in_modules(pipeline: EncodingPipeline, folder: Path) -> list[tuple[str, str, str]]:
    """Write sentence-transformers' own modules; return name, folder and class of each."""
    from sentence_transformers.base.modules import Dense, Normalize, Transformer
    from sentence_transformers.sentence_transformer.modules import Pooling, WordWeights

    kind, tokenizer = pipeline.backbone.kind, pipeline.backbone.tokenizer
    modalities = {"text": {"method": "forward", "method_output_name": "last_hidden_state"}}
    if kind != "embedding":
        modalities["message"] = {**modalities["text"], "format": "flat"}
    config = {
        "transformer_task": "feature-extraction",
        "modality_config": modalities,
        "module_output_name": "token_embeddings",
        "max_seq_length": pipeline.tokenizer.max_length,
    }
    write_json(folder / "sentence_bert_config.json", config)
    width = pipeline.backbone.model.config.get_text_config().hidden_size
    pooling = str(pipeline.options.encoding.pooling)
    pooling = pipeline.backbone.poolings[0] if pooling == TWO_LAYERS else pooling
    modules: list[Any] = [Pooling(width, POOLINGS[pooling].mode, include_prompt=pooling != "text-mean")]
    if kind == "masked":
        tokens = [str(token) for token in tokenizer.convert_ids_to_tokens(range(len(tokenizer)))]
        modules.insert(0, WordWeights(tokens, {str(tokenizer.mask_token): 1.0}, unknown_word_weight=0.0))
    for layer in getattr(pipeline.backbone, "output_layers", ()):
        if isinstance(layer, nn.Sequential):
            linear, activation = layer
            dense = Dense(linear.in_features, linear.out_features, linear.bias is not None, activation)
            dense.linear.load_state_dict(linear.state_dict())
            modules.append(dense)
        else:
            modules.append(Normalize())
    if pipeline.options.encoding.normalize_embeddings and not isinstance(modules[-1], Normalize):
        modules.append(Normalize())
    entries = [("0", "", f"{Transformer.__module__}.{Transformer.__name__}")]
    for number, module in enumerate(modules, 1):
        path = f"{number}_{type(module).__name__}"
        (folder / path).mkdir()
        module.save(str(folder / path))
        entries.append((str(number), path, f"{type(module).__module__}.{type(module).__name__}"))
    return entries


def _list_prompts(pipeline: EncodingPipeline) -> dict[str, str]:
    """List the prefixes or system messages that sentence-transformers uses, by name; "" is the default."""
    questions = {name: str(question) for name, question in read_prompts("instructions").items()}
    if pipeline.backbone.kind != "embedding":
        return questions
    questions |= {
        "query": pipeline.defaults.query or "",
        "document": pipeline.defaults.document or "",
        "": resolve_instruction(pipeline.defaults.any),
    }
    if not _is_prefix(pipeline):
        return questions
    return {name: pipeline.template.render("", question).string if question else "" for name, question in questions.items()}


def _make_card(pipeline: EncodingPipeline, is_plain: bool) -> str:
    """Fill in the model card."""
    requirements = "It needs only sentence-transformers 6.2 or later."
    if not is_plain:
        requirements = (
            "inbedder computes its vectors: install it (`pip install inbedder`), and let sentence-transformers import it with "
            f'`trust_remote_code=True`. `InBedder("FOLDER/{MODEL_FOLDER}")` loads the model itself.'
        )
    prompt = _list_prompts(pipeline)["complaint"] if is_plain else resolve_instruction("@complaint")
    return _CARD.format(
        trust="" if is_plain else ", trust_remote_code=True",
        prompt=json.dumps(prompt),
        requirements=requirements,
        name=Path(pipeline.options.model.model).name,
        kind=pipeline.backbone.kind,
        pooling=str(pipeline.options.encoding.pooling),
        version=version("inbedder"),
    )


def _write_modules(folder: Path, modules: list[tuple[str, str, str]]) -> None:
    entries = [{"idx": number, "name": name, "path": path, "type": kind} for number, (name, path, kind) in enumerate(modules)]
    write_json(folder / "modules.json", entries)
