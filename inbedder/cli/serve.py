"""The command ``inbedder serve``."""

from __future__ import annotations

from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from inbedder.cli.model_options import with_model_options
from inbedder.cli.shared_options import is_debugging, print_message


@with_model_options
def serve(
    model: Annotated[
        list[str] | None,
        typer.Option(help="NAME or NAME=PATH: a bundled model, a folder or a hub id; repeatable.", show_default="mini"),
    ] = None,
    host: Annotated[
        str | None, typer.Option(help="Address to bind to; a non-loopback address requires an API key.", show_default="127.0.0.1")
    ] = None,
    port: Annotated[int | None, typer.Option(help="Port; 0 chooses a free one.", show_default="8765")] = None,
    api_key_file: Annotated[
        Path | None, typer.Option(help="File with the API key that requests must send; or set INBEDDER_API_KEY.")
    ] = None,
    config: Annotated[
        Path | None, typer.Option(help="YAML file of settings; each is also an environment variable INBEDDER_...")
    ] = None,
    model_options: dict[str, Any] = {},  # noqa: B006 - the decorator fills it
) -> None:
    """Serve an OpenAI-compatible HTTP API.

    The routes return embeddings, rerankings, answers and groups. Install the serve extra first.
    """
    if model_options.pop("trust_remote_code", False):
        raise typer.BadParameter("a server never runs code from a model's repository.", param_hint="--trust-remote-code")
    from inbedder.errors import MissingExtraError

    try:
        from inbedder.server.log_format import configure_log
        from inbedder.server.run_server import serve as run
        from inbedder.server.settings import load_settings
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] in ("inbedder", "torch"):
            raise
        raise MissingExtraError(error.name or "fastapi", "serve") from error

    arguments = {"model": model or None, "host": host, "port": port, "api_key_file": api_key_file}
    settings = load_settings(config, **arguments, **_as_settings(model_options))
    configure_log(debug=is_debugging())
    print_message(f"Loading {', '.join(settings.named_models)} ...")
    run(settings, lambda address: print_message(f"Serving at {address} (documentation: {address}/docs). Press Ctrl+C to stop."))


def _as_settings(options: dict[str, Any]) -> dict[str, Any]:
    """Convert the options of a model to the plain values of the server's settings."""
    plain = {name: asdict(value) if is_dataclass(value) else value for name, value in options.items()}  # type: ignore[arg-type]
    return {name: list(value) if isinstance(value, tuple) else value for name, value in plain.items()}
