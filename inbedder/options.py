"""A model's options, each defined once: default, help, check and command-line flag.

``ModelOptions`` says what is loaded, ``EncodingOptions`` how a text becomes a vector. ``InBedder`` and its signature, the command
line, ``VectorSpec`` (stored with vectors), Ray jobs and the server derive their options from these fields. This module imports
nothing heavy, because ``inbedder --help`` reads it.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, NamedTuple

from inbedder.arguments import (
    check_bool,
    check_device,
    check_integer,
    check_optional_bool,
    check_path,
    check_positive_integer,
    check_probability,
    check_seed,
    check_string,
    check_temperature,
    check_top_p,
)
from inbedder.errors import InputError, format_names, format_value
from inbedder.vectors.pooling import describe_poolings
from inbedder.vectors.precision import check_precision

if TYPE_CHECKING:
    from inbedder.prompting.templates import PromptTemplate

DTYPES = ("float32", "bfloat16", "float16", "float64")
TRUNCATION_SIDES = {
    "right": "end",
    "left": "start",
    "prompt-right": "end, template included,",
    "prompt-left": "start, template included,",
}
"""What is cut of a long text, by transformers' name of the side; the last two cut the whole prompt."""
NO_SECOND_MODEL = "none"
"""The value of ``beside`` that turns the second model off, whatever the model's settings say."""
BASE_NAME = "all-MiniLM-L6-v2"
"""The base of ``mini``, and the default re-encoder: neither needs a network."""


@dataclass(frozen=True)
class OptionInfo:
    """The metadata of an option's field."""

    help: str
    """The meaning, in a sentence or two, for ``--help`` and the reference."""
    check: Callable[[str, Any], Any]
    """Takes the option's name and a value; returns the normalized value, or raises."""
    kind: Any
    """The type on the command line and in the server's settings."""
    flags: tuple[str, ...] | None
    """The command-line flags; empty for ``--`` and the field's name, None for options that the command line does not have."""
    panel: str
    """The group under which ``--help`` shows the option."""
    decides_vectors: bool
    """Whether vectors depend on the option."""
    shared: bool
    """Whether the base encoder and the second model get the same value."""


def make_option(
    default: Any,
    help: str,
    *,
    check: Callable[[str, Any], Any] = lambda _name, value: value,
    kind: Any = str,
    flags: tuple[str, ...] | None = (),
    panel: str = "Model",
    decides_vectors: bool = True,
    shared: bool = False,
) -> Any:
    """Make the field of an option; the arguments are those of ``OptionInfo``."""
    info = OptionInfo(help, check, kind, flags, panel, decides_vectors, shared)
    return field(default=default, metadata={"option": info})


def get_option_info(option: dataclasses.Field[Any]) -> OptionInfo:
    """Return the metadata of an option's field.

    Args:
        option: A field of ``ModelOptions``, ``EncodingOptions`` or ``Reencoding``.

    Returns:
        Help, check, flags and the rest.
    """
    info: OptionInfo = option.metadata["option"]
    return info


class CheckedOptions:
    """A dataclass that checks and normalizes its fields."""

    def __post_init__(self) -> None:
        for option in fields(self):  # type: ignore[arg-type]
            value = get_option_info(option).check(option.name, getattr(self, option.name))
            object.__setattr__(self, option.name, value)


def _check_dtype(name: str, value: Any) -> str | None:
    """Check a dtype: its name, or an object of torch, numpy or Python."""
    if value is None:
        return None
    dtype = getattr(value, "__name__", None) or str(value).removeprefix("torch.")
    if dtype not in DTYPES:
        raise InputError(f"Unknown {name} {format_value(value)}. Choose one of: {', '.join(DTYPES)}.")
    return str(dtype)


def _check_side(name: str, value: Any) -> str:
    if value not in TRUNCATION_SIDES:
        raise InputError(f"{name} must be {' or '.join(TRUNCATION_SIDES)}, not {format_value(value)}.")
    return str(value)


def _resolve_template(_name: str, value: Any) -> Any:
    from inbedder.prompting.templates import PromptTemplate, get_template

    if isinstance(value, dict):
        return PromptTemplate(**value)
    return None if value is None else get_template(value)


def _check_second_model(name: str, value: Any) -> Any:
    if not isinstance(value, str | None):
        raise InputError(f"{name} must be the name of a model, {NO_SECOND_MODEL} or None, not {format_value(value)}.")
    return value


def _check_words(name: str, value: Any) -> tuple[str, ...]:
    from inbedder.prompting.templates import check_strings

    return tuple(check_strings(name, value))


def _check_reencoding(name: str, value: Any) -> Reencoding | None:
    if isinstance(value, dict):
        return Reencoding(**value)
    if not isinstance(value, Reencoding | None):
        raise InputError(f"{name} must be a Reencoding or None, not {format_value(value)}.")
    return value


@dataclass(frozen=True)
class Sampling:
    """The decoding settings of answers."""

    max_new_tokens: int = 3
    """Maximum number of tokens per answer."""
    n: int = 1
    """Number of answers per text."""
    temperature: float = 0.0
    """Sampling temperature; 0 decodes greedily."""
    top_p: float = 1.0
    """Probability mass of nucleus sampling, in (0, 1]."""
    seed: int = 0
    """Seed of sampled answers."""

    def __post_init__(self) -> None:
        checks: dict[str, Callable[[str, Any], Any]] = {"max_new_tokens": check_positive_integer, "n": check_positive_integer}
        checks |= {"temperature": check_temperature, "top_p": check_top_p, "seed": check_seed}
        for name, check in checks.items():
            object.__setattr__(self, name, check(name, getattr(self, name)))


@dataclass(frozen=True)
class Reencoding(CheckedOptions):
    """How "re-enc" samples answers and embeds them. The defaults are the authors', except their encoder, intfloat/e5-large-v2."""

    n: int = make_option(
        10,
        "Number of answers per text for --pooling re-enc.",
        check=check_positive_integer,
        kind=int,
        flags=("--re-enc-n",),
        panel="Answers",
    )
    temperature: float = make_option(
        0.8,
        "Sampling temperature for re-enc; 0 decodes greedily, and all answers to a text are then the same.",
        check=check_temperature,
        kind=float,
        flags=("--re-enc-temperature",),
        panel="Answers",
    )
    top_p: float = make_option(
        0.9,
        "Probability mass of nucleus sampling for re-enc, in (0, 1].",
        check=check_top_p,
        kind=float,
        flags=("--re-enc-top-p",),
        panel="Answers",
    )
    seed: int = make_option(
        0, "Seed of the sampled answers for re-enc.", check=check_seed, kind=int, flags=("--re-enc-seed",), panel="Answers"
    )
    encoder: str = make_option(
        BASE_NAME,
        "The sentence-transformers model that embeds the answers for re-enc: a hub id or a folder.",
        check=check_string,
        flags=("--re-encoder",),
        panel="Answers",
    )

    def make_sampling(self, max_new_tokens: int, filter_words: Sequence[str] = ()) -> Sampling:
        """Return the decoding settings of the answers.

        Args:
            max_new_tokens: Maximum number of tokens per answer.
            filter_words: Must be empty, because re-enc reads no hidden states.

        Returns:
            The settings for the backbone.

        Raises:
            InputError: If ``filter_words`` is not empty.
        """
        if filter_words:
            raise InputError("filter_words filters hidden states, and re-enc reads none. Choose another pooling.")
        return Sampling(max_new_tokens, self.n, self.temperature, self.top_p, self.seed if self.temperature else 0)


@dataclass(frozen=True)
class ModelOptions(CheckedOptions):
    """Options of what is loaded.

    Example:
        >>> from inbedder.options import ModelOptions
        >>> ModelOptions("mini", device="cpu").trust_remote_code
        False
    """

    model: str = make_option(
        "mini",
        "mini (bundled), small, medium or multilingual (inbedder models install NAME), a folder or a hub id. The folder or id "
        "of a peft adapter also loads its base.",
        check=check_path,
        flags=None,
    )
    backbone: str | None = make_option(
        None,
        "causal, masked, seq2seq, embedding (also called instructor; embedding models do not answer), onnx (a masked LM in int8 "
        "on a CPU), or vllm with its options, as in 'vllm: {tensor_parallel_size: 2}'; default: read from the model's files.",
        check=check_string,
    )
    device: str | None = make_option(
        None,
        "A torch device, such as cpu or cuda:1; default: a GPU if there is one.",
        check=check_device,
        decides_vectors=False,
        shared=True,
    )
    dtype: str | None = make_option(
        None,
        "float32, bfloat16, float16, or the slow float64; default: the fastest dtype of equal quality on this device.",
        check=_check_dtype,
        shared=True,
    )
    revision: str | None = make_option(None, "Branch, tag or commit of a model on the Hugging Face Hub.", check=check_string)
    base_revision: str | None = make_option(
        None,
        "Branch, tag or commit of an adapter's base on the Hugging Face Hub; default: the adapter's own setting.",
        check=check_string,
    )
    trust_remote_code: bool = make_option(
        False,
        "Run Python code from the model's repository, never from that of an adapter's base. Read it first.",
        check=check_bool,
        kind=bool,
        flags=("--trust-remote-code",),
        decides_vectors=False,
    )
    quantization: str | None = make_option(None, "int8 or nf4 (bitsandbytes); for vLLM any of its methods.", check=check_string)
    cache: str | None = make_option(
        None,
        "A folder that stores vectors and answers; the next run computes only new ones.",
        check=check_path,
        panel="Speed",
        decides_vectors=False,
        shared=True,
    )
    cache_size: str | int | None = make_option(
        None,
        "Maximum size of --cache, such as 500M or 5G, or unlimited. The least recently used entries are evicted first. The "
        "limit is stored in the cache.",
        panel="Speed",
        decides_vectors=False,
        shared=True,
    )
    text_memory: str | int | None = make_option(
        None,
        "Maximum memory for a key-value cache of texts, such as 2G. The next question over the same texts then costs little "
        "more than reading the question (causal LMs, 1st-gen and soft-gen, templates with the text first). small and medium keep "
        "500M by default.",
        panel="Speed",
        decides_vectors=False,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.cache is None and self.cache_size is not None:
            raise InputError("cache_size needs a cache. Set cache to a folder.")
        if self.model is None:
            raise InputError("model must be a name or a path, not None. Leave it out for mini.")
        if self.is_onnx and self.dtype is not None:
            raise InputError(f"backbone='onnx' computes in int8, not in {self.dtype}. Leave dtype out.")

    @property
    def kind(self) -> str | None:
        """The requested family: "causal", "masked", "seq2seq", "embedding" or "vllm"; None detects it from the files."""
        return {"instructor": "embedding", "onnx": "masked"}.get(self.backbone or "", self.backbone)

    @property
    def is_onnx(self) -> bool:
        """Whether a masked LM runs as an int8 graph."""
        return self.backbone == "onnx"


@dataclass(frozen=True)
class EncodingOptions(CheckedOptions):
    """Options of how a text becomes a vector. None takes the model's own setting, or else its family's default.

    Example:
        >>> from inbedder.options import EncodingOptions
        >>> EncodingOptions(pooling="avg-gen", max_length=128).layer
        -1
    """

    pooling: str | None = make_option(
        None,
        f"Which hidden states become the vector. {describe_poolings()}. The authors' names, such as fst_gen_layer_32, also work.",
        check=check_string,
    )
    layer: int = make_option(
        -1,
        "Layer of the hidden states: 0 is the token embeddings, 1 to L are the blocks (L after the final norm), and negative "
        "numbers count from the end.",
        check=check_integer,
        kind=int,
    )
    template: str | PromptTemplate | None = make_option(
        None,
        "Prompt template: a name, or a pattern with {input} and {instruction}; chat is the tokenizer's own chat template; "
        "default: the template of the model's training, or else its chat template if it has one.",
        check=_resolve_template,
    )
    max_length: int = make_option(
        512, "Maximum prompt length in tokens; longer texts are cut.", check=check_positive_integer, kind=int, shared=True
    )
    truncation_side: str = make_option(
        "right",
        "Which end of a long text is cut: right (its end) or left (its start); prompt-right, prompt-left: of the whole prompt.",
        check=_check_side,
        shared=True,
    )
    max_new_tokens: int | None = make_option(
        None,
        "Maximum number of tokens per answer (causal and encoder-decoder LMs); default: the model's settings, or else 3.",
        check=check_positive_integer,
        kind=int,
        panel="Answers",
    )
    mask_length: int | None = make_option(
        None,
        "Number of mask tokens for the answer (masked LMs); default: the number of the model's training, or else 3.",
        check=check_positive_integer,
        kind=int,
        panel="Answers",
    )
    constrained_decoding: bool = make_option(
        True,
        "Keep special tokens, invalid words and repeated words out of answers (masked LMs). Plain decoding fills each mask on "
        "its own, as the authors' code does.",
        check=check_bool,
        kind=bool,
        flags=("--constrained-decoding/--plain-decoding",),
        panel="Answers",
    )
    min_confidence: float | None = make_option(
        None,
        "Minimum confidence of an answer, from 0 to 1: the geometric mean of the probabilities of its tokens. Less certain "
        "answers, and the answer none, are left empty; 0 shows every answer; default: the model's settings, or else 0.",
        check=check_probability,
        kind=float,
        panel="Answers",
        decides_vectors=False,
    )
    max_batch_tokens: int | None = make_option(
        None,
        "Maximum number of padded tokens in one pass, which bounds memory; default: 16384 on a GPU, 2048 on a CPU.",
        check=check_positive_integer,
        kind=int,
        panel="Speed",
        decides_vectors=False,
        shared=True,
    )
    temperature: float = make_option(
        0.0,
        "Sampling temperature of the answer whose states avg-gen, last-gen and avg-all read; 0 decodes greedily.",
        check=check_temperature,
        kind=float,
        flags=None,
    )
    top_p: float = make_option(
        1.0, "Probability mass of nucleus sampling for that answer, in (0, 1].", check=check_top_p, kind=float, flags=None
    )
    seed: int = make_option(0, "Seed of that answer.", check=check_seed, kind=int, flags=None)
    reencoding: Reencoding | None = make_option(
        None, "How re-enc samples answers and embeds them.", check=_check_reencoding, kind=dict[str, Any], flags=None
    )
    filter_words: tuple[str, ...] = make_option(
        (),
        "Words whose hidden states are left out of an answer's mean (paper, section 4.3).",
        check=_check_words,
        kind=list[str],
        flags=("--filter-word",),
    )
    subtract_instruction: bool | None = make_option(
        None,
        'Subtract the question\'s own vector v("", i), that of an empty text, from each vector (never for re-enc); default: the '
        "setting the model card recommends.",
        check=check_optional_bool,
        kind=bool,
        flags=("--subtract-instruction/--keep-instruction",),
    )
    beside: str | None = make_option(
        None,
        "A second model that reads the same prompts. Both vectors are normalized and concatenated, so that a cosine is the mean "
        "of theirs; none turns it off; default: the model's settings.",
        check=_check_second_model,
    )
    truncate_dim: int | None = make_option(
        None,
        "Truncate vectors to the first d dimensions, before they are normalized (not with a second model); default: all.",
        check=check_positive_integer,
        kind=int,
        shared=True,
    )
    normalize_embeddings: bool | None = make_option(
        None,
        "Normalize vectors to length 1; default: yes for bundled models, no for others.",
        check=check_optional_bool,
        kind=bool,
        flags=("--normalize/--raw-length",),
    )
    precision: str = make_option(
        "float32",
        "Number format of vectors: float32, int8 or uint8 (a quarter of the size), binary or ubinary (one bit per dimension, "
        "packed into bytes). Groups, searches and the cache always compute with float32.",
        check=check_precision,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.temperature:
            object.__setattr__(self, "seed", 0)  # a greedy answer has no seed

    @property
    def sampling(self) -> Sampling:
        """The decoding settings of the answer whose states are pooled."""
        return Sampling(self.max_new_tokens or Sampling.max_new_tokens, 1, self.temperature, self.top_p, self.seed)


class Options(NamedTuple):
    """All options of a model."""

    model: ModelOptions
    """Options of what is loaded."""
    encoding: EncodingOptions
    """Options of how a text becomes a vector."""

    @classmethod
    def parse(cls, **options: Any) -> Options:
        """Split keyword arguments of ``InBedder`` into the two kinds of options.

        Args:
            **options: Fields of ``ModelOptions`` and ``EncodingOptions``.

        Returns:
            Both kinds, checked.

        Raises:
            InputError: If an option is unknown, or a value has the wrong type or is out of range.
        """
        return cls(ModelOptions(), EncodingOptions()).replace(**options)

    def replace(self, **options: Any) -> Options:
        """Return a copy with some options changed.

        Args:
            **options: Fields of ``ModelOptions`` and ``EncodingOptions``.

        Returns:
            New options.

        Raises:
            InputError: If an option is unknown, or a value has the wrong type or is out of range.
        """
        names = [{option.name for option in fields(part)} for part in self]
        if unknown := sorted(options.keys() - names[0] - names[1]):
            option_names = format_names(sorted(names[0] | names[1]))
            raise InputError(f"There is no option {format_names(unknown)}. InBedder takes: {option_names}.")
        changes = [{name: value for name, value in options.items() if name in part} for part in names]
        return Options(dataclasses.replace(self.model, **changes[0]), dataclasses.replace(self.encoding, **changes[1]))

    def get_changed_options(self) -> dict[str, Any]:
        """Return the options that differ from their default, by name."""
        return {name: value for option, name, value in self._iterate_options() if value != option.default}

    def get_deciding_options(self) -> dict[str, Any]:
        """Return the options that vectors depend on, by name (the device, for example, is not among them)."""
        return {name: value for option, name, value in self._iterate_options() if get_option_info(option).decides_vectors}

    def get_shared_options(self) -> dict[str, Any]:
        """Return the options that the base encoder and the second model are also loaded with, by name."""
        return {name: value for option, name, value in self._iterate_options() if get_option_info(option).shared}

    def _iterate_options(self) -> Iterator[tuple[dataclasses.Field[Any], str, Any]]:
        """Yield each option's field, name and value."""
        for part in self:
            for option in fields(part):
                yield option, option.name, getattr(part, option.name)


def list_options() -> list[dataclasses.Field[Any]]:
    """List every option of a model, in the order of ``InBedder``'s keywords."""
    return [*fields(ModelOptions), *fields(EncodingOptions)]


def make_signature() -> inspect.Signature:
    """Build the signature of ``InBedder``'s constructor from the options' fields."""
    parameters = [inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)]
    for option in list_options():
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD if option.name == "model" else inspect.Parameter.KEYWORD_ONLY
        parameters.append(inspect.Parameter(option.name, kind, default=option.default, annotation=option.type))
    return inspect.Signature(parameters)
