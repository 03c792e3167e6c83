"""What a command leaves out when it imports transformers, each in a process of its own."""

import subprocess
import sys

import pytest

PLACEHOLDERS = ("torch._dynamo", "lance_namespace")
SEARCH = """
import sys
from pathlib import Path
sys.argv = ["inbedder", "search", sys.argv[1], "cats", "-k", "1", "--json"]
from inbedder import cli
try:
    cli.main()
except SystemExit:
    pass
print([name for name in sys.modules if name.startswith(("lance_namespace", "torch._dynamo", "sklearn"))])
"""
UNUSED = ("torch.distributed.tensor", "torch._inductor", "scipy.optimize", "sklearn")
LOAD = """
import sys
from inbedder.cli.light_imports import skip_unused_imports
with skip_unused_imports():
    from inbedder.embedder import InBedder
    model = InBedder(sys.argv[1])
"""


def run(code, *arguments):
    result = subprocess.run([sys.executable, "-c", code, *map(str, arguments)], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    return result.stdout


@pytest.mark.parametrize("kind", ["bert", "opt", "t5"])
def test_a_model_is_loaded_without_unused_modules(make_model, kind):
    code = LOAD + f"print([name for name in {(*PLACEHOLDERS, *UNUSED)} if name in sys.modules])"
    assert run(code, make_model(kind)) == "[]\n"


@pytest.mark.parametrize("kind", ["bert", "opt", "t5"])
def test_vectors_and_answers_are_those_of_a_full_import(make_model, kind):
    code = "print(model.encode(['one', 'two words'], 'What is it?').tolist(), model.answer(['one'], 'What is it?'))"
    full = "import sys\nfrom inbedder import InBedder\nmodel = InBedder(sys.argv[1])\n"
    assert run(LOAD + code, make_model(kind)) == run(full + code, make_model(kind))


def test_the_compiler_can_be_imported_afterwards(make_model):
    code = LOAD + "import torch\nprint(torch.compile(lambda x: x + 1, backend='eager')(torch.zeros(1)).item())"
    assert run(code, make_model("bert")) == "1.0\n"


def test_a_placeholder_that_is_called_later_is_the_real_one(make_model):
    code = LOAD + (
        "import transformers.masking_utils as used\n"
        "with used.TransformGetItemToIndex(): print(type(used.TransformGetItemToIndex()).__module__)"
    )
    assert run(code, make_model("bert")) == "torch._dynamo._trace_wrapped_higher_order_op\n"


def test_nothing_is_left_out_if_transformers_is_imported_already(make_model):
    code = "import transformers.modeling_utils\n" + LOAD + "print('torch._dynamo' in sys.modules)"
    assert run(code, make_model("bert")) == "True\n"


def test_a_variable_switches_to_full_imports(make_model, monkeypatch):
    monkeypatch.setenv("INBEDDER_FULL_IMPORTS", "1")
    assert run(LOAD + "print('torch._dynamo' in sys.modules)", make_model("bert")) == "True\n"


def test_an_import_that_fails_names_the_variable():
    code = "with skip_unused_imports():\n    import transformers\n    transformers.no_such_name"
    with pytest.raises(AssertionError, match=r"ModelError: .*INBEDDER_FULL_IMPORTS=1"):
        run("from inbedder.cli.light_imports import skip_unused_imports\n" + code)


def test_a_search_imports_no_client_of_web_services(make_model, tmp_path):
    pytest.importorskip("lancedb")
    from inbedder import InBedder
    from inbedder.search import Index

    Index.create(tmp_path / "index", [{"id": 1, "text": "I love cats"}], InBedder(make_model("bert")))
    result, modules = run(SEARCH, tmp_path / "index").splitlines()
    assert "I love cats" in result
    assert modules == "[]"
