"""``inbedder serve``."""

from __future__ import annotations

import logging
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from inbedder.cli.model_options import model_options
from inbedder.cli.shared_options import say


@model_options
def serve(
    model: Annotated[
        list[str] | None,
        typer.Option(help="NAME or NAME=PATH: mini, small, a folder or a hub id. Repeat to serve several.", show_default="mini"),
    ] = None,
    host: Annotated[str | None, typer.Option(help="Address; any but loopback needs a key.", show_default="127.0.0.1")] = None,
    port: Annotated[int | None, typer.Option(help="Port; 0 takes a free one.", show_default="8765")] = None,
    api_key_file: Annotated[
        Path | None, typer.Option(help="A file that holds the key which requests bring; or set INBEDDER_API_KEY.")
    ] = None,
    config: Annotated[
        Path | None, typer.Option(help="A YAML file of settings; each of them is also INBEDDER_... in the environment.")
    ] = None,
    model_options: dict[str, Any] = {},  # noqa: B006 - the decorator fills it
) -> None:
    """Answer requests in OpenAI's shape, with an instruction: embeddings, reranking, answers, groups (inbedder[serve])."""
    if model_options.pop("trust_remote_code", False):
        raise typer.BadParameter("a server runs no code from a model's repository.", param_hint="--trust-remote-code")
    from inbedder.errors import MissingExtraError

    try:
        from inbedder.server.run_server import serve as run
        from inbedder.server.settings import load_settings
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] in ("inbedder", "torch"):
            raise
        raise MissingExtraError(error.name or "fastapi", "serve") from error

    arguments = {"model": model or None, "host": host, "port": port, "api_key_file": api_key_file}
    settings = load_settings(config, **arguments, **_as_settings(model_options))
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    logging.getLogger("httpx").setLevel(logging.WARNING)
    say(f"Loading {', '.join(settings.named_models)} ...")
    run(settings, lambda address: say(f"Serving at {address} (its page: {address}/docs). Press Ctrl+C to stop."))


def _as_settings(options: dict[str, Any]) -> dict[str, Any]:
    """Options of a model as the server's settings hold them: plain tables, lists and strings."""
    plain = {name: asdict(value) if is_dataclass(value) else value for name, value in options.items()}  # type: ignore[arg-type]
    return {name: list(value) if isinstance(value, tuple) else value for name, value in plain.items()}
