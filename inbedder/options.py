"""The options of a model, each described once: its default, its help, its check and its name on the command line.

``ModelOptions`` says what is loaded, ``EncodingOptions`` how a text becomes a vector. ``InBedder``, its signature, the command
line, ``VectorSpec`` (what is stored beside vectors), Ray jobs and the server are made of these fields and hold no list of their
own. Nothing heavy is imported here: ``inbedder --help`` reads this module.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, NamedTuple

from inbedder.errors import InputError, ModelError, format_names, format_value
from inbedder.pooling import describe_poolings

if TYPE_CHECKING:
    from inbedder.prompting.templates import PromptTemplate

DTYPES = ("float32", "bfloat16", "float16")
TRUNCATION_SIDES = {"right": "end", "left": "start"}
"""Which end of a long text is cut off, by transformers' name for it."""
NO_SECOND_MODEL = "none"
"""``beside`` no other model, whatever the model's settings say."""
BASE_NAME = "all-MiniLM-L6-v2"
"""The base of ``mini``, which needs no network."""


@dataclass(frozen=True)
class OptionInfo:
    """What an option's field carries in its metadata."""

    help: str
    """Its meaning, in a sentence or two, for ``--help`` and the reference."""
    check: Callable[[str, Any], Any]
    """Takes the option's name and a value; returns the value in its one form, or raises."""
    kind: Any
    """Its plain type, on the command line and in the server's settings."""
    flags: tuple[str, ...] | None
    """Its names on the command line; empty for ``--`` and the field's name, None where it is not offered there."""
    panel: str
    """The group of options that ``--help`` shows it in."""
    decides_vectors: bool
    """Whether vectors depend on it."""
    shared: bool
    """Whether the base encoder and the second model are loaded with the same value."""


def _make_option(
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
    info = OptionInfo(help, check, kind, flags, panel, decides_vectors, shared)
    return field(default=default, metadata={"option": info})


def get_option_info(option: dataclasses.Field[Any]) -> OptionInfo:
    """Return what an option's field carries.

    Args:
        option: A field of ``ModelOptions``, ``EncodingOptions`` or ``Reencoding``.

    Returns:
        Help, check, command-line name and the rest.
    """
    info: OptionInfo = option.metadata["option"]
    return info


class _Checked:
    """A dataclass whose fields are checked, and brought into one form, when it is made."""

    def __post_init__(self) -> None:
        for option in fields(self):  # type: ignore[arg-type]
            value = get_option_info(option).check(option.name, getattr(self, option.name))
            object.__setattr__(self, option.name, value)


def _string(name: str, value: Any) -> Any:
    if not isinstance(value, str | None):
        raise ModelError(f"{name} must be a string or None, not {format_value(value)}.")
    return value


def _device(name: str, value: Any) -> str | None:
    """A device's name, also of a ``torch.device``."""
    return _string(name, str(value) if type(value).__name__ == "device" else value)  # type: ignore[no-any-return]


def _path(name: str, value: Any) -> Any:
    try:
        return None if value is None else os.fspath(value)
    except TypeError:
        raise ModelError(f"{name} must be a name or a path, not {format_value(value)}.") from None


def _true_or_false(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise ModelError(f"{name} must be True or False, not {format_value(value)}.")
    return value


def _switch(name: str, value: Any) -> bool | None:
    return None if value is None else _true_or_false(name, value)


def _at_least_one(name: str, value: Any) -> int | None:
    from inbedder.arguments import check_integer

    return None if value is None else check_integer(name, value, 1)


def _whole(name: str, value: Any) -> int:
    from inbedder.arguments import check_integer

    return check_integer(name, value)


def _dtype(name: str, value: Any) -> str | None:
    """A dtype's name, of torch's, numpy's or Python's spelling of it."""
    if value is None:
        return None
    dtype = getattr(value, "__name__", None) or str(value).removeprefix("torch.")
    if dtype not in DTYPES:
        raise ModelError(f"Unknown {name} {format_value(value)}. Choose one of: {', '.join(DTYPES)}.")
    return str(dtype)


def _side(name: str, value: Any) -> str:
    if value not in TRUNCATION_SIDES:
        raise InputError(f"{name} must be {' or '.join(TRUNCATION_SIDES)}, not {format_value(value)}.")
    return str(value)


def _template(_name: str, value: Any) -> Any:
    from inbedder.prompting.templates import PromptTemplate, get_template

    if isinstance(value, dict):
        return PromptTemplate(**value)
    return None if value is None else get_template(value)


def _second_model(name: str, value: Any) -> Any:
    if not isinstance(value, str | None):
        raise InputError(f"{name} must be the name of a model, {NO_SECOND_MODEL} or None, not {format_value(value)}.")
    return value


def _temperature(name: str, value: Any) -> float:
    from inbedder.arguments import check_finite_number

    number = check_finite_number(name, value)
    if number < 0:
        raise InputError(f"{name} must be at least 0, not {number}.")
    return number


def _nucleus(name: str, value: Any) -> float:
    from inbedder.arguments import check_finite_number

    number = check_finite_number(name, value)
    if not 0 < number <= 1:
        raise InputError(f"{name} must be above 0 and at most 1, not {number}.")
    return number


def _seed(_name: str, value: Any) -> int:
    from inbedder.arguments import check_seed

    return check_seed(value)


def _words(name: str, value: Any) -> tuple[str, ...]:
    from inbedder.prompting.templates import check_strings

    return tuple(check_strings(name, value))


def _reencoding(name: str, value: Any) -> Reencoding | None:
    if isinstance(value, dict):
        return Reencoding(**value)
    if not isinstance(value, Reencoding | None):
        raise InputError(f"{name} must be a Reencoding or None, not {format_value(value)}.")
    return value


@dataclass(frozen=True)
class Sampling:
    """How a backbone decodes answers."""

    max_new_tokens: int = 3
    """Maximum number of tokens of an answer."""
    n: int = 1
    """Answers per text."""
    temperature: float = 0.0
    """0 is greedy."""
    top_p: float = 1.0
    """Nucleus."""
    seed: int = 0
    """Seed of sampled answers."""

    def __post_init__(self) -> None:
        checks: dict[str, Callable[[str, Any], Any]] = {"max_new_tokens": _at_least_one, "n": _at_least_one}
        checks |= {"temperature": _temperature, "top_p": _nucleus, "seed": _seed}
        for name, check in checks.items():
            object.__setattr__(self, name, check(name, getattr(self, name)))


@dataclass(frozen=True)
class Reencoding(_Checked):
    """How "re-enc" samples answers and embeds them: the authors' numbers; their re-encoder is intfloat/e5-large-v2."""

    n: int = _make_option(
        10, "Answers per text of --pooling re-enc.", check=_at_least_one, kind=int, flags=("--re-enc-n",), panel="Answers"
    )
    temperature: float = _make_option(
        0.8,
        "Temperature of the answers of re-enc; 0 is greedy, and one answer is then as good as many.",
        check=_temperature,
        kind=float,
        flags=("--re-enc-temperature",),
        panel="Answers",
    )
    top_p: float = _make_option(
        0.9, "Nucleus of the answers of re-enc.", check=_nucleus, kind=float, flags=("--re-enc-top-p",), panel="Answers"
    )
    seed: int = _make_option(
        0, "Seed of the answers of re-enc.", check=_seed, kind=int, flags=("--re-enc-seed",), panel="Answers"
    )
    encoder: str = _make_option(
        BASE_NAME,
        "For --pooling re-enc: the sentence-transformers model that embeds the answers, a hub id or a folder.",
        check=_string,
        flags=("--re-encoder",),
        panel="Answers",
    )

    def make_sampling(self, max_new_tokens: int, filter_words: Sequence[str] = ()) -> Sampling:
        """Return how answers of at most so many tokens are decoded.

        Args:
            max_new_tokens: Maximum number of tokens of an answer.
            filter_words: Must be empty: words are left out of hidden states, and re-enc reads none.

        Returns:
            What a backbone takes.

        Raises:
            InputError: When words are to be left out.
        """
        if filter_words:
            raise InputError("filter_words leaves out hidden states, and re-enc has none. Choose another pooling.")
        return Sampling(max_new_tokens, self.n, self.temperature, self.top_p, self.seed if self.temperature else 0)


@dataclass(frozen=True)
class ModelOptions(_Checked):
    """What is loaded."""

    model: str = _make_option(
        "mini",
        "mini (bundled), small (inbedder models install small), a folder or a hub id; the folder or id of a peft adapter loads "
        "its base.",
        check=_path,
        flags=None,
    )
    backbone: str | None = _make_option(
        None,
        "causal, masked, seq2seq, embedding (or instructor; embedding models, which do not answer), onnx (masked LMs as int8 on "
        "a CPU), or vllm with its options, as in 'vllm: {tensor_parallel_size: 2}'; default: read from the model's files.",
        check=_string,
    )
    device: str | None = _make_option(
        None,
        "A torch device, such as cpu or cuda:1; default: the GPU where there is one.",
        check=_device,
        decides_vectors=False,
        shared=True,
    )
    dtype: str | None = _make_option(
        None,
        "float32, bfloat16 or float16; default: the fastest of equal quality on this device.",
        check=_dtype,
        shared=True,
    )
    revision: str | None = _make_option(None, "Branch, tag or commit of a model on the hub.", check=_string)
    trust_remote_code: bool = _make_option(
        False,
        "Run code from the model's repository. Read it first.",
        check=_true_or_false,
        kind=bool,
        flags=("--trust-remote-code",),
        decides_vectors=False,
    )
    quantization: str | None = _make_option(
        None, "int8 or nf4 weights (bitsandbytes); for vLLM any of its methods.", check=_string
    )
    cache: str | None = _make_option(
        None,
        "A folder that stores vectors and answers, so that the next run computes only what is new.",
        check=_path,
        panel="Speed",
        decides_vectors=False,
        shared=True,
    )
    cache_size: str | int | None = _make_option(
        None,
        "Maximum size of --cache, such as 500M or 5G (or unlimited); the least recently used entries are evicted first. The "
        "cache remembers it.",
        panel="Speed",
        decides_vectors=False,
        shared=True,
    )
    text_memory: str | int | None = _make_option(
        None,
        "Maximum memory for the keys and values of texts that a causal LM has read, such as 2G, so that the next question over "
        "the same texts reads little more than itself (1st-gen, the text first).",
        panel="Speed",
        decides_vectors=False,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.cache is None and self.cache_size is not None:
            raise InputError("cache_size needs a cache. Name its folder.")
        if self.model is None:
            raise ModelError("model must be a name or a path, not None. Leave it out for mini.")
        if self.is_onnx and self.dtype is not None:
            raise InputError(f"backbone='onnx' computes in int8, not in {self.dtype}. Leave dtype out.")

    @property
    def kind(self) -> str | None:
        """The family that was asked for: "causal", "masked", "seq2seq", "embedding" or "vllm"; None to read the files."""
        return {"instructor": "embedding", "onnx": "masked"}.get(self.backbone or "", self.backbone)

    @property
    def is_onnx(self) -> bool:
        """Whether a masked LM runs as an int8 graph."""
        return self.backbone == "onnx"


@dataclass(frozen=True)
class EncodingOptions(_Checked):
    """How a text becomes a vector. None is what the model's settings say, else its family's default."""

    pooling: str | None = _make_option(
        None,
        f"Which hidden states become the vector. {describe_poolings()}. The authors' names, such as fst_gen_layer_32, are "
        "understood.",
        check=_string,
    )
    layer: int = _make_option(
        -1,
        "Layer of the hidden states: 0 the token embeddings, 1 to L the blocks (L after the final norm), negative from the end.",
        check=_whole,
        kind=int,
    )
    template: str | PromptTemplate | None = _make_option(
        None,
        "Prompt template: a name, or a pattern with {input} and {instruction}; default: what the model was fine-tuned with.",
        check=_template,
    )
    max_length: int = _make_option(
        512, "Maximum prompt length in tokens; longer texts are cut.", check=_at_least_one, kind=int, shared=True
    )
    truncation_side: str = _make_option(
        "right", "Where long texts are cut: right, at their end, or left, at their start.", check=_side, shared=True
    )
    max_new_tokens: int | None = _make_option(
        None,
        "Maximum number of new tokens of an answer (causal and encoder-decoder LMs); default: the model's settings, else 3.",
        check=_at_least_one,
        kind=int,
        panel="Answers",
    )
    mask_length: int | None = _make_option(
        None,
        "Number of masks that stand for the answer (masked LMs); default: what the model was fine-tuned with, else 3.",
        check=_at_least_one,
        kind=int,
        panel="Answers",
    )
    max_batch_tokens: int | None = _make_option(
        None,
        "Maximum number of padded tokens in one pass, which bounds memory; default: 16384 on a GPU, 4096 on a CPU.",
        check=_at_least_one,
        kind=int,
        panel="Speed",
        decides_vectors=False,
        shared=True,
    )
    temperature: float = _make_option(
        0.0,
        "Temperature of the answer whose states avg-gen, last-gen and avg-all read; 0 is greedy.",
        check=_temperature,
        kind=float,
        flags=None,
    )
    top_p: float = _make_option(1.0, "Nucleus of that answer.", check=_nucleus, kind=float, flags=None)
    seed: int = _make_option(0, "Seed of that answer.", check=_seed, kind=int, flags=None)
    reencoding: Reencoding | None = _make_option(
        None, "How re-enc samples answers and embeds them.", check=_reencoding, kind=dict[str, Any], flags=None
    )
    filter_words: tuple[str, ...] = _make_option(
        (),
        "Words whose answer states are left out of the mean (paper, section 4.3).",
        check=_words,
        kind=list[str],
        flags=("--filter-word",),
    )
    subtract_instruction: bool | None = _make_option(
        None,
        'Subtract the vector of an empty text under the same question, v("", i), from each vector; default: the setting the '
        "model card recommends. re-enc never does.",
        check=_switch,
        kind=bool,
        flags=("--subtract-instruction/--keep-instruction",),
    )
    add_generic: bool | None = _make_option(
        None,
        "Under questions about the whole text, add the text's vector without a question; default: the model's settings.",
        check=_switch,
        kind=bool,
        flags=("--add-generic/--answer-alone",),
    )
    beside: str | None = _make_option(
        None,
        "A second model that reads the same prompts; both vectors, at length 1, are concatenated, so that a cosine is the mean "
        "of both. none turns it off; default: the model's settings.",
        check=_second_model,
    )
    normalize: bool | None = _make_option(
        None,
        "Scale vectors to length 1; default: yes for bundled models, no for others.",
        check=_switch,
        kind=bool,
        flags=("--normalize/--raw-length",),
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.temperature:
            object.__setattr__(self, "seed", 0)  # a greedy answer has none

    @property
    def sampling(self) -> Sampling:
        """How the answer is decoded whose states are pooled."""
        return Sampling(self.max_new_tokens or Sampling.max_new_tokens, 1, self.temperature, self.top_p, self.seed)


class Options(NamedTuple):
    """Both halves of a model's options."""

    model: ModelOptions
    """What is loaded."""
    encoding: EncodingOptions
    """How a text becomes a vector."""

    @classmethod
    def parse(cls, **options: Any) -> Options:
        """Sort keyword arguments of ``InBedder`` into its two kinds of options.

        Args:
            **options: Fields of ``ModelOptions`` and ``EncodingOptions``.

        Returns:
            Both, checked.

        Raises:
            InputError: When there is no such option, or a value is out of range.
            ModelError: When a value cannot be one of the model's.
        """
        return cls(ModelOptions(), EncodingOptions()).replace(**options)

    def replace(self, **options: Any) -> Options:
        """Return the same options, some of them changed.

        Args:
            **options: Fields of ``ModelOptions`` and ``EncodingOptions``.

        Returns:
            New options.

        Raises:
            InputError: When there is no such option, or a value is out of range.
            ModelError: When a value cannot be one of the model's.
        """
        names = [{option.name for option in fields(part)} for part in self]
        if unknown := sorted(options.keys() - names[0] - names[1]):
            option_names = format_names(sorted(names[0] | names[1]))
            raise InputError(f"There is no option {format_names(unknown)}. InBedder takes: {option_names}.")
        changes = [{name: value for name, value in options.items() if name in part} for part in names]
        return Options(dataclasses.replace(self.model, **changes[0]), dataclasses.replace(self.encoding, **changes[1]))

    def get_changed_options(self) -> dict[str, Any]:
        """Return the options that are not at their default, by name."""
        return {name: value for option, name, value in self._list_entries() if value != option.default}

    def get_deciding_options(self) -> dict[str, Any]:
        """Return the options that decide vectors, by name: not the device, say."""
        return {name: value for option, name, value in self._list_entries() if get_option_info(option).decides_vectors}

    def get_shared_options(self) -> dict[str, Any]:
        """Return the options that the base encoder and the second model are loaded with too, by name."""
        return {name: value for option, name, value in self._list_entries() if get_option_info(option).shared}

    def _list_entries(self) -> Iterator[tuple[dataclasses.Field[Any], str, Any]]:
        """Each option's field, name and value."""
        for part in self:
            for option in fields(part):
                yield option, option.name, getattr(part, option.name)


def list_options() -> list[dataclasses.Field[Any]]:
    """Return every option of a model, in the order of ``InBedder``'s keywords."""
    return [*fields(ModelOptions), *fields(EncodingOptions)]
