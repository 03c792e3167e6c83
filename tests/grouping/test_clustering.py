import numpy as np
import pandas
import pytest

from inbedder import InBedder, cluster
from inbedder.errors import InputError, TextCutWarning
from inbedder.grouping.clustering import FEW_TEXTS_NOTE
from tests.conftest import TEXTS, blobs


@pytest.fixture(scope="module")
def model(make_model):
    return InBedder(make_model("bert"))


def test_a_result_holds_one_entry_per_text_and_per_group(model):
    result = cluster(TEXTS, "What?", model=model, k=3, given_labels=["a", "b", "a", "b", "a", "b", "a"])
    assert len(result.labels) == len(result.answers) == len(result.embeddings) == len(TEXTS)
    assert len(result.keywords) == len(result.examples) == len(result.mixed) == len(result.sizes) == 3
    assert sum(result.sizes) == len(TEXTS)
    assert result.sizes == sorted(result.sizes, reverse=True)
    assert all(text in TEXTS for texts in result.examples for text in texts)
    assert sum(sum(counts.values()) for counts in result.label_agreements["label"].composition) == len(TEXTS)
    frame = result.to_frame()
    assert frame.columns.tolist() == ["text", "group", "group_name", "answer", "fit", "between"]
    assert frame["group"].tolist() == (result.labels + 1).tolist()
    assert frame["group_name"].tolist() == [result.names[label] for label in result.labels]
    assert frame.index.tolist() == list(range(len(TEXTS)))
    assert result.index is None


def test_a_frame_keeps_the_index_of_a_column_of_texts(model):
    texts = pandas.Series([f"text {i}" for i in range(12)], index=[f"id {i}" for i in range(12)])
    frame = pandas.DataFrame({"review": texts, "place": range(12)})[::-1]
    result = cluster(frame["review"], "What?", model=model, k=2)
    joined = frame.join(result.to_frame())
    assert joined["text"].tolist() == joined["review"].tolist() == texts.tolist()[::-1]
    assert result == cluster(frame["review"], "What?", model=model, k=2)
    assert result != cluster(texts.tolist()[::-1], "What?", model=model, k=2)


@pytest.mark.parametrize("namer", ["phrases", "words", "central"])
@pytest.mark.parametrize("silent", ["", "None."])
def test_a_group_without_answers_is_named_by_its_texts(make_model, monkeypatch, namer, silent):
    model = InBedder(make_model("opt"))
    answers = ["refund"] * 20 + [silent] * 15 + [silent, "refund"] * 5
    monkeypatch.setattr(model, "answer", lambda texts, *_, **__: answers if len(texts) == 45 else ["none"] * len(texts))
    texts = [f"refund {i}" for i in range(20)] + [f"parcel {i}" for i in range(15)] + [f"box {i}" for i in range(10)]
    result = cluster(texts, "Why?", model, k=3, namer=namer, embeddings=np.pad(blobs((20, 15, 10)), ((0, 0), (0, 24))))
    assert result.keywords[0] == result.keywords[2] == ["refund"] and result.keywords[1][0] == "parcel"
    assert result.names[0] == "refund" and result.names[1].startswith("parcel")
    assert not {name.casefold() for name in result.names} & {"", "none", "none."}
    assert result.answers == answers == result.to_frame()["answer"].tolist()


def test_auto_merges_groups_with_equal_answers_and_a_given_k_notes_them(make_model, monkeypatch):
    model = InBedder(make_model("opt"))
    answers = ["positive"] * 20 + ["Positive"] * 15 + ["negative"] * 10
    monkeypatch.setattr(model, "answer", lambda *_, **__: answers)
    texts = [f"text {i}" for i in range(45)]
    vectors = np.pad(blobs((20, 15, 10)), ((0, 0), (0, 24)))
    result = cluster(texts, "Good?", model, embeddings=vectors)
    assert result.sizes == [35, 10]
    assert result.names == ["positive", "negative"]
    assert result.notes == [
        "3 groups became 2: groups with mostly the same answers ('positive') were merged. Ask for 3 groups to keep them apart."
    ]
    result = cluster(texts, "Good?", model, k=3, embeddings=vectors)
    assert result.sizes == [20, 15, 10]
    assert "Groups 1 and 2 hardly differ in their answers (mostly 'positive')" in result.notes[0]


@pytest.mark.parametrize(("dtype", "length"), [("int8", 127), ("int32", 9000), ("float16", 300), ("float64", 1)])
@pytest.mark.parametrize("options", [{"k": 2}, {"k": "auto"}, {"k": 3, "method": "agglomerative"}, {"method": "hdbscan"}])
def test_vectors_of_any_dtype_give_the_groups_of_float32(model, dtype, length, options):
    texts = [f"text {i}" for i in range(50)]
    vectors = (np.abs(np.pad(blobs((20, 30)), ((0, 0), (0, 24)))) * length).round(0 if dtype != "float64" else 9).astype(dtype)
    expected = cluster(texts, None, model, embeddings=vectors.astype(np.float32), **options)
    result = cluster(texts, None, model, embeddings=vectors, **options)
    assert np.array_equal(result.labels, expected.labels)
    assert result.sizes[:2] == expected.sizes[:2]
    assert len(result.sizes) > 1
    assert result.embeddings.dtype == ("float64" if dtype == "float64" else "float32")
    assert result.examples == expected.examples


def test_bytes_that_are_shifted_or_packed_are_refused(model):
    vectors = model.encode(TEXTS, "What?", precision="ubinary")
    with pytest.raises(InputError, match="The vectors are uint8"):
        cluster(TEXTS, None, model, embeddings=vectors)


@pytest.mark.parametrize("dtype", ["int8", "float16", "float32"])
def test_a_zero_row_is_named_unless_its_text_is_blank(model, dtype):
    vectors = np.pad((blobs((12, 12)) * 100).astype(dtype), ((0, 0), (0, 24)))
    vectors[7] = 0
    texts = [f"text {i}" for i in range(24)]
    with pytest.raises(InputError, match=r"embeddings: 1 rows are zero, though .* not blank \(first: row 7, 'text 7'\)"):
        cluster(texts, None, model, k=2, embeddings=vectors)
    texts[7] = " \u200b"
    assert len(cluster(texts, None, model, k=2, embeddings=vectors).labels) == 24


@pytest.mark.parametrize("vectors", [np.array([["a"], ["b"]]), np.array([[1j], [2j]]), np.array([[None], [1.0]]), [[1], [1, 2]]])
def test_vectors_that_are_no_numbers_are_refused(model, vectors):
    with pytest.raises(InputError, match="embeddings must be an array of numbers"):
        cluster(["a", "b"], None, model, k=2, embeddings=vectors)


def test_labels_of_several_columns_are_compared(model):
    labels = {"place": list("aabbaab"), "mood": ["x", None, float("nan"), " ", "", "x", "y"]}
    result = cluster(TEXTS, "What?", model=model, k=2, given_labels=labels)
    assert list(result.label_agreements) == ["place", "mood"]
    assert result.label_agreements["mood"].unlabelled == 4
    with pytest.raises(InputError, match="7 texts but 1 labels"):
        cluster(TEXTS, "What?", model=model, given_labels={"place": list("aabbaab"), "mood": ["x"]})


def test_one_text_is_one_group(model):
    assert cluster(["only"], "What?", model=model).sizes == [1]
    assert cluster("only", "What?", model=model).texts == ["only"]


def test_long_texts_give_one_warning(model):
    with pytest.warns(UserWarning) as warnings:
        cluster(["long " * 3000, "short", "other"], "What?", model=model)
    assert [warning.category for warning in warnings].count(TextCutWarning) == 1


def test_no_text_and_wrong_labels_are_refused(model):
    with pytest.raises(InputError, match="no text to cluster"):
        cluster([], "What?", model=model)
    with pytest.raises(InputError, match="2 texts but 1 labels"):
        cluster(["a", "b"], "What?", model=model, given_labels=["x"])


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        *(({"k": k}, "k must be") for k in (0, 3, 1.5, True, "2", None)),
        *(({"k": 2, "seed": seed}, "seed must be a whole number from 0 to") for seed in (-1, 2**32, 1.5, "0", None)),
        ({"k": 2, "embeddings": [[1.0, float("nan")], [1.0, 2.0]]}, r"embeddings: 1 rows contain NaN or infinite .* row 0"),
        ({"k": 2, "embeddings": [["a"], ["b"]]}, "embeddings must be an array of numbers"),
        ({"k": 2, "embeddings": np.ones(2)}, r"embeddings of shape \(2,\)"),
        ({"k": 2, "given_labels": {"x"}}, "given_labels is a set"),
        ({"k": 2, "given_labels": "xy"}, "given_labels must be a list"),
    ],
    ids=str,
)
def test_invalid_options_are_refused_before_the_model_runs(model, monkeypatch, bad, message):
    monkeypatch.setattr(model.backbone, "embed", None)
    with pytest.raises(InputError, match=message):
        cluster(["a", "b"], "What?", model=model, **bad)


def test_given_vectors_are_grouped_and_nothing_is_encoded(make_model, monkeypatch):
    model = InBedder(make_model("opt"))
    texts = [f"text {i}" for i in range(20)]
    vectors = model.encode(texts, "What?")
    monkeypatch.setattr(model, "encode", None)
    result = cluster(texts, "What?", model, k=2, embeddings=vectors)
    assert (result.embeddings == vectors).all()
    with pytest.raises(InputError, match=r"20 texts but embeddings of shape \(19, 32\)"):
        cluster(texts, "What?", model, k=2, embeddings=vectors[1:])


def test_of_mapped_vectors_the_sample_and_the_central_texts_are_answered(make_model):
    model = InBedder(make_model("bert"))
    texts = [f"text {i} of {i % 7} kinds" for i in range(300)]
    mapped = model.encode_guided(texts, "What?", sample=60)
    answers = cluster(texts, "What?", model, k=2, embeddings=mapped).answers
    answered = {i for i, answer in enumerate(answers) if answer}
    assert set(mapped.sample.tolist()) <= answered
    assert len(answered) <= 60 + 2 * 20


def test_groups_of_a_model_that_does_not_answer_are_named_by_their_texts(make_model, caplog):
    model = InBedder(make_model("bert"), backbone="instructor")
    texts = [f"lovely cats purr {i}" for i in range(13)] + [f"crushed lamp arrived {i}" for i in range(11)]
    with caplog.at_level("INFO", "inbedder"):
        result = cluster(texts, "What is it?", model, k=2, embeddings=blobs((13, 11)))
    assert "does not answer, so groups are named by the words of their texts" in caplog.text
    assert result.answers == [""] * 24
    assert "cats" in result.keywords[0] and "lamp" in result.keywords[1]
    assert result.mixed == [False, False]


def test_without_a_question_texts_name_the_groups_and_are_not_answered(make_model):
    texts = [f"lovely cats purr {i}" for i in range(13)] + [f"crushed lamp arrived {i}" for i in range(11)]
    result = cluster(texts, None, InBedder(make_model("opt")), k=2, embeddings=blobs((13, 11)))
    assert (result.instruction, result.answers) == ("(no instruction)", [""] * 24)
    assert "cats" in result.keywords[0] and "lamp" in result.keywords[1]


def test_groupings_are_equal_by_their_fields_and_print_no_corpus(make_model):
    model = InBedder(make_model("opt"))
    texts = [f"text number {i}" for i in range(12)]
    one, equal_result, other_result = (cluster(texts, question, model=model, k=2) for question in ("What?", "What?", "Why?"))
    assert one == equal_result
    assert one != other_result
    assert one != "a grouping"
    assert "12 texts" in repr(one)
    assert "text number 3" not in repr(one)


def test_a_result_reports_its_choice_of_number_and_texts_that_fit_no_group(make_model):
    model = InBedder(make_model("bert"), backbone="instructor")
    scattered = np.random.default_rng(0).normal(size=(15, 8)).astype(np.float32)
    vectors = np.concatenate([blobs((60, 40)), scattered])
    texts = [f"text {i}" for i in range(115)]
    assert cluster(texts[:100], None, model, embeddings=vectors[:100]).choice.k == 2
    assert cluster(texts, None, model, k=2, embeddings=vectors).choice is None
    result = cluster(texts, None, model, method="hdbscan", embeddings=vectors)
    assert result.left_out == 2
    assert result.names[2] == "none of these"
    assert sum(result.sizes) == 115
    assert min(result.stability[:2]) > 0.9 and result.stability[2] == 0.0  # scattered rows are no group
    assert result.rows()[int(np.flatnonzero(result.labels == 2)[0])]["group_name"] == "none of these"
    tree = cluster(texts, None, model, k=9, method="agglomerative", embeddings=vectors)
    assert len(tree.branches) == 9


def test_levels_give_an_outline(model):
    vectors = blobs((30, 25, 20, 15, 10))
    result = cluster([f"text {i}" for i in range(100)], None, model, levels=(2, 5), embeddings=vectors)
    assert result.sizes == [30, 25, 20, 15, 10]
    assert len(set(result.branches)) == 2
    assert result.merge([0, 1]).branches is None  # four groups need no outline


def test_hdbscan_gives_advice_if_no_text_fits_a_group(model):
    vectors = np.random.default_rng(0).normal(size=(20, 32)).astype(np.float32)
    texts = [f"text {i}" for i in range(20)]
    result = cluster(texts, None, model, method="hdbscan", embeddings=vectors)
    assert result.left_out == 0
    assert result.notes[-1].endswith("Allow smaller groups, or group by k-means.")
    with pytest.raises(InputError, match=r"there is nothing to save\. Group with a smaller min_size or another method"):
        result.save("saved")
    close = np.repeat(np.eye(32, dtype=np.float32)[:5], 4, axis=0)
    assert cluster(texts, None, model, method="hdbscan", min_size=3, embeddings=close).left_out != 0


@pytest.mark.parametrize("dtype", ["Int64", "boolean", "Float64", "int64[pyarrow]"])
def test_missing_labels_of_any_type_are_no_labels(model, dtype):
    column = pandas.Series([1, None, 1, 0, 1, None, 0], dtype=dtype)
    result = cluster(TEXTS, "What?", model=model, k=2, given_labels=column)
    assert result.label_agreements["label"].unlabelled == 2
    table = pandas.DataFrame({"place": column, "mood": list("aabbaab")})
    agreements = cluster(TEXTS, "What?", model=model, k=2, given_labels=table).label_agreements
    assert [agreement.unlabelled for agreement in agreements.values()] == [2, 0]


@pytest.mark.parametrize("spread", [0.0, 1e-3])
def test_hdbscan_puts_texts_that_are_alike_into_one_group(model, spread):
    vectors = (1 + np.random.default_rng(0).normal(size=(40, 32)) * spread).astype(np.float32)
    result = cluster([f"text {i}" for i in range(40)], None, model, method="hdbscan", embeddings=vectors)
    assert (result.sizes, result.left_out) == ([40], None)
    assert result.notes == ["All texts are alike under this question, so they form one group."]
    assert cluster(["a"], None, model, method="hdbscan", embeddings=vectors[:1]).notes == [FEW_TEXTS_NOTE]


@pytest.mark.parametrize("count", [1, 2, 3])
def test_few_texts_are_noted_once(make_model, count):
    result = cluster(["one row", "two rows", "three rows"][:count], "What?", InBedder(make_model("opt")))
    assert result.notes.count(FEW_TEXTS_NOTE) == (count < 3)
    assert (result.choice is None) == (count < 3)


@pytest.mark.parametrize("question", ["", "  "])
def test_an_empty_question_is_refused(make_model, question):
    with pytest.raises(InputError, match="question is empty"):
        cluster(["a", "b"], question, InBedder(make_model("opt")), k=1)
