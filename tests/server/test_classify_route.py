"""Categories over HTTP."""

import numpy as np
import pytest

from inbedder import classify

TEXTS = ["I love cats", "The delivery was late", "It came late"]
BODY = {"input": TEXTS, "instruction": "What?", "categories": ["cats", {"name": "late", "description": "It came late."}]}


def test_texts_get_the_librarys_categories(client, tiny):
    body = client.post("/v1/classify", json={**BODY, "examples": {"cats": ["two cats"]}, "top_n": 2}).json()
    categories = {"cats": "cats", "late": "It came late."}
    expected = classify(TEXTS, "What?", categories, examples={"cats": ["two cats"]}, model=tiny)
    assert [entry["category"] for entry in body["data"]] == expected.names
    for entry, scores, probabilities in zip(body["data"], expected.scores, expected.probabilities, strict=True):
        assert [score["category"] for score in entry["scores"]] == [list(categories)[i] for i in np.argsort(-scores)]
        assert [score["score"] for score in entry["scores"]] == pytest.approx(sorted(scores, reverse=True), abs=1e-5)
        assert [score["probability"] for score in entry["scores"]] == pytest.approx(sorted(probabilities, reverse=True), abs=1e-4)
    assert body["usage"]["prompt_tokens"] > 0


def test_one_text_has_one_category_or_none(client):
    body = client.post("/v1/classify", json={**BODY, "input": "I love cats"}).json()
    assert [len(entry["scores"]) for entry in body["data"]] == [1]
    body = client.post("/v1/classify", json={**BODY, "min_score": 1}).json()
    assert [entry["category"] for entry in body["data"]] == [None] * 3
    assert client.post("/v1/classify", json={**BODY, "instruction": None}).status_code == 200


@pytest.mark.parametrize(
    "fields",
    [
        {"categories": ["cats"]},
        {"categories": []},
        {"categories": ["cats", "cats"]},
        {"categories": ["cats", ""]},
        {"examples": {"dogs": ["a dog"]}},
        {"examples": {"cats": "a cat"}},
        {"min_score": 2},
        {"min_lead": -1},
        {"top_n": 0},
        {"input": []},
    ],
)
def test_requests_that_cannot_be_classified_are_refused(client, fields):
    assert client.post("/v1/classify", json={**BODY, **fields}).status_code == 422


def test_a_text_with_a_small_lead_is_not_sure(client):
    body = client.post("/v1/classify", json={**BODY, "min_lead": 10}).json()
    assert [(entry["category"], entry["outcome"]) for entry in body["data"]] == [(None, "not sure")] * 3
    body = client.post("/v1/classify", json={**BODY, "min_score": 1, "min_lead": 10}).json()
    assert [entry["outcome"] for entry in body["data"]] == ["none of these"] * 3
    body = client.post("/v1/classify", json=BODY).json()
    assert [entry["outcome"] for entry in body["data"]] == [entry["category"] for entry in body["data"]]
