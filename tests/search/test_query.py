import numpy as np
import pytest

from inbedder.errors import InputError
from inbedder.search import Index
from tests.search.conftest import QUESTION, REVIEWS


def compute_cosines(vectors, vector):
    return (vectors @ vector) / np.linalg.norm(vectors, axis=1) / np.linalg.norm(vector)


def test_without_an_instruction_generic_cosines_order_the_rows(index, tiny):
    rows = index.search("My battery is dead", k=6)
    expected = compute_cosines(tiny.encode(rows["text"].tolist()), tiny.encode("My battery is dead"))
    np.testing.assert_allclose(rows["generic_score"], expected, atol=1e-5)
    assert rows["score"].is_monotonic_decreasing
    assert list(rows.columns) == ["id", "text", "stars", "shop", "score", "generic_score"]


def test_under_an_instruction_rows_have_instructed_cosines_and_answers(index, tiny):
    rows = index.search("My battery is dead", QUESTION, k=6)
    texts = rows["text"].tolist()
    expected = compute_cosines(tiny.encode(texts, QUESTION), tiny.encode("My battery is dead", QUESTION))
    np.testing.assert_allclose(rows["instructed_score"], expected, atol=1e-5)
    assert rows["score"].is_monotonic_decreasing
    assert rows["answer"].tolist() == tiny.answer(texts, QUESTION)


def test_a_stored_column_gives_the_same_scores_as_encoding(index):
    expected = index.search("battery", QUESTION, k=6)
    index.instruct(QUESTION)
    rows = index.search("battery", QUESTION, k=6)
    assert rows["id"].tolist() == expected["id"].tolist()
    np.testing.assert_allclose(rows["score"], expected["score"], atol=1e-5)


def test_the_weight_mixes_both_scores(index):
    rows = index.search("battery", QUESTION, k=6, weight=0.25)
    np.testing.assert_allclose(rows["score"], 0.75 * rows["instructed_score"] + 0.25 * rows["generic_score"], atol=1e-6)
    assert index.search("battery", QUESTION, k=6, weight=1)["id"].tolist() == index.search("battery", k=6)["id"].tolist()


def test_only_the_candidates_are_reranked(index):
    generic = index.search("battery", k=2)["id"].tolist()
    assert sorted(index.search("battery", QUESTION, k=2, candidates=2)["id"]) == sorted(generic)


def test_k_may_be_larger_than_the_number_of_candidates(index):
    assert len(index.search("battery", QUESTION, k=5, candidates=2)) == 5


def test_a_filter_applies_before_the_candidates_are_chosen(index):
    rows = index.search("battery", QUESTION, k=6, candidates=2, where="stars >= 4 AND shop = 'south'")
    assert sorted(rows["stars"]) == [4, 5]


def test_a_filter_that_no_row_passes_gives_an_empty_frame(index):
    rows = index.search("battery", QUESTION, where="stars > 9")
    assert len(rows) == 0
    assert {"id", "text", "score", "instructed_score", "answer"} <= set(rows.columns)


@pytest.mark.parametrize(
    "where",
    [
        "text LIKE '%battery%' nonsense",
        "stars < 3; DROP TABLE texts",
        "stars < 3, false",
        "stars < 3 AS x",
        "stars = 1 -- \n nonsense",
        "true) nonsense (true",
        "true] nonsense [true",
        "true) OR (false",
        "true] OR [false",
        "true) OR shop IN ('north'",
        "stars < 3 AS boolean) nonsense",
        "",
        "/* stars < 3",
        "text = 'battery",
        "(stars < 3",
        "stars < 3)",
        "\ud800 < 3",
        3,
    ],
)
def test_a_filter_that_is_not_one_whole_expression_is_refused(index, where, monkeypatch):
    monkeypatch.setattr(type(index), "model", property(lambda _self: pytest.fail("the model was loaded")))
    with pytest.raises(InputError, match=r"The filter "):
        index.search("battery", QUESTION, where=where)


def test_the_word_that_a_filter_goes_on_with_is_named(index):
    with pytest.raises(InputError, match="it goes on after its first condition, with 'nonsense'; use AND or OR"):
        index.search("battery", where="text LIKE '%battery%' nonsense")


@pytest.mark.parametrize(
    ("where", "count"),
    [
        ("stars = 1 -- a comment", 3),
        ("stars /* a comment */ = 1", 3),
        ("text = 'It''s as good as new'", 1),
        ("text LIKE '%)%' OR text LIKE '%]%' OR text LIKE '%--%'", 0),
        ("(stars = 1) OR (shop = 'south')", 5),
        ("stars IN (1, 2) AND NOT shop IS NULL", 3),
        ("CAST(stars AS string) = '1'", 3),
        ("regexp_match(text, 'battery')", 3),
        ("`stars` BETWEEN 1 AND 2\n AND shop = 'north'", 3),
    ],
)
def test_a_whole_expression_is_a_filter(index, where, count):
    assert len(index.search("battery", where=where)) == count


def test_a_filter_that_fails_on_a_row_is_named(index):
    with pytest.raises(InputError, match=r"The filter 'CAST\(text AS int\) > 1' fails on a row"):
        index.search("battery", where="CAST(text AS int) > 1")


@pytest.mark.parametrize("where", ["nope < 3", "stars <", "stars = 'a' OR", "shop < > 3"])
def test_a_bad_filter_is_refused_and_the_columns_are_named(index, where):
    with pytest.raises(InputError, match=r"cannot be used.*'stars'"):
        index.search("battery", where=where)


def test_bm25_finds_what_vectors_do_not(index, tiny):
    index.add([{"text": f"Filler {number} about nothing"} for number in range(30)] + [{"text": "The zebra clause"}])
    rows = index.search("zebra", k=3, hybrid=True)
    assert rows["text"].iloc[0] == "The zebra clause" or "The zebra clause" in rows["text"].tolist()
    assert rows["score"].is_monotonic_decreasing


def test_hybrid_candidates_are_reranked_under_the_instruction(index):
    rows = index.search("battery", QUESTION, k=3, hybrid=True, weight=0)
    assert rows["score"].tolist() == rows["instructed_score"].tolist()
    assert len(rows) == 3


def test_searching_an_empty_index_is_refused(index):
    index.delete(index.storage.list_ids())
    with pytest.raises(InputError, match="holds no rows"):
        index.search("battery")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"k": 0}, "k must be"),
        ({"k": 10**12}, "k must be"),
        ({"candidates": 0}, "candidates must be"),
        ({"candidates": 10**12}, "candidates must be"),
        ({"instruction": QUESTION, "weight": 2.0}, "weight must be"),
        ({"instruction": QUESTION, "weight": "half"}, "weight must be"),
    ],
)
def test_options_out_of_range_are_refused(index, options, message):
    with pytest.raises(InputError, match=message):
        index.search("battery", **options)


def test_an_empty_query_is_refused(index):
    with pytest.raises(InputError, match="non-empty string"):
        index.search(" ")


def test_a_repeated_search_encodes_nothing(index, monkeypatch):
    first = index.search("battery", QUESTION, k=3)
    monkeypatch.setattr(type(index.model.backbone), "embed", lambda *_: 1 / 0)
    monkeypatch.setattr(type(index.model.backbone), "answer", lambda *_: 1 / 0)
    assert Index.open(index.storage.folder, index.model).search("battery", QUESTION, k=3).equals(first)


def test_many_rows_are_found_through_an_approximate_index(tmp_path, tiny, monkeypatch):
    monkeypatch.setattr("inbedder.search.storage.MIN_INDEXED_ROWS", 300)
    texts = [f"The {thing} number {number} is new" for thing in ("box", "lamp", "bed", "phone") for number in range(90)]
    index = Index.create(tmp_path / "i", texts, tiny)
    assert index.info()["engine"] == "IvfPq over 360 rows; 0 newer rows are compared exactly"
    index.add(["A text that came later"])
    assert index.search("A text that came later", k=1)["text"].tolist() == ["A text that came later"]
    assert index.search(texts[7], k=1)["generic_score"].tolist() == pytest.approx([1.0], abs=1e-5)


def test_few_rows_are_compared_exactly(index):
    assert index.info()["engine"] == "exact: every vector is compared"
    assert index.info()["rows"] == len(REVIEWS)


@pytest.mark.parametrize("query", ['"battery died"', '"', '""', ' "battery" '])
def test_a_query_in_quotes_is_read_as_its_words(index, query):
    rows = index.search(query, k=3, hybrid=True)
    assert len(rows) == 3
