"""Settings from the command line, the environment (``INBEDDER_...``) or a YAML file, in this order of precedence."""

from __future__ import annotations

import ipaddress
import os
import re
import stat
import warnings
from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import Field, SecretStr, ValidationError, create_model, field_validator
from pydantic_settings import BaseSettings, EnvSettingsSource, NoDecode, SettingsConfigDict

from inbedder.errors import InputError, format_names, format_value
from inbedder.options import get_option_info, list_options
from inbedder.runtime.user_paths import expand_name, expand_path

MODEL_OPTIONS: dict[str, Any] = {
    option.name: (get_option_info(option).kind | None, None)
    for option in list_options()
    if option.name not in ("model", "trust_remote_code")
}
"""Types and defaults of model options, each of which is also a setting for all models of a server. A server runs no code from a
model's repository."""
_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://[^\s/?#@*,A-Z]+")
_OptionSettings: Any = create_model("_OptionSettings", __base__=BaseSettings, **MODEL_OPTIONS)


class Settings(_OptionSettings):
    """Settings of a server. A request that exceeds a limit gets status 413 or 422."""

    model_config = SettingsConfigDict(env_prefix="INBEDDER_", extra="forbid", hide_input_in_errors=True)

    model: Annotated[list[str], NoDecode] = Field(default=["mini"], min_length=1)
    """Models as NAME or NAME=PATH, separated by commas in the environment. The first is the default."""
    host: str = "127.0.0.1"
    """Address to bind; a non-loopback address requires an API key."""
    port: int = Field(default=8765, ge=0, le=65535)
    """Port to bind; 0 takes a free port."""
    api_key: SecretStr | None = None
    """API key that every request except /health and /ready must send as ``Authorization: Bearer KEY``."""
    api_key_file: Path | None = None
    """A file that contains only the API key."""
    allowed_origins: Annotated[list[str], NoDecode] = Field(default=[])
    """Origins of web pages that may send requests, such as https://app.example.org, separated by commas in the environment."""
    max_body_bytes: int = Field(default=8_000_000, ge=1)
    """Maximum size of a request's body in bytes."""
    max_total_body_bytes: int = Field(default=32_000_000, ge=1)
    """Maximum size in bytes of the bodies of all unanswered requests, with the answers that wait to be read; further bodies over
    64 KiB get status 429."""
    max_items: int = Field(default=2048, ge=1)
    """Maximum number of texts in a request."""
    max_characters: int = Field(default=200_000, ge=1)
    """Maximum number of characters of a text."""
    max_tokens: int = Field(default=300_000, ge=1)
    """Maximum number of tokens in a request's prompts."""
    max_instruction_characters: int = Field(default=2000, ge=1)
    """Maximum number of characters of an instruction."""
    max_cluster_items: int = Field(default=2000, ge=2)
    """Maximum number of texts to group in a request."""
    max_cluster_instructions: int = Field(default=8, ge=1)
    """Maximum number of instructions to group by in a request."""
    max_waiting: int = Field(default=256, ge=1)
    """Maximum number of requests in progress or waiting per model; further requests get status 429."""
    threads: int = Field(default=32, ge=1)
    """Maximum number of requests per model that are tokenized and serialized at the same time."""
    batch_size: int = Field(default=32, ge=1)
    """Maximum number of texts in one pass of a model, over all waiting requests."""
    body_timeout: float = Field(default=10.0, gt=0, allow_inf_nan=False)
    """Maximum seconds for a request's body to arrive."""
    max_answer_bytes: int = Field(default=64_000_000, ge=1)
    """Maximum size of an answer in bytes, estimated before the work. Base64 takes a quarter of what vectors as numbers take."""
    max_total_answer_bytes: int = Field(default=128_000_000, ge=1)
    """Maximum size in bytes of all answers that are built or not yet read; further requests get status 429."""
    answer_timeout: float = Field(default=30.0, gt=0, allow_inf_nan=False)
    """Maximum seconds for a client to read each megabyte of an answer."""
    grace: int = Field(default=30, ge=0)
    """Seconds that accepted requests have to finish after SIGTERM."""

    @field_validator("model", "allowed_origins", mode="before")
    @classmethod
    def _split(cls, value: Any) -> Any:
        return [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value

    @field_validator("allowed_origins")
    @classmethod
    def _check_origins(cls, origins: list[str]) -> list[str]:
        if invalid := [origin for origin in origins if not _ORIGIN.fullmatch(origin)]:
            raise ValueError(
                f"{format_names(invalid)}: write each origin as the browser sends it, such as https://app.example.org: "
                "lower case, without a path or *"
            )
        return origins

    @property
    def named_models(self) -> dict[str, str]:
        """The model of each name that requests use; a folder without a name is called by its last part."""
        models: dict[str, str] = {}
        for entry in self.model:
            name, equals, path = entry.partition("=")
            name, path = (name, path) if equals else (Path(entry).name, entry)
            path = expand_name(path)
            if not name or not path:
                raise InputError(f"--model {format_value(entry)}: give NAME or NAME=PATH, such as mini or small=models/small.")
            if name in models:
                raise InputError(f"Two models are called {format_value(name)}. Give each its own name: --model NAME=PATH.")
            models[name] = path
        return models

    def get_model_options(self) -> dict[str, Any]:
        """Return the options of ``InBedder`` that are set; they apply to all models."""
        return {name: value for name in MODEL_OPTIONS if (value := getattr(self, name)) is not None}

    def read_key(self) -> str | None:
        """Read the API key, or None; reject one that is empty or cannot be sent, or none if other machines could connect."""
        if self.api_key_file is not None:
            try:
                key = expand_path(self.api_key_file).read_text(encoding="utf-8").strip()
            except (OSError, UnicodeDecodeError) as error:
                reason = f"The API key in {format_value(str(self.api_key_file))} cannot be read ({type(error).__name__})."
                raise InputError(f"{reason} Give a text file that contains only the key.") from error
        elif self.api_key is not None:
            key = self.api_key.get_secret_value()
        elif is_loopback(self.host):
            return None
        else:
            raise InputError(
                f"Binding to the non-loopback address {format_value(self.host)} requires an API key. "
                "Give --api-key-file FILE or set INBEDDER_API_KEY, or leave --host at 127.0.0.1."
            )
        if not key or not all("!" <= character <= "~" for character in key):
            raise InputError("The API key is empty or contains other than visible ASCII characters. Choose another key.")
        return key

    def warn_of_readable_key(self) -> None:
        """Warn if other users of this machine can read the file of the API key."""
        file = self.api_key_file
        if file is not None and os.name == "posix" and file.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
            warnings.warn(f"Other users can read the API key in {format_value(file.name)}. Run chmod 600 on it.", stacklevel=2)


def is_loopback(host: str) -> bool:
    """Return whether a host name or address is loopback (localhost, 127.0.0.0/8, ::1)."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def load_settings(config: str | os.PathLike[str] | None = None, **overrides: Any) -> Settings:
    """Load settings.

    Args:
        config: A YAML file of settings; None reads the file in ``INBEDDER_CONFIG``, if set.
        **overrides: Settings that take precedence over all others; None means not set.

    Returns:
        The settings.

    Raises:
        InputError: If a setting is unknown or out of range, or the file cannot be read. No value is shown: it may be a key.

    Example:
        >>> from inbedder.server.settings import load_settings
        >>> load_settings(port=9000, model=["mini", "big=models/big"]).named_models
        {'mini': 'mini', 'big': 'models/big'}
    """
    config = config or os.environ.get("INBEDDER_CONFIG")
    in_environment = EnvSettingsSource(Settings)()
    in_file = {} if config is None else _read_file(expand_path(config))
    values = {name: value for name, value in in_file.items() if name not in in_environment}
    values |= {name: value for name, value in overrides.items() if value is not None}
    if "api_key" in values and "api_key_file" not in values and "api_key_file" not in in_environment:
        values["api_key_file"] = None
    try:
        return Settings(**values)
    except ValidationError as error:
        problems = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors(include_input=False))
        raise InputError(
            f"The server's settings cannot be used: {problems}. Names: {', '.join(Settings.model_fields)}."
        ) from None


def _read_file(path: Path) -> dict[str, Any]:
    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise InputError(
            f"{format_value(str(path))} cannot be read ({type(error).__name__}). Give a YAML file of settings."
        ) from None
    if not isinstance(values, dict):
        raise InputError(f"{format_value(str(path))} holds no settings. Write lines such as 'port: 8765'.")
    if unknown := [name for name in values if name not in Settings.model_fields]:
        raise InputError(f"{format_value(str(path))}: unknown settings {format_names(unknown)}.")
    return values
