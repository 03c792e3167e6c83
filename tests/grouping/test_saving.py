import json

import numpy as np
import pytest

from inbedder import Grouping, InBedder, cluster
from inbedder.errors import InputError
from inbedder.grouping.namers import NAMERS
from tests.conftest import blobs as narrow_blobs

SIZES = (40, 30, 20)
TEXTS = [f"text {i}" for i in range(90)]


@pytest.fixture(scope="module")
def model(make_model):
    return InBedder(make_model("bert"))


def wide(vectors):
    """As wide as the model's."""
    return np.pad(vectors, ((0, 0), (0, 24)))


def blobs(sizes, seed=0):
    return wide(narrow_blobs(sizes, seed))


def others(count, seed=3):
    """Vectors around an axis that no kept group has."""
    rows = np.eye(8)[5] + 0.05 * np.random.default_rng(seed).normal(size=(count, 8))
    return wide(rows.astype(np.float32))


def scattered(count):
    return wide(np.random.default_rng(0).normal(size=(count, 8)).astype(np.float32))


@pytest.fixture
def result(model):
    return cluster(TEXTS, "What?", model, k=3, embeddings=blobs(SIZES))


@pytest.fixture
def grouping(result, model):
    return Grouping.of(result, model)


def test_a_kept_grouping_takes_its_own_texts_back_into_their_groups(result, model, tmp_path):
    result.save(tmp_path / "kept")
    found = Grouping.load(tmp_path / "kept", model).assign(TEXTS, embeddings=result.embeddings)
    assert np.array_equal(found.labels, result.labels)
    assert found.names == [result.names[label] for label in result.labels]
    assert found.answers == result.answers
    centres = np.stack([result.embeddings[result.labels == number].mean(axis=0) for number in range(3)])
    expected = np.linalg.norm(result.embeddings - centres[result.labels], axis=1)
    assert np.allclose(found.distances, expected, atol=1e-6)


def test_texts_are_read_by_the_model_and_under_the_instruction_that_were_kept(make_model, tmp_path):
    texts = ["I love cats", "The box was crushed", "How do I top up?", "I love dogs"]
    model = InBedder(
        make_model("opt"), pooling="avg-ppt", layer=1, max_length=99, template="{input} / {instruction}:", max_new_tokens=2
    )
    result = cluster(texts, "What?", model, k=2)
    result.save(tmp_path / "kept")
    found = Grouping.load(tmp_path / "kept").assign(texts)
    assert np.array_equal(found.labels, result.labels)
    assert found.answers == result.answers


def test_where_nothing_was_asked_nothing_is_asked_of_new_texts(tmp_path):
    texts = ["I love cats", "The box was crushed and late", "How do I top up?", "I love dogs", "my parcel was wet"]
    result = cluster(texts, None, k=2)
    result.save(tmp_path / "kept")
    assert np.array_equal(Grouping.load(tmp_path / "kept").assign(texts).labels, result.labels)


def test_of_texts_like_the_kept_ones_about_five_in_a_hundred_do_not_fit(grouping):
    found = grouping.assign(TEXTS * 10, embeddings=blobs([10 * size for size in SIZES], seed=1))
    assert 0.01 < (~found.fits).mean() < 0.12
    assert found.labels.tolist() == [number for number, size in enumerate(SIZES) for _ in range(10 * size)]


def test_texts_of_no_group_do_not_fit_and_still_have_a_nearest_one(grouping):
    found = grouping.assign(TEXTS[:9], embeddings=others(9))
    assert not found.fits.any()
    assert set(found.labels) <= {0, 1, 2}
    assert np.allclose(found.typicality, 1 / 91)


def test_rows_and_frame_count_groups_as_the_page_does(grouping):
    found = grouping.assign(TEXTS[:2], embeddings=np.concatenate([blobs(SIZES)[:1], others(1)]))
    first, second = found.rows()
    assert list(first) == ["group", "group_name", "answer", "distance", "typicality", "fits"]
    assert (first["group"], first["fits"], second["fits"]) == (1, True, False)
    assert found.to_frame()["text"].tolist() == TEXTS[:2]


def test_names_given_by_hand_survive_saving_assigning_and_new_groups(grouping, model, tmp_path):
    grouping.rename({0: "late delivery"})
    grouping.save(tmp_path / "kept")
    again = Grouping.load(tmp_path / "kept", model)
    again.update(TEXTS[:30], embeddings=others(30))
    again.save(tmp_path / "kept")
    names = Grouping.load(tmp_path / "kept").names
    assert names[0] == "late delivery"
    assert len(names) == 4
    assert again.assign(TEXTS[:1], embeddings=blobs(SIZES)[:1]).names == ["late delivery"]


@pytest.mark.parametrize(
    ("names", "told"),
    [
        ({3: "x"}, "group must be a whole number from 0 to 2"),
        ({"0": "x"}, "group must be a whole number"),
        ({0: " "}, "is no name of a group"),
        ({0: None}, "is no name of a group"),
        ({0: "x", 1: "x"}, "Two groups would be called 'x'"),
    ],
)
def test_names_that_no_group_can_have_change_nothing(grouping, names, told):
    before = grouping.names
    with pytest.raises(InputError, match=told):
        grouping.rename(names)
    assert grouping.names == before


def test_a_group_is_added_where_unfitting_texts_form_one_of_their_own(grouping):
    before = grouping.centres.copy()
    vectors = np.concatenate([blobs(SIZES, seed=1), others(30)])
    found = grouping.update([*TEXTS, *TEXTS[:30]], embeddings=vectors)
    assert len(grouping.groups) == 4
    assert np.array_equal(grouping.centres[:3], before)
    assert (found.labels[90:] == 3).all() and not (found.labels[:90] == 3).any()
    assert found.fits[90:].mean() > 0.8
    assert 10 <= grouping.groups[3].size <= 30
    assert len(grouping.groups[3].examples) == 5
    assert grouping.names[3] not in grouping.names[:3]
    assert np.array_equal(grouping.assign(TEXTS[:30], embeddings=others(30)).labels, [3] * 30)


def test_no_group_is_added_for_a_few_texts_or_for_scattered_ones(grouping):
    grouping.update(TEXTS[:9], embeddings=others(9))
    grouping.update(TEXTS, embeddings=blobs(SIZES, seed=1))
    grouping.update(TEXTS[:60], embeddings=scattered(60))
    assert len(grouping.groups) == 3


def test_another_model_is_refused_by_name(result, make_model, tmp_path):
    result.save(tmp_path / "kept")
    with pytest.raises(InputError, match=r"was made with .*bert.*, and .*opt.* cannot be read like it"):
        Grouping.load(tmp_path / "kept", make_model("opt"))
    with pytest.raises(InputError, match=r"made with .*bert.* \(revision \w{16}\), and this is .*roberta.* cannot be compared"):
        Grouping.load(tmp_path / "kept", InBedder(make_model("roberta")))
    with pytest.raises(InputError, match="read in another way: pooling was 'avg-gen' and is 'avg-ppt'"):
        Grouping.load(tmp_path / "kept", InBedder(make_model("bert"), pooling="avg-ppt"))


def test_a_model_that_changed_since_is_refused(make_model, tmp_path):
    import shutil

    shutil.copytree(make_model("opt"), tmp_path / "model")
    cluster(TEXTS[:9], "What?", str(tmp_path / "model"), k=2).save(tmp_path / "kept")
    shutil.rmtree(tmp_path / "model")
    shutil.copytree(make_model("gpt2"), tmp_path / "model")
    with pytest.raises(InputError, match=r"was made with .*cannot be compared"):
        Grouping.load(tmp_path / "kept").assign(["a text"])


def test_a_model_that_was_moved_is_found_by_its_new_name(make_model, tmp_path):
    import shutil

    shutil.copytree(make_model("opt"), tmp_path / "model")
    result = cluster(TEXTS[:9], "What?", str(tmp_path / "model"), k=2)
    result.save(tmp_path / "kept")
    shutil.move(tmp_path / "model", tmp_path / "elsewhere")
    found = Grouping.load(tmp_path / "kept", str(tmp_path / "elsewhere")).assign(TEXTS[:9])
    assert np.array_equal(found.labels, result.labels)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"groups": []}, "0 groups but centres of shape"),
        ({"groups": [{"name": "a"}] * 3}, "its settings are not whole"),
        ({"provenance": {}}, "its settings are not whole"),
        ({"provenance": None}, "its settings are not whole"),
    ],
)
def test_settings_that_are_not_whole_are_damage(grouping, tmp_path, changes, told):
    grouping.save(tmp_path / "kept")
    file = tmp_path / "kept" / "grouping.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))
    with pytest.raises(InputError, match=f"is damaged: {told}"):
        Grouping.load(tmp_path / "kept")


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"centres": np.ones((2, 32))}, r"3 groups but centres of shape \(2, 32\)"),
        ({"centres": np.full((3, 32), np.nan)}, "its numbers are not finite"),
        ({"labels": np.zeros(4, dtype=int)}, r"labels of shape \(4,\) but distances of shape \(90,\)"),
        ({"labels": np.full(90, 3)}, "labels beyond its 3 groups"),
        ({"labels": np.zeros(90)}, "labels of type float64"),
    ],
)
def test_arrays_of_wrong_shapes_are_damage(grouping, tmp_path, change, told):
    for name, array in change.items():
        setattr(grouping, name, array)
    grouping.save(tmp_path / "kept")
    with pytest.raises(InputError, match=told):
        Grouping.load(tmp_path / "kept")


def test_vectors_of_another_length_and_no_text_are_refused(grouping):
    with pytest.raises(InputError, match="made of vectors of 32 numbers, and these have 3"):
        grouping.assign(["a"], embeddings=np.ones((1, 3)))
    with pytest.raises(InputError, match="no text to put into groups"):
        grouping.assign([])


def test_of_mapped_vectors_those_that_were_read_say_how_far_texts_are(model):
    texts = [f"text {i} of {i % 7} kinds" for i in range(300)]
    mapped = model.encode_guided(texts, "What?", sample=60)
    kept = Grouping.of(cluster(texts, "What?", model, k=2, embeddings=mapped))
    assert len(kept.distances) == 60
    assert sum(group.size for group in kept.groups) == 300


def test_rows_that_were_left_out_are_no_group_to_assign_to(make_model):
    model = InBedder(make_model("bert"), backbone="instructor")
    vectors = np.concatenate([blobs((60, 40)), scattered(15)])
    result = cluster([f"text {i}" for i in range(115)], None, model, method="hdbscan", embeddings=vectors)
    assert result.names[result.left_out] == "fits no group"
    kept = Grouping.of(result)
    assert len(kept.groups) == 2
    assert "fits no group" not in kept.names


def test_what_a_grouping_prints_is_no_corpus(grouping):
    assert "text 3" not in repr(grouping)
    assert "'What?'" in repr(grouping)


def test_the_rows_of_a_column_of_pandas_keep_its_index(grouping):
    pandas = pytest.importorskip("pandas")
    column = pandas.Series(TEXTS[:20], index=range(100, 80, -1))
    vectors = others(20)
    frame = grouping.assign(column, embeddings=vectors).to_frame()
    assert frame.index.equals(column.index)
    assert frame["text"].equals(column.rename("text"))
    assert grouping.update(column, embeddings=vectors).to_frame().index.equals(column.index)
    assert len(grouping.groups) == 4


@pytest.mark.parametrize("namer", NAMERS)
def test_new_groups_are_named_by_the_namer_of_the_kept_ones(model, tmp_path, monkeypatch, namer):
    cluster(TEXTS, "What?", model, k=3, embeddings=blobs(SIZES), namer=namer).save(tmp_path / "kept")
    grouping = Grouping.load(tmp_path / "kept", model)
    assert grouping.provenance.namer == namer
    asked = []

    def named(found, of_model):
        asked.append((found, of_model))
        return lambda groups: [f"{namer} {len(groups)}" for _ in groups]

    monkeypatch.setattr("inbedder.grouping.saving.find_namer", named)
    before = grouping.names
    grouping.update(TEXTS[:30], embeddings=others(30))
    assert asked == [(namer, model)]
    assert grouping.names[:3] == before
    assert grouping.names[3].startswith(f"{namer} {1 if namer == 'model' else 4}")


def test_a_namer_without_a_name_leaves_new_groups_to_the_words(model, tmp_path):
    mine = cluster(
        TEXTS, "What?", model, k=3, embeddings=blobs(SIZES), namer=lambda groups: [f"g {i}" for i in range(len(groups))]
    )
    grouping = Grouping.of(mine, model)
    assert grouping.provenance.namer == "words"
    grouping.update(TEXTS[:30], embeddings=others(30))
    assert len(grouping.names) == 4 and grouping.names[3].strip()


def test_the_most_central_answer_names_a_new_group_too(model, monkeypatch):
    grouping = Grouping.of(cluster(TEXTS, "What?", model, k=3, embeddings=blobs(SIZES), namer="central"), model)
    monkeypatch.setattr(type(grouping.provenance), "answer", lambda *_args, **_options: ["late delivery"] * 30)
    grouping.update(TEXTS[:30], embeddings=others(30))
    assert grouping.names[3] == "late delivery"
