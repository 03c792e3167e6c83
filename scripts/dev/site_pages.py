"""Hooks of mkdocs: add pages from outside docs/, and generate the reference of the command line.

The site mirrors the repository: a page keeps its path, so that its links work in both. Only docs/ is dropped from paths: links of
its pages to other folders lose one ``../``, and links of other pages to docs/ lose that name.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from griffe import Extension, Object
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from mkdocs.utils import get_relative_url

ROOT = Path(__file__).resolve().parents[2]
COMMAND_LINE = "reference/command-line.md"
OPTIONS = "options.md"
OPTIONS_PATH_IN_TEXT = f"<code>docs/{OPTIONS}</code>"
"""How docstrings name the options page."""
LINK = re.compile(r"(!?\[[^\]]*\]\()((?:\.\./)+)")
LINK_TO_DOCS = re.compile(r"(!?\[[^\]]*\]\((?:\.\./)*)docs/")
LINK_TARGET = re.compile(r"\]\(([^):#]+)\)")
EXAMPLE_SECTION = re.compile(r"^Example:$", re.MULTILINE)


class ExampleSections(Extension):
    """Show the section ``Example:`` of docstrings as code."""

    def on_instance(self, *, obj: Object, **_: Any) -> None:
        """Rename the section to the one that griffe parses as code."""
        if obj.docstring is not None:
            obj.docstring.value = EXAMPLE_SECTION.sub("Examples:", obj.docstring.value)


def render_command_line() -> str:
    """Render the reference of all commands with their arguments and options, in Markdown."""
    import typer
    from typer.cli import get_docs_for_click

    from inbedder.cli.app import app

    command: Any = typer.main.get_command(app)
    return get_docs_for_click(obj=command, ctx=typer.Context(command), name="inbedder", title="Command line")


def describe_integrations(page: str, folder: Path = ROOT / "inbedder" / "integrations") -> str:
    """Add the docstrings of adapters that a page does not name, so that a new adapter brings its own documentation."""
    for path in sorted(folder.glob("*.py")):
        docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
        is_named = f"inbedder.integrations.{path.stem}" in page or f"## {path.stem.replace('_', '-')}\n" in page
        if path.stem not in ("__init__", "shared_models") and not is_named:
            page += f"\n## {path.stem}\n\n`inbedder.integrations.{path.stem}`\n\n```text\n{docstring}\n```\n"
    return page


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Add pages of docs/ that the navigation does not name, and the version to the footer."""
    from inbedder import __version__

    config.copyright = f"inbedder {__version__} · Apache-2.0"
    pages_in_nav = set(_list_paths(config.nav))
    docs = Path(config.docs_dir)
    pages = sorted(path.relative_to(docs).as_posix() for path in docs.rglob("*.md"))
    config.nav = [*(config.nav or []), *(page for page in pages if page not in pages_in_nav)]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the reference of the command line, pages from outside docs/, and the pictures and data that pages link to."""
    files.append(File.generated(config, COMMAND_LINE, content=render_command_line()))
    pages = [*Path(config.docs_dir).rglob("*.md")]
    for path in _list_paths(config.nav):
        if files.get_file_from_path(path) is None:
            files.append(File.generated(config, path, abs_src_path=str(ROOT / path)))
            pages.append(ROOT / path)
    for linked_file in {linked_file for page in pages for linked_file in _list_linked_files(page)}:
        path = linked_file.relative_to(ROOT).as_posix().removeprefix("docs/")
        if files.get_file_from_path(path) is None:
            files.append(File.generated(config, path, abs_src_path=str(linked_file)))
    return files


def _list_linked_files(page: Path) -> Iterator[Path]:
    """List the files of the repository, other than pages, that a page links to."""
    for target in LINK_TARGET.findall(page.read_text(encoding="utf-8")):
        path = (page.parent / target).resolve()
        if path.is_file() and path.is_relative_to(ROOT) and path.suffix != ".md":
            yield path


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Rewrite links from docs/ to other folders, and from these to docs/."""
    if page.file.src_uri == "integrations.md":
        markdown = describe_integrations(markdown)
    if not (Path(config.docs_dir) / page.file.src_uri).exists():
        return LINK_TO_DOCS.sub(r"\1", markdown)
    depth = page.file.src_uri.count("/")
    return LINK.sub(lambda match: match[1] + "../" * min(match[2].count("../"), depth), markdown)


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Link the options page where docstrings name it."""
    options_page = files.get_file_from_path(OPTIONS)
    assert options_page is not None
    url = get_relative_url(options_page.url, page.url)
    return html.replace(OPTIONS_PATH_IN_TEXT, f'<a href="{url}">{OPTIONS_PATH_IN_TEXT}</a>')


def _list_paths(nav: Any) -> list[str]:
    """List the pages that a navigation names."""
    if isinstance(nav, str):
        return [nav]
    parts = nav.values() if isinstance(nav, dict) else nav or []
    return [path for part in parts for path in _list_paths(part)]
