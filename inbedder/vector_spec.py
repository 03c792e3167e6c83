"""``VectorSpec``: everything that decides a vector, in one place.

Cache keys, stored groups, indexes, exports, Ray folders, the server's model list and result files hold a ``VectorSpec`` and no
list of their own. Two specs without differences give vectors that can be compared; two with the same key give the same digits.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from hashlib import sha256
from typing import Any

from inbedder.errors import InputError, format_value
from inbedder.options import EncodingOptions, get_option_info

FILE_NAME_FIELDS = ("model", "hub_revision")
"""Where the files are, which says nothing of what is in them: never compared, and no part of the key."""
DIGIT_FIELDS = ("precision",)
"""What changes the last digits of a vector: part of the key; vectors that differ in it alone can be compared."""


@dataclass(frozen=True)
class VectorSpec:
    """A loaded model and how it is read, frozen."""

    model: str
    """The model's name, as ``InBedder`` takes it."""
    hub_revision: str | None
    """Branch, tag or commit that was asked of the hub."""
    backbone: str
    """Its family, as ``InBedder`` takes it."""
    quantization: str | None
    """How its weights are quantized."""
    weights: str
    """The weights' revision: the hub's commit, or a hash of the files."""
    files: str
    """A hash of tokenizer, configuration and adapter settings."""
    precision: str
    """What it computes in."""
    encoding: EncodingOptions
    """How a text becomes a vector, no default left open."""
    base_encoder: str | None = None
    """Revision of the model that reads texts without a question, where there is one."""
    reencoder: str | None = None
    """Revision of the model that embeds answers, for re-enc."""
    second_model: VectorSpec | None = None
    """The model whose vectors are appended."""

    def to_dict(self) -> dict[str, Any]:
        """Return the spec as plain lists, tables, strings and numbers.

        Returns:
            What ``from_dict`` takes.
        """
        table = {option.name: getattr(self, option.name) for option in fields(self)}
        table["encoding"] = _convert_tuples(asdict(self.encoding))
        table["second_model"] = None if self.second_model is None else self.second_model.to_dict()
        return table

    @classmethod
    def from_dict(cls, table: Mapping[str, Any]) -> VectorSpec:
        """Make a spec of what ``to_dict`` returned.

        Args:
            table: The spec.

        Returns:
            An equal spec.

        Raises:
            InputError: When a field is missing, unknown or of another kind.
        """
        try:
            values = dict(table)
            values["encoding"] = EncodingOptions(**values["encoding"])
            if values["second_model"] is not None:
                values["second_model"] = cls.from_dict(values["second_model"])
            return cls(**values)
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(f"The stored settings of a model are damaged ({error!r}).") from error

    def to_json(self) -> str:
        """Return the spec as JSON.

        Returns:
            What ``from_json`` takes.
        """
        return json.dumps(self.to_dict(), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> VectorSpec:
        """Make a spec of what ``to_json`` returned.

        Args:
            text: The spec.

        Returns:
            An equal spec.

        Raises:
            InputError: When it is no JSON, or no spec.
        """
        try:
            table = json.loads(text)
        except ValueError as error:
            raise InputError(f"The stored settings of a model are damaged ({error}).") from error
        if not isinstance(table, dict):
            raise InputError("The stored settings of a model are damaged (they hold no table).")
        return cls.from_dict(table)

    def contents(self) -> dict[str, Any]:
        """Return what decides the digits of a vector, whatever the files are called.

        Returns:
            A table that is equal for equal vectors.
        """
        table = {name: value for name, value in self.to_dict().items() if name not in FILE_NAME_FIELDS}
        deciding = [option.name for option in fields(EncodingOptions) if get_option_info(option).decides_vectors]
        table["encoding"] = {name: table["encoding"][name] for name in deciding}
        table["encoding"]["template"].pop("name", None)
        table["encoding"].pop("beside")  # a name, as the re-encoder's is; second_model and reencoder say which
        (table["encoding"]["reencoding"] or {}).pop("encoder", None)
        if self.second_model is not None:
            table["second_model"] = self.second_model.contents()
        return table

    def key(self) -> str:
        """Hash what decides the digits of a vector.

        Returns:
            16 hexadecimal digits.
        """
        return sha256(json.dumps(self.contents(), sort_keys=True).encode()).hexdigest()[:16]

    def differences(self, other: VectorSpec, *, exact: bool = False) -> list[str]:
        """Name what keeps vectors of another spec from being compared with this one's.

        Args:
            other: The other spec.
            exact: Whether what changes the last digits alone, the precision, counts too.

        Returns:
            A sentence part for each difference, such as "pooling was 'avg-gen' and is 'avg-all'"; nothing when there is none.
        """
        ours, theirs = _flatten(self.contents()), _flatten(other.contents())
        names = [name for name in dict.fromkeys([*ours, *theirs]) if ours.get(name) != theirs.get(name)]
        if not exact:
            names = [name for name in names if name.rpartition(" ")[2] not in DIGIT_FIELDS]
        return [f"{name} was {format_value(ours.get(name))} and is {format_value(theirs.get(name))}" for name in names]

    def check(self, other: VectorSpec, made: str, advice: str) -> None:
        """Refuse a model whose vectors cannot be compared.

        Args:
            other: The spec of the model at hand.
            made: What was made with this spec, such as "The index was built".
            advice: What to do about it.

        Raises:
            InputError: When the two differ; the message names everything in which they do.
        """
        if not (differences := self.differences(other)):
            return
        reason = f"{made} with {format_value(self.model)} (revision {self.weights})"
        if other.weights != self.weights:
            reason += f", and this is {format_value(other.model)} (revision {other.weights})"
        else:
            reason += f", read in another way: {'; '.join(differences)}"
        raise InputError(f"{reason}. Their vectors cannot be compared. {advice}")

    def of_pooled_states(self, filter_words: Sequence[str] = ()) -> VectorSpec:
        """Return the spec of the vectors as the backbone gives them, before anything is subtracted, added or appended.

        Args:
            filter_words: Words whose answer states are left out.

        Returns:
            The spec of their cache entries.
        """
        neutral: dict[str, Any] = {"subtract_instruction": False, "add_generic": False, "beside": None, "normalize": False}
        encoding = replace(self.encoding, filter_words=tuple(filter_words), reencoding=None, **neutral)
        return replace(self, encoding=encoding, base_encoder=None, second_model=None, reencoder=None)

    def of_answers(self) -> VectorSpec:
        """Return the spec of the model's answers, which depend on no pooling."""
        spec = self.of_pooled_states()
        reading = {"template", "max_length", "truncation_side", "max_new_tokens", "mask_length"}
        values = {name: getattr(self.encoding, name) for name in reading}
        return replace(spec, encoding=EncodingOptions(**values))

    def load(self, load_model: Callable[..., Any], **options: Any) -> Any:
        """Load the model as it was.

        Args:
            load_model: ``InBedder``.
            **options: What the stored spec does not decide: device, dtype, cache, trust_remote_code; or ``model``, where it is
                now.

        Returns:
            The model. Whether it is the same one is for ``check`` to say.

        Raises:
            ModelError: When it cannot be loaded.
            InputError: When an option does not fit it.
        """
        stored = {option.name: getattr(self.encoding, option.name) for option in fields(EncodingOptions)}
        stored |= {"model": self.model, "revision": self.hub_revision, "backbone": self.backbone}
        return load_model(**stored | {"quantization": self.quantization} | options)


def _convert_tuples(value: Any) -> Any:
    """Lists for tuples, so that a spec equals what JSON gives back."""
    if isinstance(value, Mapping):
        return {name: _convert_tuples(item) for name, item in value.items()}
    return [_convert_tuples(item) for item in value] if isinstance(value, (list, tuple)) else value


def _flatten(table: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """The entries of nested tables, by the option's name; those of the second model by "second_model" and the name."""
    entries: dict[str, Any] = {}
    for name, value in table.items():
        if not isinstance(value, Mapping):
            entries[prefix + name] = value
        elif name in ("encoding",):
            entries |= _flatten(value, prefix)
        else:
            entries |= _flatten(value, f"{prefix}{name} ")
    return entries
