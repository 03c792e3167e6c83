import json
import shutil

import pytest

from inbedder_finetune.answering import examples as examples_module
from inbedder_finetune.answering.answering_recipe import parse_recipe
from inbedder_finetune.answering.example_cache import compute_cache_key, load_examples
from inbedder_finetune.answering.plan import resolve_plan
from inbedder_finetune.answering.qa_rows import load_rows
from inbedder_finetune.answering.trainable_families import make_examples
from tests.conftest import TOKENIZERS


@pytest.fixture
def folder(tmp_path):
    rows = [
        {"input": f"I love cats {i}", "instruction": "Which animals?", "output": "Cats" if i % 2 else "dogs"} for i in range(9)
    ]
    (tmp_path / "qa.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return tmp_path


def plan(folder, data=None, **settings):
    return resolve_plan(recipe(folder, data, **settings))


def recipe(folder, data=None, **settings):
    data = {"folder": str(folder), "sources": ["qa.jsonl"], "cache": str(folder / "cache"), **(data or {})}
    return parse_recipe({"model": "m", "max_length": 96, "data": data, **settings})


def test_cached_examples_equal_the_tokenized_ones(folder, monkeypatch):
    tokenizer = TOKENIZERS["byte-level"]()
    rows = load_rows(recipe(folder).data)
    direct = make_examples("causal", tokenizer, rows, plan(folder).answer_format)
    first = load_examples("causal", tokenizer, rows, plan(folder).answer_format, plan(folder).data.cache)
    monkeypatch.setattr("inbedder_finetune.answering.example_cache.make_examples", None)
    second = load_examples("causal", tokenizer, rows, plan(folder).answer_format, plan(folder).data.cache)
    for example, one, two in zip(direct, first, second, strict=True):
        assert one["input_ids"].tolist() == two["input_ids"].tolist() == example["input_ids"].tolist()
        assert one["labels"].tolist() == example["labels"].tolist()
        assert int(one["length"]) == len(example["input_ids"])
    assert [int(one["text"]) for one in second] == list(range(9))
    assert {int(one["question"]) for one in second} == {0}


def test_without_a_cache_examples_are_the_same(folder):
    tokenizer = TOKENIZERS["roberta"]()
    rows = load_rows(recipe(folder).data)
    cached = load_examples("masked", tokenizer, rows, plan(folder).answer_format, plan(folder).data.cache)
    uncached = load_examples("masked", tokenizer, rows, plan(folder).answer_format, None)
    assert [one["input_ids"].tolist() for one in cached] == [one["input_ids"].tolist() for one in uncached]


def compute_key(folder, kind="masked", tokenizer="roberta", **change):
    settings = recipe(folder, **change)
    rows = load_rows(settings.data, settings.training.seed)
    return compute_cache_key(kind, TOKENIZERS[tokenizer](), rows, resolve_plan(settings).answer_format)


@pytest.mark.parametrize(
    "change",
    [
        {"max_length": 80},
        {"mask_length": 5},
        {"max_answer_tokens": 7},
        {"template": "alpaca"},
        {"data": {"sources": [{"path": "qa.jsonl", "cap": 3}]}},
        {"data": {"sources": [{"path": "qa.jsonl", "instructions": ["Who?"]}]}},
        {"kind": "causal"},
        {"tokenizer": "wordpiece"},
    ],
)
def test_what_changes_the_examples_changes_the_key(folder, change):
    assert compute_key(folder, **change) != compute_key(folder)


def test_rows_and_code_change_the_key_but_the_folder_does_not(folder, monkeypatch, tmp_path):
    shutil.copytree(folder, tmp_path / "elsewhere", ignore=shutil.ignore_patterns("elsewhere"))
    assert compute_key(tmp_path / "elsewhere") == compute_key(folder)
    before = compute_key(folder)
    text = (folder / "qa.jsonl").read_text()
    (folder / "qa.jsonl").write_text(text.replace("cats 3", "cats three"))
    assert compute_key(folder) != before
    (folder / "qa.jsonl").write_text(text)
    assert compute_key(folder) == before
    monkeypatch.setattr(
        "inbedder_finetune.answering.example_cache.inspect.getsource",
        lambda module: "new" if module is examples_module else "old",
    )
    assert compute_key(folder) != before


def test_an_interrupted_run_leaves_no_file(folder, monkeypatch):
    def interrupted(*_args):
        raise KeyboardInterrupt

    monkeypatch.setattr("inbedder_finetune.answering.example_cache.make_examples", interrupted)
    with pytest.raises(KeyboardInterrupt):
        rows = load_rows(recipe(folder).data)
        load_examples("causal", TOKENIZERS["byte-level"](), rows, plan(folder).answer_format, plan(folder).data.cache)
    assert not list((folder / "cache").iterdir())
