"""``inbedder serve``."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Annotated

import typer

from inbedder.cli.options import Cache, say


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
    cache: Cache = None,
    config: Annotated[
        Path | None, typer.Option(help="A YAML file of settings; each of them is also INBEDDER_... in the environment.")
    ] = None,
) -> None:
    """Answer requests in OpenAI's shape, with an instruction: embeddings, reranking, answers, groups (inbedder[serve])."""
    from inbedder.errors import MissingExtraError

    try:
        from inbedder.server.running import serve as run
        from inbedder.server.settings import load_settings
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] in ("inbedder", "torch"):
            raise
        raise MissingExtraError(error.name or "fastapi", "serve") from error

    given = {"model": model or None, "host": host, "port": port, "api_key_file": api_key_file, "cache": cache}
    settings = load_settings(config, **given)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    logging.getLogger("httpx").setLevel(logging.WARNING)
    say(f"Loading {', '.join(settings.named_models)} ...")
    run(settings, lambda address: say(f"Serving at {address} (its page: {address}/docs); Ctrl-C ends."))
