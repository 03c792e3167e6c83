"""``VectorSpec``: everything that determines a vector, in one place.

Cache keys, stored groups, indexes, exports, Ray folders, the server's model list and result files store a ``VectorSpec``. Vectors
of two specs without differences are comparable; vectors of two specs with the same key are equal.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from hashlib import sha256
from typing import Any

from inbedder.errors import InbedderError, InputError, format_value
from inbedder.options import EncodingOptions, get_option_info

LOCATION_FIELDS = ("model", "hub_revision", "base_revision")
"""Fields that locate the files, whatever they contain: they are not part of the key and are never compared."""
ROUNDING_FIELDS = ("compute_dtype", "precision")
"""Fields that only round a vector: part of the key, but vectors that differ in them are comparable."""
TEMPLATE_NAMES = ("name", "system")
"""Fields of a template that are in no prompt: of a chat template, ``opening`` holds the system message."""
CHAT_FIELDS = ("opening", "closing", "strips")
"""Fields of a chat template, which are not part of the key of any other."""


@dataclass(frozen=True)
class VectorSpec:
    """The identity of a model's vectors: weights, files, compute dtype and encoding options.

    Example:
        >>> from inbedder import InBedder
        >>> model = InBedder()
        >>> print(*model.spec.differences(model.replace(pooling="avg-all").spec))
        pooling was 'avg-gen' and is 'avg-all'
    """

    model: str
    """The model's name, as passed to ``InBedder``."""
    hub_revision: str | None
    """The requested branch, tag or commit of the hub."""
    backbone: str
    """The model's family, as passed to ``InBedder``."""
    quantization: str | None
    """The quantization of the weights."""
    weights: str
    """The weights' revision: the hub's commit, or a hash of the files."""
    files: str
    """A hash of tokenizer, configuration and adapter settings."""
    compute_dtype: str
    """The compute dtype."""
    encoding: EncodingOptions
    """How a text becomes a vector, with every default filled in."""
    base_encoder: str | None = None
    """Revision of the base encoder, which reads texts without a question; None without one."""
    reencoder: str | None = None
    """Revision of the model that embeds answers, for re-enc."""
    second_model: VectorSpec | None = None
    """The spec of the model whose vectors are appended."""
    base_revision: str | None = None
    """The commit of an adapter's base on the hub, which a reload uses again; None for any other model."""

    def to_dict(self) -> dict[str, Any]:
        """Convert the spec to lists, dictionaries, strings and numbers.

        Returns:
            A dictionary that ``from_dict`` reads.
        """
        table = {option.name: getattr(self, option.name) for option in fields(self)}
        table["encoding"] = _convert_tuples(asdict(self.encoding))
        table["second_model"] = None if self.second_model is None else self.second_model.to_dict()
        return table

    @classmethod
    def from_dict(cls, table: Mapping[str, Any]) -> VectorSpec:
        """Create a spec from the result of ``to_dict``.

        Args:
            table: The dictionary.

        Returns:
            An equal spec.

        Raises:
            InputError: If a field is missing, unknown or of the wrong type.
        """
        try:
            values = dict(table)
            values["encoding"] = EncodingOptions(**values["encoding"])
            if values["second_model"] is not None:
                values["second_model"] = cls.from_dict(values["second_model"])
            spec = cls(**values)
        except (InbedderError, AttributeError, KeyError, TypeError, ValueError) as error:
            raise InputError(f"The stored settings of a model are damaged ({format_value(error)}).") from error
        if spec.encoding.template is None:
            raise InputError("The stored settings of a model are damaged (they have no template).")
        for option in fields(cls):
            value = getattr(spec, option.name)
            if not isinstance(value, {"str": str, "str | None": str | None}.get(str(option.type), object)):
                raise InputError(f"The stored settings of a model are damaged ({option.name} is {format_value(value)}).")
        return spec

    def to_json(self) -> str:
        """Convert the spec to JSON.

        Returns:
            A string that ``from_json`` reads.
        """
        return json.dumps(self.to_dict(), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> VectorSpec:
        """Create a spec from the result of ``to_json``.

        Args:
            text: The JSON.

        Returns:
            An equal spec.

        Raises:
            InputError: If the text is not JSON, or not a spec.
        """
        try:
            table = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise InputError(f"The stored settings of a model are damaged ({error}).") from error
        if not isinstance(table, dict):
            raise InputError("The stored settings of a model are damaged (they are not a JSON object).")
        return cls.from_dict(table)

    def contents(self) -> dict[str, Any]:
        """Return everything that determines the digits of a vector, without names and locations of files.

        Returns:
            A dictionary that is equal for equal vectors.
        """
        table = {name: value for name, value in self.to_dict().items() if name not in LOCATION_FIELDS}
        option_names = [option.name for option in fields(EncodingOptions) if get_option_info(option).decides_vectors]
        table["encoding"] = {name: table["encoding"][name] for name in option_names}
        template = table["encoding"]["template"]
        for name in TEMPLATE_NAMES if template["system"] is not None else TEMPLATE_NAMES + CHAT_FIELDS:
            template.pop(name)
        table["encoding"].pop("beside")  # only a name, like that of the re-encoder; second_model and reencoder identify the files
        (table["encoding"]["reencoding"] or {}).pop("encoder", None)
        if self.second_model is not None:
            table["second_model"] = self.second_model.contents()
        return table

    def key(self) -> str:
        """Hash everything that determines the digits of a vector.

        Returns:
            16 hexadecimal digits.
        """
        return sha256(json.dumps(self.contents(), sort_keys=True).encode()).hexdigest()[:16]

    def differences(self, current: VectorSpec, *, exact: bool = False) -> list[str]:
        """List the differences that make this spec's vectors incomparable with another one's.

        Args:
            current: The other spec.
            exact: Whether fields that only round a vector, such as the compute dtype, count too.

        Returns:
            One phrase per difference, such as "pooling was 'avg-gen' and is 'avg-all'"; empty if there is none.
        """
        old, new = _flatten(self.contents()), _flatten(current.contents())
        names = [name for name in dict.fromkeys([*old, *new]) if old.get(name) != new.get(name)]
        if not exact:
            names = [name for name in names if name.rpartition(" ")[2] not in ROUNDING_FIELDS]
        return [f"{name} was {format_value(old.get(name))} and is {format_value(new.get(name))}" for name in names]

    def check(self, current: VectorSpec, origin: str, advice: str) -> None:
        """Reject a model whose vectors are not comparable with this spec's.

        Args:
            current: The spec of the model in use.
            origin: What has this spec, such as "The index was built".
            advice: The way out, as the last sentence of the message.

        Raises:
            InputError: If the specs differ; the message names every difference.
        """
        if not (differences := self.differences(current)):
            return
        reason = f"{origin} with {format_value(self.model)} (revision {self.weights})"
        if current.weights != self.weights:
            reason += f", and this is {format_value(current.model)} (revision {current.weights})"
        else:
            reason += f", read in another way: {'; '.join(differences)}"
        raise InputError(f"{reason}. Their vectors cannot be compared. {advice}")

    def of_pooled_states(self, filter_words: Sequence[str] = ()) -> VectorSpec:
        """Return the spec of the pooled states, before anything is subtracted, added, appended or cut.

        Args:
            filter_words: Words whose hidden states are left out.

        Returns:
            The spec of their cache entries.
        """
        neutral: dict[str, Any] = {"subtract_instruction": False, "beside": None}
        neutral |= {"truncate_dim": None, "normalize_embeddings": False, "precision": "float32"}
        neutral["constrained_decoding"] = True  # vectors of states read no answer
        encoding = replace(self.encoding, filter_words=tuple(filter_words), reencoding=None, **neutral)
        return replace(self, encoding=encoding, base_encoder=None, second_model=None, reencoder=None)

    def of_answers(self) -> VectorSpec:
        """Return the spec of the model's answers, which do not depend on the pooling."""
        spec = self.of_pooled_states()
        names = {"template", "max_length", "truncation_side", "max_new_tokens", "mask_length", "constrained_decoding"}
        return replace(spec, encoding=EncodingOptions(**{name: getattr(self.encoding, name) for name in names}))

    def load(self, load_model: Callable[..., Any], **options: Any) -> Any:
        """Load the model that the spec describes.

        Args:
            load_model: ``InBedder``.
            **options: Options that the spec does not store (device, dtype, cache, trust_remote_code), or ``model``, if its
                folder was moved.

        Returns:
            The model. Use ``check`` to find out whether its vectors are the same.

        Raises:
            ModelError: If the model cannot be loaded.
            InputError: If an option does not fit the model.
        """
        stored = {option.name: getattr(self.encoding, option.name) for option in fields(EncodingOptions)}
        stored |= {"model": self.model, "revision": self.hub_revision, "base_revision": self.base_revision}
        stored |= {"backbone": self.backbone, "quantization": self.quantization}
        return load_model(**stored | options)


def _convert_tuples(value: Any) -> Any:
    """Convert tuples to lists, so that a spec equals its JSON."""
    if isinstance(value, Mapping):
        return {name: _convert_tuples(item) for name, item in value.items()}
    return [_convert_tuples(item) for item in value] if isinstance(value, (list, tuple)) else value


def _flatten(table: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Flatten nested dictionaries: options by their name, fields of the second model by "second_model" and their name."""
    entries: dict[str, Any] = {}
    for name, value in table.items():
        if not isinstance(value, Mapping):
            entries[prefix + name] = value
        elif name == "encoding":
            entries |= _flatten(value, prefix)
        else:
            entries |= _flatten(value, f"{prefix}{name} ")
    return entries
