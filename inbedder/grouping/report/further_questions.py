"""What a page needs to answer further questions by itself: a model, in 24 MB, and the tokens of its texts.

The page's worker (``asking/worker.js``) reads the texts when the reader turns to the tab *Ask*, and answers offline.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from inbedder.errors import InputError
from inbedder.grouping.report.views import LIGHT
from inbedder.prompting.templates import get_template
from inbedder.prompting.tokenization import PromptTokenizer

if TYPE_CHECKING:
    from inbedder.embedder import InBedder

MAX_ASKED_TEXTS = 1000
"""Maximum number of texts that the page reads, a random sample of its texts."""
MAX_TOKENS = 64
"""Maximum number of tokens that the page reads of a text, and of a question."""
MAX_VOCABULARY = 50_000
"""Maximum number of tokens of a model in a page."""
SHORTEST_QUESTION = "?"
"""A question of one token, so that a prompt's other tokens are the text's and the masks."""
DIGITS, DIGIT_BITS, FIRST_DIGIT = 91, 13, 35
"""The format of the weights, which the worker decodes: characters, bits of two, and the code of the first."""
CHUNK_BYTES = DIGIT_BITS * 2**16
"""Bytes that are encoded at once, without rest."""
_FOREIGN_OR_UNUSED = re.compile(r"[^\W\d_a-zA-Z]|^\[unused")
"""Tokens with letters that are not ASCII, which a page keeps only if its texts have them, and BERT's unused ones."""


@dataclass(frozen=True)
class PageModel:
    """The model of a page and the texts that it reads."""

    data: dict[str, Any]
    """What the page's script hands to the worker; JSON can hold it."""
    weights: str
    """The weights of ``make_page_weights`` in characters (``encode_bytes``)."""

    origin: str
    """The model's name and base."""

    @property
    def worker(self) -> str:
        """The worker's script."""
        return _read("worker.js").decode("utf-8")

    @property
    def count(self) -> int:
        """Number of texts that the page reads."""
        return len(self.data["rows"])


def _read(name: str) -> bytes:
    return files("inbedder.grouping.report").joinpath("asking", name).read_bytes()


def encode_bytes(content: bytes) -> str:
    """Encode bytes so that a page can hold them: two of 91 characters are 13 bits, so a page is 8% smaller than with base64."""
    parts = []
    for start in range(0, len(content), CHUNK_BYTES):
        bits = np.unpackbits(np.frombuffer(content[start : start + CHUNK_BYTES], dtype=np.uint8))
        groups = np.pad(bits, (0, -len(bits) % DIGIT_BITS)).reshape(-1, DIGIT_BITS)
        numbers = (groups.astype(np.float32) @ np.exp2(np.arange(DIGIT_BITS, dtype=np.float32)[::-1])).astype(np.int64)
        digits = np.stack([numbers // DIGITS, numbers % DIGITS], 1).ravel() + FIRST_DIGIT
        digits += digits >= ord("<")  # it could end the script's element
        parts.append(digits.astype(np.uint8).tobytes().decode("ascii"))
    return "".join(parts)


def check_page_model(model: InBedder) -> None:
    """Reject a model that cannot be in a page, with an InputError."""
    from inbedder.backbones.late_interaction import LANGUAGE_FILTER, LateInteractionBackbone

    backbone: Any = model.backbone
    is_small = isinstance(backbone, LateInteractionBackbone) and backbone.model.config.vocab_size <= MAX_VOCABULARY
    is_plain = model.pipeline.template == get_template("compact") and not hasattr(backbone.model, LANGUAGE_FILTER)
    if not is_small or not is_plain or backbone.model.config.hidden_act != "gelu":
        raise InputError("Only mini can answer questions in a page. Choose it as the model, or leave out --ask-in-page.")


def make_page_model(model: InBedder, texts: Sequence[str]) -> PageModel:
    """Make the model of a page.

    Args:
        model: ``mini``.
        texts: The texts of the page.

    Returns:
        The model and the tokens of the texts.

    Raises:
        InputError: If the model cannot be in a page.
    """
    from inbedder.backbones.masked import STEM_LETTERS
    from inbedder.backbones.page_weights import make_page_weights

    check_page_model(model)
    backbone: Any = model.backbone
    rows = list(range(len(texts)))
    if len(texts) > MAX_ASKED_TEXTS:
        rows = sorted(np.random.default_rng(0).choice(len(texts), MAX_ASKED_TEXTS, replace=False).tolist())
    tokenizer, masks = backbone.tokenizer, backbone.mask_length
    tokenize = PromptTokenizer(tokenizer, get_template("compact"), MAX_TOKENS + len(SHORTEST_QUESTION) + masks, masks)
    prompts = tokenize([texts[row] for row in rows], [SHORTEST_QUESTION] * len(rows))
    ids_of_texts = [backbone.split(prompt).text.tolist() for prompt in prompts]
    tokens = {number: token for token, number in tokenizer.get_vocab().items()}
    latin_ids = {number for number, token in tokens.items() if not _FOREIGN_OR_UNUSED.search(token)}
    kept_ids = sorted(latin_ids.union(tokenizer.all_special_ids, *ids_of_texts))
    new_ids = {number: position for position, number in enumerate(kept_ids)}
    shapes, weights = make_page_weights(model.pipeline.options.model, kept_ids, MAX_TOKENS + 1 + masks)
    config = backbone.model.config
    data = {
        "rows": rows,
        "texts": [[new_ids[number] for number in ids] for ids in ids_of_texts],
        "shapes": shapes,
        "tokens": [tokens[number] for number in kept_ids],
        "special": [new_ids[number] for number in tokenizer.all_special_ids],
        "masks": masks,
        "mask": new_ids[tokenizer.mask_token_id],
        "end": new_ids[backbone.end],
        "unknown": new_ids[tokenizer.unk_token_id],
        "layers": config.num_hidden_layers,
        "heads": config.num_attention_heads,
        "width": config.hidden_size,
        "epsilon": config.layer_norm_eps,
        "maxTokens": MAX_TOKENS,
        "stemLetters": STEM_LETTERS,
        "wasm": base64.b64encode(_read("tile.wasm")).decode(),
        "size": len(weights),
        "colours": len(LIGHT),
    }
    base = Path(str(model.pipeline.settings.base)).name
    licence = " (both Apache License 2.0)" if model.name == "mini" else ""
    return PageModel(data, encode_bytes(weights), f"{Path(model.name).name}, an adapter of {base}{licence}")
