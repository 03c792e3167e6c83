"""Hooks of mkdocs: pages that are kept elsewhere in the repository, and the reference of the command line, join those of docs/.

The site mirrors the repository: a page keeps its path, so that its links work here and there. Only docs/ itself is left out of
paths, and links of its pages that lead out of it lose one ``../``.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
COMMAND_LINE = "reference/command-line.md"
LINK = re.compile(r"(!?\[[^\]]*\]\()((?:\.\./)+)")


def command_line_reference() -> str:
    """Every command with its arguments and options, as typer describes them, in Markdown."""
    import typer
    from typer.cli import get_docs_for_click

    from inbedder.cli.app import app

    command = typer.main.get_command(app)
    return get_docs_for_click(obj=command, ctx=typer.Context(command), name="inbedder", title="Command line")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Add pages of docs/ that the navigation does not name."""
    named = set(_paths(config.nav))
    docs = Path(config.docs_dir)
    pages = sorted(path.relative_to(docs).as_posix() for path in docs.rglob("*.md"))
    config.nav = [*(config.nav or []), *(page for page in pages if page not in named)]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the command line's reference, and what the navigation names and docs/ does not hold, with the pictures beside it."""
    files.append(File.generated(config, COMMAND_LINE, content=command_line_reference()))
    for path in _paths(config.nav):
        if files.get_file_from_path(path) is None:
            files.append(File.generated(config, path, abs_src_path=str(ROOT / path)))
            text = (ROOT / path).read_text(encoding="utf-8")
            for picture in re.findall(r"!\[[^\]]*\]\(([^):]+)\)", text):
                place = ((ROOT / path).parent / picture).resolve()
                files.append(File.generated(config, place.relative_to(ROOT).as_posix(), abs_src_path=str(place)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Let links of docs/ to other files of the repository lead to their pages."""
    if not (Path(config.docs_dir) / page.file.src_uri).exists():
        return markdown
    depth = page.file.src_uri.count("/")
    return LINK.sub(lambda found: found[1] + "../" * min(found[2].count("../"), depth), markdown)


def _paths(nav: Any) -> list[str]:
    """The pages that a navigation names."""
    if isinstance(nav, str):
        return [nav]
    parts = nav.values() if isinstance(nav, dict) else nav or []
    return [path for part in parts for path in _paths(part)]
