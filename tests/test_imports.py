"""The import direction of the drawn house, kept by reading the imports."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import inbedder

ROOT = Path(__file__).parents[1]
LEVELS = [
    {"errors", "vectors"},
    {"files", "prompting", "batching", "pooling", "store", "transform"},
    {"tokenization", "models"},
    {"backbones", "running"},
    {"biencoder", "reencode"},
    {"prompt_encoder"},
    {"embedder", "tables"},
    {"explain", "jobs", "options", "titles"},
    {"clustering", "raydata"},
    {"report", "distributed", "commands", "model_commands"},
    {"cli"},
    {"__main__"},
]
LEVEL = {name: level for level, names in enumerate(LEVELS) for name in names}


def imported(path, *, top_only=False):
    """Dotted names that a file imports, those for type checkers left out."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    guarded = {
        id(node)
        for branch in ast.walk(tree)
        if isinstance(branch, ast.If) and "TYPE_CHECKING" in ast.unparse(branch.test)
        for node in ast.walk(branch)
    }
    nodes = tree.body if top_only else ast.walk(tree)
    for node in nodes:
        if id(node) in guarded:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module


@pytest.mark.parametrize("path", sorted((ROOT / "inbedder").rglob("*.py")), ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_point_down(path):
    parts = path.relative_to(ROOT / "inbedder").with_suffix("").parts
    if parts == ("__init__",):
        return
    own = LEVEL[parts[0]]
    rooms = {name.split(".")[1] for name in imported(path) if name.startswith("inbedder.")} - {parts[0]}
    if parts == ("clustering",):
        rooms.discard("report")  # save_html reaches up, when it is called
        assert "inbedder.grouping.report.page" not in set(imported(path, top_only=True))
    assert all(LEVEL[room] < own for room in rooms), rooms


@pytest.mark.parametrize("path", sorted((ROOT / "inbedder").rglob("*.py")), ids=lambda path: str(path.relative_to(ROOT)))
def test_the_library_reaches_training_from_the_command_line_alone(path):
    outside = {name for name in imported(path) if name.split(".")[0] in ("finetune", "evaluation")}
    assert not outside or path.name == "commands.py"
    assert not {name for name in imported(path, top_only=True) if name.split(".")[0] in ("finetune", "evaluation")}


def test_importing_the_package_is_cheap_and_names_are_lazy():
    code = "import sys, inbedder; assert 'torch' not in sys.modules; inbedder.InBedder; assert 'torch' in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)
    assert len(inbedder.__all__) <= 15
    assert all(getattr(inbedder, name) is not None for name in inbedder.__all__)


def test_public_names_stay_what_they_are_whatever_was_imported_before():
    code = "import inbedder.grouping.report.page; from inbedder import ClusterResult, cluster; assert callable(cluster)"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)


def test_no_file_is_longer_than_four_hundred_lines():
    files = [
        path for folder in ("inbedder", "finetune", "evaluation", "scripts", "tests") for path in (ROOT / folder).rglob("*.py")
    ]
    long = {str(path): count for path in files if (count := len(path.read_text(encoding="utf-8").splitlines())) > 400}
    assert not long


def test_no_function_is_longer_than_sixty_lines():
    files = [path for folder in ("inbedder", "finetune", "evaluation", "scripts") for path in (ROOT / folder).rglob("*.py")]
    for path in files:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef) and ast.get_docstring(node) is not None:
                documented = node.body[0].end_lineno - node.body[0].lineno + 1
                assert node.end_lineno - node.lineno + 1 - documented <= 60, f"{path}: {node.name}"
