"""Importing inbedder is cheap, its documented names stay where they are, and no symbolic link is tracked."""

import subprocess
import sys
from pathlib import Path

import inbedder

ROOT = Path(__file__).parents[1]


def test_documented_names_stay_importable():
    from inbedder.cli import main
    from inbedder.distributed import embed_job
    from inbedder_finetune.conditional import ConditionalEncoder
    from inbedder_finetune.contrastive import finetune, load_training_pairs
    from inbedder_finetune.curriculum import arrange, order_tasks

    assert all(
        callable(one) for one in (ConditionalEncoder.load, finetune, load_training_pairs, arrange, order_tasks, main, embed_job)
    )


def test_no_symbolic_link_is_tracked():
    process = subprocess.run(["git", "ls-files", "-s"], cwd=ROOT, capture_output=True, text=True, check=False).stdout
    assert not [line for line in process.splitlines() if line.startswith("120000")]


def test_no_module_is_long_or_has_a_name_that_says_nothing():
    folders = ("inbedder", "finetune/inbedder_finetune", "evaluation/inbedder_evaluation", "tests", "scripts")
    paths = [path for folder in folders for path in (ROOT / folder).rglob("*.py")]
    assert len(paths) > 300
    assert [str(path) for path in paths if path.stem in ("utils", "helpers", "common")] == []
    assert [str(path) for path in paths if len(path.read_text(encoding="utf-8").splitlines()) > 700] == []


def test_importing_the_package_is_cheap_and_names_are_lazy():
    code = "import sys, inbedder; assert 'torch' not in sys.modules; inbedder.InBedder; assert 'torch' in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)
    assert all(getattr(inbedder, name) is not None for name in inbedder.__all__)


def test_the_reference_documents_every_public_name():
    page = (ROOT / "docs" / "reference" / "python.md").read_text(encoding="utf-8")
    documented = {line.rpartition(".")[2] for line in page.splitlines() if line.startswith("::: ")}
    assert [name for name in inbedder.__all__ if name != "__version__" and name not in documented] == []


def test_public_names_stay_what_they_are_whatever_was_imported_before():
    code = "import inbedder.grouping.report.page; from inbedder import ClusterResult, cluster; assert callable(cluster)"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)
