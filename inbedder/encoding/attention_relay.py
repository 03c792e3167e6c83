"""Attention relay: the attention of a language model that reads a question weighs the tokens of an embedding model.

Without training (Lend Me Your Eyes, 2026, github.com/qdd99/attention-relay). A causal chat model reads the text and then the
question. At block b, a_j is the attention of the prompt's last token on token j of the text, summed over the heads:

    w_j = a_j / sum of a over the text          spread evenly over the characters of token j that are no blanks
    u_i = sum of these over the characters of token i of the embedding model, which never sees the question
    vector = unit(sum of u_i^beta h_i)          h_i: the embedding model's last states; beta = 0 weighs all text tokens alike

For embedding models that average their tokens. Those that pool one token need the weights in every attention layer.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from inbedder.backbones.causal import CausalBackbone
from inbedder.backbones.embedding import EmbeddingBackbone
from inbedder.backbones.transformer import capture_layer, copy_down_to, find_blocks
from inbedder.encoding.protocols import Encoder
from inbedder.errors import InputError, ModelError
from inbedder.prompting.chat_templates import resolve_chat_template
from inbedder.prompting.templates import PromptTemplate, check_texts
from inbedder.prompting.tokenization import clean_text
from inbedder.prompting.tokenizer_calls import tokenize

RELATIVE_BLOCK = 0.7
"""The default block, as a share of the reader's blocks; the authors advise it for models that they did not measure."""
_TEMPLATE = PromptTemplate("attention-relay", "Text:\n{input}\n\n{instruction}\n\nAnswer in one word.", system="")


class AttentionRelay:
    """A pair of a reader and an embedding model. Texts are read one at a time.

    Example:
        >>> from inbedder import InBedder
        >>> from inbedder.encoding.attention_relay import AttentionRelay
        >>> relay = AttentionRelay(InBedder("Qwen/Qwen3-1.7B"), InBedder("all-MiniLM-L6-v2"))  # doctest: +SKIP
        >>> relay.encode(["Rain in Lisbon"], "Where does it happen?").shape  # doctest: +SKIP
        (1, 384)
    """

    def __init__(self, reader: Encoder, embedder: Encoder, *, block: int | None = None, beta: float = 1.0) -> None:
        """Pair two loaded models.

        Args:
            reader: A causal LM with a chat template.
            embedder: An embedding model whose pooling is mean or text-mean.
            block: The reader's block whose attention counts, from 0; None takes the one at 70% of the depth.
            beta: The strength.

        Raises:
            InputError: If the reader has no such block.
            ModelError: If a model is of another kind.
            TemplateError: If the reader has no chat template.
        """
        source, target = reader.pipeline.backbone, embedder.pipeline.backbone
        if not isinstance(source, CausalBackbone) or source.text_model is not None:
            raise ModelError(f"Attention relay needs a causal LM as its reader, and {reader.name} is not one.")
        if not isinstance(target, EmbeddingBackbone) or embedder.pipeline.options.encoding.pooling not in ("mean", "text-mean"):
            raise ModelError(f"Attention relay needs an embedding model that averages its tokens, and {embedder.name} does not.")
        block = min(round(RELATIVE_BLOCK * source.num_layers), source.num_layers - 1) if block is None else block
        if block not in range(source.num_layers):
            raise InputError(f"block={block}: {reader.name} has the blocks 0 to {source.num_layers - 1}.")
        self._reader, self._embedder, self._block, self._beta = source, target, block, beta
        self._template = resolve_chat_template(_TEMPLATE, source.tokenizer)

    @torch.inference_mode()
    def encode(self, texts: Sequence[str], instruction: str | Sequence[str]) -> NDArray[np.float32]:
        """Embed n texts under one instruction, or one per text: vectors of length 1, shape (n, d)."""
        rows = zip(*check_texts(texts, instruction), strict=True)
        return np.stack([self._encode(clean_text(text), clean_text(question)) for text, question in rows])

    def _encode(self, text: str, question: str) -> NDArray[np.float32]:
        embedder = self._embedder
        (encoding,) = tokenize(embedder.tokenizer, [text], truncation=True, max_length=embedder.position_limit)
        model, states = capture_layer(embedder.model, embedder.model, embedder.num_layers, embedder.num_layers)
        ids = torch.tensor([encoding.ids or [embedder.pad_id]], device=model.device)
        model(input_ids=ids, attention_mask=torch.ones_like(ids), **embedder.settings)
        is_text = np.array(encoding.special_tokens_mask or [0]) == 0
        is_text |= not is_text.any()
        carried = (
            is_text * self._relay(text, question, encoding.offsets) if encoding.ids and text.strip() else np.zeros(len(is_text))
        )
        weights = is_text * (carried if carried.any() else np.ones(len(is_text))) ** self._beta
        pooled = torch.from_numpy(weights / weights.sum()).to(states[0].device, torch.float32) @ states[0][0].float()
        vector: NDArray[np.float32] = torch.nn.functional.normalize(embedder.output_layers(pooled[None])[0], dim=0).cpu().numpy()
        return vector

    def _relay(self, text: str, question: str, spans: Sequence[tuple[int, int]]) -> NDArray[np.float64]:
        """Compute the weights of an embedding model's tokens from their spans in the text."""
        weights, reader_spans = self._read(text, question)
        owners, targets = _find_owners(len(text), reader_spans), _find_owners(len(text), spans)
        is_counted = (owners >= 0) & np.array([not character.isspace() for character in text], dtype=bool)
        counts = np.bincount(owners[is_counted], minlength=len(weights))
        is_shared = is_counted & (targets >= 0)
        shares = weights[owners[is_shared]] / counts[owners[is_shared]]
        carried: NDArray[np.float64] = np.bincount(targets[is_shared], weights=shares, minlength=len(spans)).astype(np.float64)
        return carried

    def _read(self, text: str, question: str) -> tuple[NDArray[np.float64], list[tuple[int, int]]]:
        """Read the attention on each of the reader's text tokens, which sums to 1, and their spans in the text.

        The parts of the prompt are tokenized one by one, so that no token holds characters of the text and of another part.
        """
        reader, (opening, middle, closing) = self._reader, self._template.fixed_parts
        parts = [(opening, False), (text, True), (middle + question, True), (closing, False)]
        encodings = [
            tokenize(reader.tokenizer, [part], add_special_tokens=False, split_special_tokens=is_plain)[0]
            for part, is_plain in parts
        ]
        start, end = len(encodings[0].ids), len(encodings[0].ids) + len(encodings[1].ids)
        block = find_blocks(reader.body, reader.num_layers)[self._block]
        attention = next(m for name, m in block.named_modules() if name.endswith(("attn", "attention")) and hasattr(m, "config"))
        num_tokens, window = sum(len(each.ids) for each in encodings), getattr(attention, "sliding_window", None)
        if window is not None and num_tokens > window:
            raise InputError(
                f"Block {self._block} reads the last {window} tokens only, and a prompt has {num_tokens}. Choose another."
            )
        body, recorded = copy_down_to(reader.body, attention)
        config: Any = copy(attention.config)
        config._attn_implementation, recorded.config = "eager", config  # the other blocks keep theirs
        rows: list[torch.Tensor] = []
        recorded.register_forward_hook(lambda _module, _args, output: rows.append(output[1][0, :, -1]))
        inputs = reader.make_inputs([np.array([token for each in encodings for token in each.ids], dtype=np.int32)])
        body(**inputs, use_cache=False)
        weights = rows[0].double().sum(0)[start:end].cpu().numpy()
        return weights / weights.sum(), encodings[1].offsets


def _find_owners(length: int, spans: Sequence[tuple[int, int]]) -> NDArray[np.int64]:
    """Find for each character the last token that covers it; -1 for none."""
    owners = np.full(length, -1)
    for number, (start, end) in enumerate(spans):
        owners[start:end] = number
    return owners
