"""Settings: from the command line, the environment (``INBEDDER_...``) or a YAML file, in this order of precedence."""

from __future__ import annotations

import ipaddress
import os
from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import Field, SecretStr, ValidationError, create_model, field_validator
from pydantic_settings import BaseSettings, EnvSettingsSource, NoDecode, SettingsConfigDict

from inbedder.errors import InputError, shown, shown_names
from inbedder.options import all_options, info_of

MODEL_OPTIONS: dict[str, Any] = {
    option.name: (info_of(option).kind | None, None)
    for option in all_options()
    if option.name not in ("model", "trust_remote_code")
}
"""Every option of a model is a setting of the server too, for all its models; types and defaults here. A server runs no code
from a model's repository."""
_OptionSettings: Any = create_model("_OptionSettings", __base__=BaseSettings, **MODEL_OPTIONS)


class Settings(_OptionSettings):  # type: ignore[misc]
    """Settings of a server. Counts that a request may not exceed are answered with 413 or 422."""

    model_config = SettingsConfigDict(env_prefix="INBEDDER_", extra="forbid", hide_input_in_errors=True)

    model: Annotated[list[str], NoDecode] = Field(default=["mini"], min_length=1)
    """Models as NAME or NAME=PATH; in the environment set apart by commas. The first one is the default."""
    host: str = "127.0.0.1"
    """Address to listen at; another than loopback needs a key."""
    port: int = Field(default=8765, ge=0, le=65535)
    """Port to listen at; 0 takes a free one."""
    api_key: SecretStr | None = None
    """Key that every request but /health has to bring as ``Authorization: Bearer KEY``."""
    api_key_file: Path | None = None
    """A file whose only line is the key."""
    max_body_bytes: int = Field(default=8_000_000, ge=1)
    """Maximum number of bytes of a request's body."""
    max_items: int = Field(default=2048, ge=1)
    """Maximum number of texts in a request."""
    max_characters: int = Field(default=200_000, ge=1)
    """Maximum number of characters of a text."""
    max_tokens: int = Field(default=300_000, ge=1)
    """Maximum number of tokens that a request gives to the model."""
    max_instruction_characters: int = Field(default=2000, ge=1)
    """Maximum number of characters of an instruction."""
    max_cluster_items: int = Field(default=2000, ge=2)
    """Maximum number of texts that are grouped in a request."""
    max_cluster_instructions: int = Field(default=8, ge=1)
    """Maximum number of instructions that texts are grouped by in a request."""
    max_waiting: int = Field(default=256, ge=1)
    """Maximum number of requests of a model that are being worked on or wait; further ones are answered with 429."""
    threads: int = Field(default=32, ge=1)
    """Requests of a model that are tokenized and written as JSON at the same time; more than fill a pass win nothing."""
    batch_size: int = Field(default=32, ge=1)
    """Maximum number of texts in one pass of a model, of all waiting requests together."""
    body_timeout: float = Field(default=10.0, gt=0, allow_inf_nan=False)
    """Seconds within which a request's body has to arrive."""
    grace: int = Field(default=30, ge=0)
    """Seconds that accepted requests are given after SIGTERM."""

    @field_validator("model", mode="before")
    @classmethod
    def _split(cls, value: Any) -> Any:
        return [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value

    @property
    def named_models(self) -> dict[str, str]:
        """The model behind each name that requests use; a folder without a name goes by its last part."""
        named: dict[str, str] = {}
        for given in self.model:
            name, equals, path = given.partition("=")
            name, path = (name, path) if equals else (Path(given).name, given)
            if not name or not path:
                raise InputError(f"--model {shown(given)}: give NAME or NAME=PATH, such as mini or small=models/small.")
            if name in named:
                raise InputError(f"Two models are called {shown(name)}. Name them apart: --model NAME=PATH.")
            named[name] = path
        return named

    def model_options(self) -> dict[str, Any]:
        """Return the options that all models are loaded with, by ``InBedder``'s names; those that are not set are left out."""
        return {name: value for name in MODEL_OPTIONS if (value := getattr(self, name)) is not None}

    def key(self) -> str | None:
        """The key that requests have to bring; None where they need none.

        Returns:
            The key.

        Raises:
            InputError: When it is empty, cannot be read or sent, or is missing where other machines could connect.
        """
        if self.api_key_file is not None:
            try:
                key = self.api_key_file.read_text(encoding="utf-8").strip()
            except (OSError, UnicodeDecodeError) as error:
                reason = f"The key in {shown(str(self.api_key_file))} cannot be read ({type(error).__name__})."
                raise InputError(f"{reason} Give a text file that holds the key alone.") from error
        elif self.api_key is not None:
            key = self.api_key.get_secret_value()
        elif is_loopback(self.host):
            return None
        else:
            raise InputError(
                f"Without a key the server listens on this machine alone, and {shown(self.host)} is open to others. "
                "Give --api-key-file FILE or set INBEDDER_API_KEY, or leave --host at 127.0.0.1."
            )
        if not key or not all("!" <= character <= "~" for character in key):
            raise InputError("The API key is empty or holds other than visible ASCII characters. Choose another one.")
        return key


def is_loopback(host: str) -> bool:
    """Whether a host name or address (localhost, 127.0.0.0/8, ::1) can be reached only from this machine."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def load_settings(config: str | os.PathLike[str] | None = None, **given: Any) -> Settings:
    """Put settings together.

    Args:
        config: A YAML file of settings; None reads ``INBEDDER_CONFIG``, if that is set.
        **given: Settings that win over all others; those that are None count as not given.

    Returns:
        The settings.

    Raises:
        InputError: When one is unknown or out of range, or the file cannot be read. No value is shown, since it may be a key.
    """
    config = config or os.environ.get("INBEDDER_CONFIG")
    in_environment = EnvSettingsSource(Settings)()
    in_file = {} if config is None else _read(Path(config))
    values = {name: value for name, value in in_file.items() if name not in in_environment}
    values |= {name: value for name, value in given.items() if value is not None}
    if "api_key" in values and "api_key_file" not in values and "api_key_file" not in in_environment:
        values["api_key_file"] = None
    try:
        return Settings(**values)
    except ValidationError as error:
        wrong = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors(include_input=False))
        raise InputError(f"The server's settings cannot be used: {wrong}. Known: {', '.join(Settings.model_fields)}.") from None


def _read(path: Path) -> dict[str, Any]:
    try:
        found = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise InputError(f"{shown(str(path))} cannot be read ({type(error).__name__}). Give a YAML file of settings.") from None
    if not isinstance(found, dict):
        raise InputError(f"{shown(str(path))} holds no settings. Write lines such as 'port: 8765'.")
    if unknown := [name for name in found if name not in Settings.model_fields]:
        raise InputError(f"{shown(str(path))}: unknown settings {shown_names(unknown)}.")
    return found
