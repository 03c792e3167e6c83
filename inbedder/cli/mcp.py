"""The command ``inbedder mcp``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from inbedder.cli.model_options import with_model_options
from inbedder.cli.shared_options import Model


@with_model_options
def mcp(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Folder with tables and saved groups; nothing else is read.")],
    model: Model = "mini",
    model_options: dict[str, Any] = {},  # noqa: B006 - the decorator fills it
) -> None:
    """Serve tools for agents over MCP.

    An agent lists files and saved groups, asks tables new questions, compares groups and classifies. Nothing is written.
    """
    from inbedder.errors import import_extra

    import_extra("mcp", "mcp")
    from inbedder.integrations.mcp_tools import FolderTools, make_server

    make_server(FolderTools(folder, model, **model_options)).run("stdio")
