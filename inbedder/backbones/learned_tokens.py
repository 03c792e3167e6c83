"""LLM2Vec-Gen: a frozen causal LM reads learned tokens after the prompt; the last of them hold what it would answer.

With h_t the last hidden states of the last n learned tokens (LLM2Vec-Gen, arXiv 2603.10913, and the authors' ``encode``):

    vector = mean over t of A(R(h_t)) = A(R(mean over t of h_t))

R projects to the states that reconstruct the answer, A to the space of the teacher's embeddings; both are affine. The layout:

    tokenizer.json, tokenizer_config.json          with the learned tokens
    encoder/adapter_config.json, adapter_model.*   the embeddings of the learned tokens (peft), and the base's name
    encoder_decoder_config.json                    encoding_mode, "last_N_tokens"
    reconstruction_mlp, alignment_mlp              R and A, pickled; a missing one is the identity
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tokenizers.processors import TemplateProcessing
from torch import nn

from inbedder.backbones.adapters import TRAINED_TOKENS, find_learned_tokens_folder, read_config
from inbedder.backbones.hub import LEARNED_TOKENS_CONFIG, read_json_object
from inbedder.backbones.pickled_weights import read_pickled_weights
from inbedder.backbones.sentence_modules import SentenceModules
from inbedder.errors import ModelError
from inbedder.prompting.tokenization import count_special_edges
from inbedder.prompting.tokenizer_calls import tokenize

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

PROJECTIONS = ("reconstruction_mlp", "alignment_mlp")
"""R and A, in the order in which they are applied."""
TEMPLATE = "{instruction} {input}"
"""The authors' join of instruction and text (``scripts/mteb_eval.py``)."""
PROMPTS = {"query": "Generate a passage that best answers this question: ", "document": "Summarize the following passage: "}
"""The authors' prompts for retrieval."""


def read_learned_token_ids(adapter: Path) -> list[int]:
    """Read the ids of the learned tokens from an adapter's configuration, in the order in which they follow a prompt."""
    config = read_config(adapter)
    ids = config.get("token_indices")
    if config["peft_type"] != TRAINED_TOKENS or not isinstance(ids, list) or not all(type(token) is int for token in ids):
        raise ModelError(
            f"{adapter} is not an LLM2Vec-Gen of a frozen model: peft_type is {config['peft_type']!r} and must be "
            f"{TRAINED_TOKENS!r} with token_indices. Use the authors' code."
        )
    return ids


def append_learned_tokens(tokenizer: PreTrainedTokenizerBase, ids: list[int], name: str) -> None:
    """Let a tokenizer write the learned tokens directly after every prompt, where no truncation removes them."""
    tokens = [tokenizer.convert_ids_to_tokens(token) if 0 <= token < len(tokenizer) else None for token in ids]
    if not ids or None in tokens:
        raise ModelError(f"The tokenizer of {name} lacks learned tokens of its encoder: the files belong to two models.")
    (encoding,) = tokenize(tokenizer, ["a"])
    opening, closing = count_special_edges(encoding)
    pieces = [*encoding.tokens[:opening], "$A", *tokens, *encoding.tokens[len(encoding.ids) - closing :]]
    special_ids = dict(zip([*encoding.tokens, *tokens], [*encoding.ids, *ids], strict=True))
    special_tokens = [(piece, special_ids[piece]) for piece in dict.fromkeys(pieces) if piece != "$A"]
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(single=pieces, special_tokens=special_tokens)


def read_projections(adapter: str) -> SentenceModules | None:
    """Read the number of pooled tokens, R and A of an LLM2Vec-Gen by the folder of its adapter; None for any other model."""
    folder = find_learned_tokens_folder(adapter)
    if folder is None:
        return None
    mode = read_json_object(folder / LEARNED_TOKENS_CONFIG).get("encoding_mode")
    match, num_tokens = re.fullmatch(r"last_(\d+)_tokens", str(mode)), len(read_learned_token_ids(Path(adapter)))
    if match is None or not 1 <= int(match[1]) <= num_tokens:
        raise ModelError(
            f"encoding_mode in {folder / LEARNED_TOKENS_CONFIG} is {mode!r}; it must be 'last_N_tokens' with N from 1 to "
            f"{num_tokens}, the number of learned tokens."
        )
    layers = nn.Sequential(*(_load_linear(folder / file) for file in PROJECTIONS if (folder / file).is_file()))
    return SentenceModules("last-token", layers, prompts=PROMPTS, template=TEMPLATE, pooled_tokens=int(match[1]))


def _load_linear(path: Path) -> nn.Linear:
    """Load a projection with a weight and a bias, in float32."""
    tensors = read_pickled_weights([path], entry="state_dict")
    weight: Any = tensors.get("projection.weight")
    if tensors.keys() != {"projection.weight", "projection.bias"} or weight.ndim != 2:
        raise ModelError(f"{path} holds {', '.join(sorted(tensors))[:200]}, not one linear projection. Use the authors' code.")
    linear = nn.Linear(weight.shape[1], weight.shape[0])
    linear.load_state_dict({name.removeprefix("projection."): tensor.float() for name, tensor in tensors.items()})
    return linear


def list_projection_files(adapter: Path) -> list[Path]:
    """List the files beside an LLM2Vec-Gen's adapter that change its vectors, in a fixed order; none for any other model."""
    folder = find_learned_tokens_folder(str(adapter))
    return [] if folder is None else [path for file in (LEARNED_TOKENS_CONFIG, *PROJECTIONS) if (path := folder / file).is_file()]
