"""Further questions about a page, answered by its workers in a real browser."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from inbedder import InBedder
from inbedder.backbones.page_weights import make_page_weights
from inbedder.grouping.report.further_questions import make_page_model
from inbedder.vectors.vectors import compute_row_cosines
from tests.backbones.page_tensors import read_tensors, round_model
from tests.grouping.report.test_page import grouping
from tests.grouping.report.test_page_in_a_browser import texts_of

if TYPE_CHECKING:
    from playwright.sync_api import Page

TEXTS = ["I love cats", "I love dogs", "the delivery was late", "no one answered", "cats and dogs", "late again", "", "a b c d e"]
QUESTION = "What do they love?"
CALL_WORKER = """
async ([question]) => {
  const [settings, weights, code] = ['data', 'weights', 'worker'].map(name => document.getElementById('ask-' + name).textContent);
  const data = JSON.parse(settings);
  const worker = new Worker(URL.createObjectURL(new Blob([code], { type: 'text/javascript' })));
  const call = (task, values) => new Promise((resolve, reject) => {
    worker.onmessage = ({ data }) => data.done ? 0 : data.error ? reject(new Error(data.error)) : resolve(data.result);
    worker.postMessage({ task, ...values });
  });
  await call('open', { ...data, weights });
  await call('read', { texts: data.texts });
  const { vectors, answers } = await call('ask', { question });
  return { answers, vectors: vectors.map(vector => [...vector]) };
}
"""


@pytest.fixture(scope="module")
def late_model(late_adapter: Path) -> InBedder:
    return InBedder(late_adapter, dtype="float32")


@pytest.fixture
def open_page(browse: Callable[..., Page], late_model: InBedder) -> Callable[..., Page]:
    def open_page(texts: list[str] = TEXTS, **options: Any) -> Page:
        page = browse([grouping([0, 1] * (len(texts) // 2), texts=texts)], page_model=late_model, **options)
        page.click("#tab-ask")
        return page

    return open_page


def ask(page: Page, question: str, groups: int = 2) -> None:
    page.fill("#ask input[name=question]", question)
    page.select_option("#ask select", str(groups))
    page.click("#ask form button")
    page.locator(".ask-status", has_text=f"answers to “{question}”").wait_for()


def test_vectors_and_answers_are_those_of_the_rounded_model(open_page: Callable[..., Page], late_adapter: Path) -> None:
    result = open_page().evaluate(CALL_WORKER, [QUESTION])
    model = InBedder(late_adapter, dtype="float32")
    kept_ids = [model.backbone.tokenizer.get_vocab()[token] for token in make_page_model(model, TEXTS).data["tokens"]]
    weights = make_page_weights(model.pipeline.options.model, kept_ids, num_positions=68)
    round_model(model.backbone, read_tensors(*weights), kept_ids)
    assert compute_row_cosines(np.array(result["vectors"]), model.encode(TEXTS, QUESTION)).min() > 0.9999
    assert result["answers"] == model.answer(TEXTS, QUESTION)


def test_a_question_gives_groups_with_names_and_examples(open_page: Callable[..., Page], errors: list[str]) -> None:
    page = open_page()
    for question, groups in ((QUESTION, 2), ("Is it <b>good</b>? 🙂", 8)):
        ask(page, question, groups)
        names = texts_of(page, "#ask article h3")
        assert 1 <= len(set(names)) == len(names) <= groups
        sizes = [int(text.split()[0]) for text in texts_of(page, "#ask article .size")]
        assert sum(sizes) == len(TEXTS)
        assert sizes == sorted(sizes, reverse=True)
    assert errors == []


def test_the_texts_of_a_group_are_listed(open_page: Callable[..., Page], errors: list[str]) -> None:
    page = open_page()
    ask(page, QUESTION)
    size = texts_of(page, "#ask article .size")[0].split()[0]
    page.locator("#ask article .open").first.click()
    assert page.inner_text(".match-count").startswith(f"{size} of 8 texts — the group “")
    page.reload()
    assert page.inner_text(".match-count").startswith(f"{size} of 8 texts — {size} rows")
    page.click(".clear")
    assert errors == []


def test_the_answers_are_saved_as_a_table(open_page: Callable[..., Page], tmp_path: Path) -> None:
    page = open_page(["=1+1", *TEXTS[1:]])
    ask(page, QUESTION, groups=3)
    with page.expect_download() as download:
        page.click("#ask .actions button")
    download.value.save_as(tmp_path / "answers.csv")
    with (tmp_path / "answers.csv").open(encoding="utf-8-sig", newline="") as file:
        header, *rows = csv.reader(file)
    assert header == ["row", "text", f"{QUESTION} (number)", f"{QUESTION} (group)", f"{QUESTION} (answer)"]
    assert sorted(int(row[0]) for row in rows) == list(range(1, 9))
    assert "'=1+1" in {row[1] for row in rows}


def test_more_groups_than_texts_are_not_asked_of_them(open_page: Callable[..., Page]) -> None:
    page = open_page(TEXTS[:2])
    ask(page, QUESTION, groups=20)
    assert 1 <= page.locator("#ask article").count() <= 2


def test_a_damaged_model_is_said_in_the_page(open_page: Callable[..., Page]) -> None:
    page = open_page(change=lambda content: content.replace('id="ask-weights">', 'id="ask-weights">!!'))
    page.fill("#ask input[name=question]", QUESTION)
    page.click("#ask form button")
    page.locator(".ask-status", has_text="cannot run the model").wait_for()
    assert page.locator("#ask form button").is_enabled()


def test_a_page_without_a_model_has_no_tab_for_it(page: Page) -> None:
    assert page.locator("#tab-ask").count() == 0
    assert "wasm" not in page.content().split("<body>")[0]
