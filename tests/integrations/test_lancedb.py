import numpy as np
import pytest

pytest.importorskip("lancedb")

import lancedb
import pyarrow as pa
from lancedb.embeddings import get_registry
from lancedb.index import FTS
from lancedb.pydantic import LanceModel, Vector

from inbedder import InBedder
from inbedder.integrations.lancedb import InstructedReranker

TEXTS = ["The battery died", "Great price", "The box was crushed", "Nobody answered", "As good as new"]
QUESTION = "What is the complaint about?"


@pytest.fixture
def model(make_model):
    return InBedder(make_model("bert"))


@pytest.fixture
def table(tmp_path, model):
    vectors = model.encode(TEXTS)
    column = pa.FixedSizeListArray.from_arrays(vectors.ravel(), vectors.shape[1])
    table = lancedb.connect(tmp_path / "db").create_table("t", pa.table({"text": TEXTS, "vector": column}))
    table.create_index("text", config=FTS())
    return table


def score_expected(model, texts):
    vectors = model.encode(["battery", *texts], QUESTION, normalize_embeddings=True)
    return vectors[1:] @ vectors[0]


def test_a_vector_search_is_reranked_under_the_instruction(table, model):
    search = table.search(model.encode("battery")).limit(5)
    results = search.rerank(InstructedReranker(QUESTION, model), query_string="battery").to_pandas()
    np.testing.assert_allclose(results["_relevance_score"], score_expected(model, results["text"].tolist()), atol=1e-5)
    assert results["_relevance_score"].is_monotonic_decreasing
    assert sorted(results["text"]) == sorted(TEXTS)
    assert "_distance" not in results.columns


def test_a_full_text_search_is_reranked_under_the_instruction(table, model):
    results = table.search("battery price", query_type="fts").rerank(InstructedReranker(QUESTION, model)).to_pandas()
    assert sorted(results["text"]) == ["Great price", "The battery died"]
    assert results["_relevance_score"].is_monotonic_decreasing


@pytest.mark.parametrize(("scores", "has_distance"), [("relevance", False), ("all", True)])
def test_a_hybrid_search_is_reranked_and_has_each_row_once(table, model, scores, has_distance):
    search = table.search(query_type="hybrid").vector(model.encode("battery")).text("battery").limit(5)
    results = search.rerank(InstructedReranker(QUESTION, model, return_score=scores)).to_pandas()
    assert sorted(results["text"]) == sorted(TEXTS)
    np.testing.assert_allclose(results["_relevance_score"], score_expected(model, results["text"].tolist()), atol=1e-5)
    assert ("_distance" in results.columns) == has_distance


def test_a_row_without_a_text_is_the_last(model):
    results = pa.table({"text": ["battery", None, "battery died"]})
    ranked = InstructedReranker(QUESTION, model).rerank_vector("battery", results)["text"].to_pylist()
    assert ranked[2] is None and sorted(ranked[:2]) == ["battery", "battery died"]


def test_an_unknown_argument_of_the_embedding_function_is_refused():
    with pytest.raises(ValueError, match="instrution"):
        get_registry().get("inbedder").create(name="mini", instrution=QUESTION)


def test_an_empty_result_stays_empty(table, model):
    search = table.search(model.encode("battery")).where("text = 'nothing'").limit(5)
    assert len(search.rerank(InstructedReranker(QUESTION, model), query_string="battery").to_arrow()) == 0


def test_the_embedding_function_fills_a_column_and_embeds_queries(tmp_path, model, make_model):
    embed = get_registry().get("inbedder").create(name=make_model("bert"), instruction=QUESTION)

    class Review(LanceModel):
        text: str = embed.SourceField()
        vector: Vector(embed.ndims()) = embed.VectorField()

    table = lancedb.connect(tmp_path / "db").create_table("t", schema=Review)
    table.add([{"text": text} for text in TEXTS])
    vectors = np.array(table.to_arrow()["vector"].to_pylist())
    np.testing.assert_allclose(vectors, model.encode(TEXTS, QUESTION, normalize_embeddings=True), atol=1e-5)
    assert table.search(TEXTS[2]).limit(1).to_list()[0]["text"] == TEXTS[2]
