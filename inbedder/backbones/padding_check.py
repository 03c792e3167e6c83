"""A check, when a model is loaded, of what it can compute and of whether a text's vector depends on the others in its batch.

Families without an attention mask, and recurrences that run over padding, give a text another vector in a batch than on its own.
Such a model embeds prompts of one length at a time and answers them one by one. A pooling that the model's class cannot compute
is left out, so that it is rejected by name. Families of ``PADDING_SAFE_TYPES`` are known to pass and are not checked.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import Tensor

from inbedder.errors import ModelError, format_value
from inbedder.options import Sampling
from inbedder.prompting.templates import get_template
from inbedder.prompting.tokenization import PromptTokenizer, PromptTokens
from inbedder.vectors.pooling import POOLINGS

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from inbedder.backbones.protocol import Backbone

PADDING_SAFE_TYPES = {
    "causal": "bloom falcon gemma gemma2 gemma3_text gpt2 gpt_neo gpt_neox gptj granite llama mistral mpt olmo2 opt phi phi3 "
    "qwen2 qwen3 smollm3 stablelm starcoder2".split(),
    "masked": "albert bert camembert deberta deberta-v2 distilbert electra modernbert mpnet roberta xlm-roberta".split(),
    "seq2seq": "bart mbart mt5 pegasus t5 umt5".split(),
}
"""Model types of transformers whose vectors do not depend on padding and that have every pooling, by kind."""
BLOCK_SPARSE_TYPES = ("big_bird", "bigbird_pegasus")
"""Model types whose attention changes with the length of the longest prompt, beyond what two short prompts show."""
EXAMPLE_TEXTS = ("a b c", "a b c d e f g h " * 6)
MAX_DIFFERENCE = 1e-3
"""Maximum difference of a vector in a batch, relative to its length, in float32."""
MAX_ROUGH_DIFFERENCE = 5e-2
"""The same in any other dtype."""
Method = TypeVar("Method", bound=Callable[..., Any])


def split_by_length(method: Method) -> Method:
    """Wrap a method of a backbone that takes prompts, so that a model that reads padding gets prompts of one length at a time."""
    return _split_batches(method, lambda _row, prompt: len(prompt.ids))


def split_by_prompt(method: Method) -> Method:
    """Wrap a method of a backbone that takes prompts, so that a model that reads padding gets one prompt at a time.

    Generation of some of these models depends even on other prompts of the same length.
    """
    return _split_batches(method, lambda row, _prompt: row)


def _split_batches(method: Method, get_key: Callable[[int, PromptTokens], int]) -> Method:
    """Wrap a method so that a model that reads padding gets only prompts with one key at a time."""

    @wraps(method)
    def run(self: Backbone, prompts: Sequence[PromptTokens], *arguments: Any, **options: Any) -> Any:
        if not self.reads_padding:
            return method(self, prompts, *arguments, **options)
        rows_by_key: dict[int, list[int]] = {}
        for row, prompt in enumerate(prompts):
            rows_by_key.setdefault(get_key(row, prompt), []).append(row)
        results: list[Any] = [None] * len(prompts)
        for rows in rows_by_key.values():
            for row, result in zip(rows, method(self, [prompts[row] for row in rows], *arguments, **options), strict=True):
                results[row] = result
        return torch.stack(results) if isinstance(results[0], Tensor) else results

    return run  # type: ignore[return-value]


def make_example_prompts(
    tokenizer: PreTrainedTokenizerBase, mask_length: int, texts: Sequence[str] = EXAMPLE_TEXTS
) -> list[PromptTokens]:
    """Make tokenized prompts of different lengths, to try a model with."""
    prompting = PromptTokenizer(tokenizer, get_template("compact"), mask_length=mask_length)
    return prompting(texts, ["a b"] * len(texts))


def is_padding_safe(model: Any, kind: str) -> bool:
    """Return whether a model's class is one of transformers whose vectors are known not to depend on padding."""
    kinds = PADDING_SAFE_TYPES if kind == "embedding" else (kind,)
    is_known = any(model.config.model_type in PADDING_SAFE_TYPES[known_kind] for known_kind in kinds)
    return is_known and type(model).__module__.startswith(("transformers.", "inbedder."))


def check_reading(backbone: Backbone, name: str) -> None:
    """Set the attributes of a backbone to what its model can compute; reject a model without any pooling that works."""
    model_type = backbone.model.config.model_type
    if is_padding_safe(backbone.model, backbone.kind):
        return
    prompts = make_example_prompts(backbone.tokenizer, backbone.mask_length)
    backbone.display_name = f"{format_value(name)}, a {model_type} model,"
    backbone.reads_padding = model_type in BLOCK_SPARSE_TYPES
    poolings, reason = [], ""
    for pooling in backbone.poolings:
        try:
            backbone.reads_padding |= _compare_vectors(backbone, pooling, prompts[:1], prompts)
            is_random = _compare_vectors(backbone, pooling, prompts[-1:], prompts[-1:])
        except Exception as error:  # each class fails in its own way
            reason = reason or _describe_failure(error)
            continue
        if is_random:
            raise ModelError(f"{backbone.display_name} returns different vectors on each call. Choose another model.")
        poolings.append(pooling)
    if not poolings:
        raise ModelError(f"{backbone.display_name} cannot be read ({reason}). Choose another model, or another backbone.")
    backbone.poolings = tuple(poolings)
    if backbone.answers:
        try:
            answers, first_answers = backbone.answer(prompts, Sampling()), backbone.answer(prompts[:1], Sampling())
            has_changed = answers[0][0].text != first_answers[0][0].text
            backbone.reads_padding |= backbone.compute_dtype == "float32" and has_changed
        except Exception as error:
            _describe_failure(error)
            backbone.answers = False


def _compare_vectors(backbone: Backbone, pooling: str, prompts: Sequence[PromptTokens], batch: Sequence[PromptTokens]) -> bool:
    """Compare the first prompt's vectors in two batches that begin with it; return whether they differ."""
    first, second = (backbone.embed(rows, pooling, -1, Sampling())[0].float() for rows in (prompts, batch))
    is_float32 = backbone.compute_dtype == "float32"
    if POOLINGS[pooling].reads_answer and not is_float32:  # rounding can change a generated token
        return False
    limit = MAX_DIFFERENCE if is_float32 else MAX_ROUGH_DIFFERENCE
    return bool((first - second).norm() > limit * first.norm())


def _describe_failure(error: Exception) -> str:
    """Describe why a model cannot compute something; raise the error again if memory is short."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError) or "allocate" in str(error):
        raise error
    return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
