"""The how-tos that are notebooks run as notebooks, from beginning to end."""

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
jupytext = pytest.importorskip("jupytext")
nbclient = pytest.importorskip("nbclient")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ask-good-questions", "group-reviews"])
def test_the_how_to_runs_as_a_notebook(name, monkeypatch, tmp_path):
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    notebook = jupytext.read(ROOT / "docs" / "how-to" / f"{name}.md")
    executed = nbclient.NotebookClient(notebook, timeout=1200, kernel_name="python3").execute(cwd=str(tmp_path))
    cells = [cell for cell in executed.cells if cell.cell_type == "code"]
    assert len(cells) >= 4
    assert all(cell.execution_count for cell in cells)
