"""What a terminal and a notebook display of a public object: no address, and no text of a corpus as HTML."""

import importlib
import inspect
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

import inbedder
from inbedder.conditional.config import Encoding
from inbedder.grouping.document_parts import split_documents
from inbedder.grouping.questions.suggestion import suggest_questions
from inbedder.io.html_tables import MAX_CHARACTERS, MAX_COLUMNS, MAX_ROWS, render_html_table
from inbedder.options import Reencoding

ROOT = Path(__file__).parents[1]
ADDRESS = re.compile(r"\bat 0x[0-9a-f]+")
HOSTILE = "<script>alert('x')</script> & <img src=x>"
TEXTS = [f"I love cats {HOSTILE} text {number}" for number in range(20)]
QUESTIONS = ["What is <b>it</b> about?", "What is the topic?"]
CATEGORIES = {"<i>pets</i>": ["cats"], "post": ["parcels"]}
ALLOWED_TAGS = {"div", "p", "table", "thead", "tbody", "tr", "th", "td", "br"}
DISPLAYED_AS_HTML = ("result", "tables", "comparison", "grouping", "classification")


@pytest.fixture(scope="module")
def public_objects(make_model, tmp_path_factory):
    """Make an instance of every public class."""
    search = pytest.importorskip("inbedder.search")
    pytest.importorskip("lancedb")
    folder = tmp_path_factory.mktemp("objects")
    model = inbedder.InBedder(make_model("bert"))
    result = inbedder.cluster(TEXTS, QUESTIONS[0], model, k=2)
    result.save(folder / "groups")
    grouping = inbedder.Grouping.load(folder / "groups", model)
    return {
        "model": model,
        "options": model.options,
        "spec": model.spec,
        "template": inbedder.PromptTemplate(name="own", pattern="{input} {instruction}"),
        "error": inbedder.InbedderError("no"),
        "result": result,
        "tables": inbedder.crosstab(result, {HOSTILE: [HOSTILE, "b"] * 10}),
        "comparison": inbedder.compare_wordings(TEXTS, QUESTIONS, model, k=2),
        "grouping": grouping,
        "assignment": grouping.assign(TEXTS[:2]),
        "classification": inbedder.classify(TEXTS, QUESTIONS[0], CATEGORIES, model=model, labels=["post"] * 20),
        "suggestions": suggest_questions(TEXTS, QUESTIONS, model),
        "parts": split_documents(TEXTS, 2),
        "guided": model.encode_guided(TEXTS, QUESTIONS[0]),
        "index": search.Index.create(folder / "index", TEXTS, model),
        "conditional": inbedder.ConditionalEncoder.of_base(make_model("bert"), Encoding()),
        "codebook": inbedder.Codebook.of(result, model),
        "reencoding": Reencoding(),
    }


def iterate_objects(value, path, visited_ids):
    """Iterate over an object and everything that it exposes; what a model is made of is not public."""
    if id(value) in visited_ids:
        return
    visited_ids.add(id(value))
    yield path, value
    if isinstance(value, (list, tuple, dict)):
        children = value.items() if isinstance(value, dict) else enumerate(value)
    elif type(value).__module__.startswith("inbedder") and not isinstance(
        value, (inbedder.InBedder, inbedder.ConditionalEncoder, Exception)
    ):
        names = [name for name in dir(type(value)) if isinstance(inspect.getattr_static(value, name), property)]
        children = [(name, getattr(value, name)) for name in [*vars(value), *names] if not name.startswith("_")]
    else:
        return
    for name, child in children:
        yield from iterate_objects(child, f"{path}.{name}", visited_ids)


def list_public_classes():
    """List the classes of ``inbedder.__all__`` and of the reference."""
    names = re.findall(r"^::: ([\w.]+)$", (ROOT / "docs" / "reference" / "python.md").read_text("utf-8"), re.MULTILINE)
    documented = [getattr(importlib.import_module(module), name) for module, _, name in (each.rpartition(".") for each in names)]
    exported = [getattr(inbedder, name) for name in inbedder.__all__]
    return {value for value in (*documented, *exported) if inspect.isclass(value)}


def test_no_public_object_is_displayed_as_an_address(public_objects):
    objects = dict(iterate_objects(public_objects, "", set()))
    assert {path: repr(value) for path, value in objects.items() if ADDRESS.search(repr(value))} == {}
    missing = [each for each in list_public_classes() if not any(isinstance(value, each) for value in objects.values())]
    assert missing == []


class TagLister(HTMLParser):
    def __init__(self):
        super().__init__()
        self.tags, self.text = set(), ""

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)

    def handle_data(self, data):
        self.text += data


@pytest.mark.parametrize("name", DISPLAYED_AS_HTML)
def test_a_notebook_displays_a_table_in_which_texts_are_escaped(public_objects, name):
    value = public_objects[name][0] if name == "tables" else public_objects[name]
    lister = TagLister()
    lister.feed(value._repr_html_())
    assert {"table", "td"} <= lister.tags <= ALLOWED_TAGS
    hostile = CATEGORIES if name == "classification" else QUESTIONS if name == "comparison" else [HOSTILE]
    assert all(text in lister.text for text in hostile)


def test_a_long_table_is_cut_and_says_so():
    rows = [["x" * 1000, *range(MAX_COLUMNS)]] * (MAX_ROWS + 3)
    lister = TagLister()
    html = render_html_table("Long", ["name", *map(str, range(MAX_COLUMNS))], rows)
    lister.feed(html)
    assert html.count("<tr>") == MAX_ROWS + 1
    assert "3 more rows and 1 more columns" in lister.text
    assert max(map(len, lister.text.split("…"))) <= MAX_CHARACTERS + MAX_ROWS
    assert "1 more" not in render_html_table("Short", ["name"], [["a"]] * MAX_ROWS)
