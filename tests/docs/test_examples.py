"""Every example in a docstring runs and prints what it shows, and every public name has an example."""

import doctest
import importlib
import inspect
import io
from pathlib import Path

import pytest

import inbedder
from inbedder.errors import MissingExtraError

ROOT = Path(__file__).parents[2]
SOURCES = {"inbedder": ROOT, "inbedder_finetune": ROOT / "finetune", "inbedder_evaluation": ROOT / "evaluation"}
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
SLOW_MODULES = {"inbedder.distributed.job"}
"""Modules whose examples start Ray."""
INTERNAL_METHODS = {"from_pipeline"}
"""Public methods of InBedder that only other packages of this repository call."""


def list_modules():
    """List the modules whose source contains an example."""
    paths = [(path, folder) for package, folder in SOURCES.items() for path in sorted((folder / package).rglob("*.py"))]
    names = (path.relative_to(folder).with_suffix("").parts for path, folder in paths if ">>> " in path.read_text("utf-8"))
    modules = [".".join(parts).removesuffix(".__init__") for parts in names]
    return [pytest.param(name, marks=pytest.mark.slow) if name in SLOW_MODULES else name for name in modules]


class ExampleRunner(doctest.DocTestRunner):
    """Runs examples, and skips those that need a package that is not installed."""

    def report_unexpected_exception(self, write, test, example, exc_info):
        if issubclass(exc_info[0], (MissingExtraError, ModuleNotFoundError)):
            pytest.skip(str(exc_info[1]))
        super().report_unexpected_exception(write, test, example, exc_info)


@pytest.mark.parametrize("name", list_modules())
def test_examples_of_a_module_run(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    try:
        module = importlib.import_module(name)
    except (ModuleNotFoundError, MissingExtraError) as error:
        pytest.skip(str(error))
    examples = doctest.DocTestFinder(exclude_empty=True).find(module)
    report = io.StringIO()
    runner = ExampleRunner(optionflags=FLAGS)
    for example in examples:
        runner.run(example, out=report.write)
    assert examples and not runner.failures, report.getvalue()


def list_public_objects():
    """List what users import from inbedder, and the methods of InBedder that they call."""
    objects = {name: getattr(inbedder, name) for name in inbedder.__all__ if name != "__version__"}
    methods = {name: value for name, value in inspect.getmembers(inbedder.InBedder, callable) if not name.startswith("_")}
    return objects | {f"InBedder.{name}": method for name, method in methods.items() if name not in INTERNAL_METHODS}


def test_every_public_name_has_an_example():
    missing = [name for name, value in list_public_objects().items() if ">>> " not in (inspect.getdoc(value) or "")]
    assert missing == []
