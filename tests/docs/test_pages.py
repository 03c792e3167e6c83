"""The code blocks of the README and of the documentation run, in order, and print what the blocks of text after them say."""

from __future__ import annotations

import contextlib
import csv
import doctest
import io
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

sybil = pytest.importorskip("sybil")
from sybil.document import Document  # noqa: E402
from sybil.evaluators.python import PythonEvaluator  # noqa: E402
from sybil.example import Example  # noqa: E402
from sybil.parsers.markdown import CodeBlockParser  # noqa: E402

from inbedder.models.install import find_installed_folder  # noqa: E402

ROOT = Path(__file__).parents[2]
PAGES = sorted([*(ROOT / name / "README.md" for name in (".", "evaluation", "finetune")), *(ROOT / "docs").rglob("*.md")])
NOT_RUN = {
    "pip install": "installs; tests/test_wheel.py does it",
    "scripts/": "installs an environment, or takes hours",
    "python scripts/train/csts_experiments.py": "takes hours",
    "python -m inbedder_evaluation.prompting.few_shot": "asks for a model of the hub",
    "python -m inbedder_finetune.mining TASKS": "asks for tasks that are not shipped",
    "inbedder finetune mini": "asks for data that are not shipped, and takes hours",
    "inbedder finetune RECIPE.yaml": "goes on with a run that was stopped: tests/finetune/",
    "inbedder finetune csts-bi": "takes two minutes: tests/finetune/conditional/",
    "inbedder finetune tests/data/recipes/instructor-tiny.yaml  ": "takes a minute: tests/finetune/contrastive/",
    "inbedder finetune tests/data/recipes/data-cube-tiny.yaml": "takes a minute: tests/finetune/curriculum/",
    "inbedder models install": "downloads; tests/models/test_install.py",
    "torchrun": "asks for four GPUs",
    "docker": "asks for Docker: tests/server/test_container.py",
    "kubectl": "asks for a cluster: tests/server/test_container.py",
    "OTEL_EXPORTER_OTLP_ENDPOINT=": "asks for a collector: tests/server/test_tracing.py",
    "accelerate launch": "asks for GPUs",
    "inbedder embed   huge.parquet": "starts Ray: tests/distributed/",
    "inbedder embed part-000.parquet": "asks for a Ray cluster: tests/distributed/",
    'table = lancedb.connect("s3://': "asks for a bucket",
    'inbedder cluster reviews.csv -i "What went wrong?" --model BrandonZYW/': "asks for a model of the hub",
    "inbedder evaluate --model FOLDER": "asks for a model of the hub",
    "inbedder evaluate --compare FOLDER": "asks for a model of the hub",
    "inbedder evaluate --task csts --data csts_": "asks for the authors' data",
    "inbedder evaluate --data DATA": "asks for data that are not shipped",
    "inbedder evaluate --table": "asks for data that are not shipped",
    "inbedder evaluate --hub": "asks for data of the hub",
    "python -m inbedder_evaluation.mteb.suite": "asks for a model of the hub",
    "from bertopic import": "asks for a package of its own environment: tests/integrations/",
    "from sentence_transformers import": "asks for a model of the hub",
    "from InstructorEmbedding import": "asks for a package that is not installed",
    'model = InBedder("BrandonZYW/': "asks for a model of the hub",
    'model = InBedder("Qwen/': "asks for a model of the hub",
    'model = InBedder("hkunlp/': "asks for a model of the hub",
    'model = ConditionalEncoder.load("runs/csts-bi")': "takes two minutes: tests/conditional/",
}
"""Beginnings of commands, and lines of Python blocks, that a test cannot run, and why."""
LANGUAGES = {"python", "bash", "text", "bibtex", "json"}
ELSEWHERE = ROOT / "docs" / "integrations.md"
"""Its examples need packages of an environment of their own: tests/integrations/test_examples.py."""
FENCE = re.compile(r"^ *```(\S*).*$", re.MULTILINE)


def reason_not_to_run(line: str) -> str | None:
    """Why a line is not run; None where it is."""
    return next((reason for start, reason in NOT_RUN.items() if line.startswith(start)), None)


class Page:
    """What a page's blocks share: what the last one printed, and a server that one may have started."""

    def __init__(self) -> None:
        self.printed = ""
        self.server: subprocess.Popen[bytes] | None = None
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = str(free.getsockname()[1])

    def run_python(self, example: Example) -> None:
        if any(reason_not_to_run(line) for line in example.parsed.splitlines()):
            return
        example.parsed = type(example.parsed)(
            example.parsed.replace("8765", self.port), example.parsed.offset, example.parsed.line_offset
        )
        with contextlib.redirect_stdout(io.StringIO()) as stdout:
            PythonEvaluator()(example)
        self.printed = stdout.getvalue()

    def run_commands(self, example: Example) -> None:
        self.printed = ""
        for line in example.parsed.replace("\\\n", " ").splitlines():
            if line.strip() and not line.startswith("#") and not reason_not_to_run(line):
                self.run_command(line.replace("8765", self.port))

    def run_command(self, line: str) -> None:
        words = shlex.split(line, comments=True)
        if words[0] == "inbedder" and words[-1] != "&":
            from inbedder.cli.app import app

            with contextlib.redirect_stdout(io.StringIO()) as stdout:
                app(words[1:], standalone_mode=False)
            self.printed += stdout.getvalue()
        elif words[0] == "inbedder":
            self.start_server(words[1:-1])
        else:
            process = subprocess.run(["bash", "-euo", "pipefail", "-c", line], capture_output=True, text=True)
            assert process.returncode == 0, f"{line}\n{process.stdout}{process.stderr}"
            self.printed += process.stdout

    def start_server(self, words: list[str]) -> None:
        environment = os.environ | {"INBEDDER_PORT": self.port, "PYTHONPATH": str(ROOT)}
        self.server = subprocess.Popen([sys.executable, "-m", "inbedder", *words], env=environment)
        for _ in range(600):
            with contextlib.suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{self.port}/health", timeout=5):
                return
            assert self.server.poll() is None, "The server ended."
            time.sleep(0.5)
        raise TimeoutError("The server was not ready in five minutes.")

    def compare(self, example: Example) -> str | None:
        checker, flags = doctest.OutputChecker(), doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
        if checker.check_output(example.parsed, self.printed, flags):
            return None
        return f"Expected:\n{example.parsed}\nPrinted:\n{self.printed}"

    def parse(self, path: Path) -> Document:
        evaluators = {"python": self.run_python, "bash": self.run_commands, "text": self.compare}
        return sybil.Sybil([CodeBlockParser(*pair) for pair in evaluators.items()]).parse(path)

    def close(self) -> None:
        if self.server is not None:
            self.server.send_signal(signal.SIGTERM)
            self.server.wait(60)


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the repository's own and with the files that the pages speak of, made of real reviews."""
    for name in ("docs", "evaluation", "finetune", "inbedder", "prompts", "scripts", "tests"):
        (tmp_path / name).symlink_to(ROOT / name)
    with open(ROOT / "inbedder" / "demo_texts" / "reviews.csv", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))[:80]
    products = ("lamp", "kettle", "tent", "phone")
    for number, row in enumerate(rows):
        row |= {"stars": 5 if row["polarity"] == "positive" else 1, "date": f"2026-{1 + number % 3:02}-{1 + number % 28:02}"}
        row |= {"product": products[number % 4], "country": ("DE", "FR")[number % 2]}
    for name, table in (("reviews.csv", rows), ("new.csv", rows[60:])):
        with open(tmp_path / name, "w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]))
            writer.writeheader()
            writer.writerows(table)
    question_rows = "".join(f"{product},What is bought?,{product}\n" for product in products)
    (tmp_path / "own.csv").write_text(f"context,question,answer\n{question_rows}", encoding="utf-8")
    (tmp_path / "texts.txt").write_text("\n".join(row["text"] for row in rows), encoding="utf-8")
    (tmp_path / "categories.csv").write_text(
        "category,example\nfood,Great tacos!\nservice,Our waiter was rude.\nplace,\n", "utf-8"
    )
    (tmp_path / "letters.csv").write_text('text\n"It came late. The box was crushed."\n"Nobody answered. It broke."\n', "utf-8")
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    book.active.append(["title", "body", "country"])
    for row in rows[:40]:
        book.active.append([row["product"], row["text"], row["country"]])
    book.save(tmp_path / "tickets.xlsx")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def page() -> Iterator[Page]:
    fresh_page = Page()
    yield fresh_page
    fresh_page.close()


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def pages_with_blocks() -> list[Path]:
    return [path for path in PAGES if path != ELSEWHERE and FENCE.search(path.read_text(encoding="utf-8"))]


@pytest.mark.slow
@pytest.mark.parametrize("path", pages_with_blocks(), ids=name_of)
def test_the_code_blocks_run_and_print_what_the_page_says(path, page, workplace):
    if 'InBedder("multilingual"' in path.read_text(encoding="utf-8") and find_installed_folder("multilingual-e5-small") is None:
        pytest.skip("inbedder models install multilingual")
    for example in page.parse(path).examples():
        example.evaluate()


@pytest.mark.parametrize("path", PAGES, ids=name_of)
def test_every_block_is_of_a_language_that_is_run(path):
    fences = FENCE.findall(path.read_text(encoding="utf-8"))
    assert set(fences[::2]) <= LANGUAGES
    assert set(fences[1::2]) <= {""}


def test_no_reason_not_to_run_is_left_over():
    lines = [line for path in PAGES for line in path.read_text(encoding="utf-8").splitlines()]
    assert [start for start in NOT_RUN if not any(line.startswith(start) for line in lines)] == []


def test_a_block_that_prints_something_else_fails(page, tmp_path):
    (tmp_path / "page.md").write_text("```python\nprint(1)\n```\n\n```text\n2\n```\n", encoding="utf-8")
    with pytest.raises(Exception, match="Expected"):
        for example in page.parse(tmp_path / "page.md").examples():
            example.evaluate()
