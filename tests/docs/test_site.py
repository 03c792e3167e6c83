"""The site holds what the repository holds: no dead link, every page in the navigation, every command in the reference."""

import importlib.util
import re
import subprocess
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import unquote

import pytest
import yaml

ROOT = Path(__file__).parents[2]
LINK = re.compile(r"\]\(([^)\s]+)\)")
CODE = re.compile(r"```.*?```|`[^`\n]*`", re.DOTALL)
SKIPPED = {".git", ".venv", "node_modules", "site", "runs", "build", "dist"}


def markdown_files() -> list[Path]:
    try:
        listed = subprocess.run(["git", "ls-files", "*.md"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    except (OSError, subprocess.CalledProcessError):
        paths = (path.relative_to(ROOT) for path in ROOT.rglob("*.md"))
        listed = [str(path) for path in paths if not any(part in SKIPPED or part.startswith(".venv") for part in path.parts)]
    return [ROOT / name for name in listed if (ROOT / name).is_file()]


def anchors(path: Path) -> set[str]:
    """What a page's headings are called in links."""
    headings = re.findall(r"^#+ +(.*)$", CODE.sub("", path.read_text(encoding="utf-8")), re.MULTILINE)
    return {re.sub(r"\s+", "-", re.sub(r"[^\w\s-]", "", heading.lower()).strip()) for heading in headings}


@pytest.mark.parametrize("path", markdown_files(), ids=lambda path: str(path.relative_to(ROOT)))
def test_no_link_is_dead(path):
    for link in LINK.findall(CODE.sub("", path.read_text(encoding="utf-8"))):
        if link.startswith(("https:", "http:", "mailto:")):
            continue
        name, _, anchor = unquote(link).partition("#")
        target = (path.parent / name).resolve() if name else path
        assert target.exists(), f"{link} leads nowhere."
        if anchor:
            assert anchor in anchors(target), f"{link}: {target.name} has no such heading."


@pytest.fixture(scope="module")
def site_pages():
    pytest.importorskip("mkdocs")
    spec = importlib.util.spec_from_file_location("site_pages", ROOT / "scripts" / "dev" / "site_pages.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def config():
    config_module = pytest.importorskip("mkdocs.config")
    return config_module.load_config(str(ROOT / "mkdocs.yml"))


def test_every_page_of_docs_is_in_the_navigation(site_pages, config):
    pages = site_pages._list_paths(site_pages.on_config(config).nav)
    assert {str(path.relative_to(ROOT / "docs")) for path in (ROOT / "docs").rglob("*.md")} <= set(pages)
    assert len(pages) == len(set(pages))


def test_what_the_navigation_names_is_there(site_pages):
    nav = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))["nav"]
    for path in site_pages._list_paths(nav):
        assert path == site_pages.COMMAND_LINE or (ROOT / "docs" / path).exists() or (ROOT / path).exists(), path


def test_the_reference_shows_every_command(site_pages):
    text = site_pages.render_command_line()
    for command in "embed answer cluster assign compare-wordings cache serve search finetune evaluate".split():
        assert f"`inbedder {command}`" in text
    assert "--instruction" in text


@pytest.mark.parametrize(
    ("url", "link"), [("reference/python/", "../../options/"), ("faq/", "../options/"), ("CONTRIBUTING/", "../options/")]
)
def test_the_options_page_is_linked_by_its_path(site_pages, url, link):
    page = SimpleNamespace(url=url)
    files = SimpleNamespace(get_file_from_path=lambda _path: SimpleNamespace(url="options/"))
    html = site_pages.on_page_content("<p><code>docs/options.md</code></p>", page, None, files)
    assert html == f'<p><a href="{link}"><code>docs/options.md</code></a></p>'


def test_the_site_holds_data_that_a_page_links_to(site_pages):
    linked_files = {
        path.relative_to(ROOT).as_posix()
        for path in site_pages._list_linked_files(ROOT / "docs" / "concepts" / "how-it-works.md")
    }
    assert {"docs/pictures/two_questions.png", "evaluation/results/poolings.png"} <= linked_files


@pytest.mark.parametrize(
    ("page", "link", "expected"),
    [
        ("faq.md", "../SECURITY.md", "SECURITY.md"),
        ("how-to/measure.md", "../../finetune/README.md", "../finetune/README.md"),
        ("how-to/measure.md", "../faq.md", "../faq.md"),
        ("finetune/README.md", "../docs/recipes.md", "../recipes.md"),
        ("CONTRIBUTING.md", "docs/faq.md", "faq.md"),
    ],
)
def test_links_across_docs_lead_to_the_pages_of_the_site(site_pages, config, page, link, expected):
    files = pytest.importorskip("mkdocs.structure.files")
    site_page = SimpleNamespace(file=files.File(page, config.docs_dir, config.site_dir, True))
    assert site_pages.on_page_markdown(f"[here]({link})", site_page, config, None) == f"[here]({expected})"


def test_an_adapter_that_the_page_does_not_name_brings_its_docstring(site_pages, tmp_path):
    page = (ROOT / "docs" / "integrations.md").read_text(encoding="utf-8")
    assert site_pages.describe_integrations(page) == page  # all of today's are named
    (tmp_path / "milvus.py").write_text('"""For Milvus: an embedder."""\n')
    assert site_pages.describe_integrations(page, tmp_path).endswith("```text\nFor Milvus: an embedder.\n```\n")
