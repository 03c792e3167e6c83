"""Types of keyword arguments, for type checkers: the fields of ``inbedder.options`` under the names that callers write."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, TypedDict

if TYPE_CHECKING:
    from inbedder.options import Reencoding
    from inbedder.prompting.templates import PromptTemplate

PoolingName = Literal[
    "1st-gen", "avg-gen", "last-gen", "avg-ppt", "avg-all", "soft-gen", "re-enc",
    "cls", "mean", "text-mean", "last-token", "weighted-mean", "two-layers",
]  # fmt: skip
"""A pooling; the authors' old names, such as "fst_gen_layer_32", are accepted when the program runs."""

BackboneName = Literal["causal", "masked", "seq2seq", "embedding", "instructor", "onnx", "vllm"]
"""A family of models; "vllm: {...}", with the engine's options, is accepted when the program runs."""
PrecisionName = Literal["float32", "int8", "uint8", "binary", "ubinary"]
"""The number format of vectors."""


class ChangeableKwargs(TypedDict, total=False):
    """The keyword arguments of ``InBedder.replace``: ``EncodingOptions``, and options of what is kept."""

    pooling: PoolingName | None
    layer: int
    template: str | PromptTemplate | None
    max_length: int
    truncation_side: Literal["right", "left", "prompt-right", "prompt-left"]
    max_new_tokens: int | None
    mask_length: int | None
    constrained_decoding: bool
    min_confidence: float | None
    max_batch_tokens: int | None
    temperature: float
    top_p: float
    seed: int
    reencoding: Reencoding | dict[str, Any] | None
    filter_words: Sequence[str]
    subtract_instruction: bool | None
    beside: str | None
    truncate_dim: int | None
    normalize_embeddings: bool | None
    precision: PrecisionName
    cache: str | os.PathLike[str] | None
    cache_size: str | int | None
    text_memory: str | int | None


class ModelKwargs(ChangeableKwargs, total=False):
    """The keyword arguments of ``InBedder`` besides the model."""

    backbone: BackboneName | None
    device: Any
    dtype: Any
    revision: str | None
    base_revision: str | None
    trust_remote_code: bool
    quantization: str | None


class FormatKwargs(TypedDict, total=False):
    """The format arguments of every encode method, and how it runs. At its default, each takes the model's option."""

    batch_size: int
    show_progress_bar: bool | None
    normalize_embeddings: bool
    truncate_dim: int | None
    precision: PrecisionName | None


class EncodeKwargs(FormatKwargs, total=False):
    """The keyword arguments of ``InBedder.encode`` that do not decide what it returns; some are sentence-transformers'."""

    filter_words: Sequence[str]
    sentences: str | Sequence[str]
    inputs: str | Sequence[str]
    prompt: str | None
    prompt_name: str | None
    device: Any
    output_value: Literal["sentence_embedding"]
    pool: None
    chunk_size: None


class ArrayKwargs(EncodeKwargs, total=False):
    """The keyword arguments of calls that return an array."""

    convert_to_tensor: Literal[False]
    convert_to_numpy: Literal[True]
    return_answers: Literal[False]


class AnswerKwargs(TypedDict, total=False):
    """The keyword arguments of ``InBedder.answer`` besides the number of answers."""

    temperature: float
    top_p: float
    seed: int
    min_confidence: float | None
    batch_size: int
    show_progress_bar: bool | None
