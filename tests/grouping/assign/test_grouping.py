import contextlib
import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest

from inbedder import Grouping, InBedder, cluster
from inbedder.errors import InbedderError, InputError
from inbedder.grouping.assign.assignment import MIN_TYPICALITY
from inbedder.grouping.assign.new_groups import Batch
from inbedder.grouping.names.namers import NAMERS
from inbedder.grouping.stored.saved_files import HASH, hash_metadata
from inbedder.vectors.vectors import normalize_vectors
from tests.conftest import blobs as narrow_blobs

SIZES = (40, 30, 20)
TEXTS = [f"text {i}" for i in range(90)]


@pytest.fixture(scope="module")
def model(make_model):
    return InBedder(make_model("bert"))


def pad_vectors(vectors):
    """Pad vectors to the dimension of the model."""
    return np.pad(vectors, ((0, 0), (0, 24)))


def blobs(sizes, seed=0):
    return pad_vectors(narrow_blobs(sizes, seed))


def make_unfitting_vectors(count, seed=3):
    """Make vectors around an axis that no stored group has."""
    rows = np.eye(8)[5] + 0.05 * np.random.default_rng(seed).normal(size=(count, 8))
    return pad_vectors(rows.astype(np.float32))


def scattered(count):
    return pad_vectors(np.random.default_rng(0).normal(size=(count, 8)).astype(np.float32))


@pytest.fixture
def result(model):
    return cluster(TEXTS, "What?", model, k=3, embeddings=blobs(SIZES))


@pytest.fixture
def grouping(result, model):
    return Grouping.of(result, model)


def test_a_saved_grouping_assigns_its_own_texts_to_their_groups(result, model, tmp_path):
    result.save(tmp_path / "saved")
    assignment = Grouping.load(tmp_path / "saved", model).assign(TEXTS, embeddings=result.embeddings)
    assert np.array_equal(assignment.labels, result.labels)
    names = [result.names[label] for label in result.labels]
    assert assignment.names == [name if fits else "none of these" for name, fits in zip(names, assignment.fits, strict=True)]
    assert assignment.answers == result.answers
    centres = np.stack([result.embeddings[result.labels == number].mean(axis=0) for number in range(3)])
    expected = np.linalg.norm(result.embeddings - centres[result.labels], axis=1)
    assert np.allclose(assignment.distances, expected, atol=1e-6)


def test_new_texts_are_encoded_with_the_saved_model_and_instruction(make_model, tmp_path):
    texts = ["I love cats", "The box was crushed", "How do I top up?", "I love dogs"]
    model = InBedder(
        make_model("opt"), pooling="avg-ppt", layer=1, max_length=99, template="{input} / {instruction}:", max_new_tokens=2
    )
    result = cluster(texts, "What?", model, k=2)
    result.save(tmp_path / "saved")
    assignment = Grouping.load(tmp_path / "saved").assign(texts)
    assert np.array_equal(assignment.labels, result.labels)
    assert assignment.answers == result.answers


def test_a_grouping_without_a_question_assigns_without_one(tmp_path):
    texts = ["I love cats", "The box was crushed and late", "How do I top up?", "I love dogs", "my parcel was wet"]
    result = cluster(texts, None, k=2)
    result.save(tmp_path / "saved")
    assert np.array_equal(Grouping.load(tmp_path / "saved").assign(texts).labels, result.labels)


def test_about_five_percent_of_texts_like_the_stored_ones_do_not_fit(grouping):
    assignment = grouping.assign(TEXTS * 10, embeddings=blobs([10 * size for size in SIZES], seed=1))
    assert 0.01 < (~assignment.fits).mean() < 0.12
    assert assignment.labels.tolist() == [number for number, size in enumerate(SIZES) for _ in range(10 * size)]


@pytest.mark.parametrize("dtype", ["int8", "int32", "float16"])
def test_vectors_of_any_dtype_are_assigned_like_float32(model, result, dtype):
    vectors = (blobs(SIZES, seed=1) * 120).astype(dtype)
    expected = Grouping.of(result).assign(TEXTS, embeddings=vectors.astype(np.float32))
    assignment = Grouping.of(result).assign(TEXTS, embeddings=vectors)
    assert np.array_equal(assignment.labels, expected.labels)
    assert np.allclose(assignment.typicality, expected.typicality)
    assert len(set(assignment.labels)) == 3


def test_a_zero_row_is_not_assigned_to_any_group(result):
    with pytest.raises(InputError, match="embeddings: 1 rows are zero"):
        Grouping.of(result).assign(TEXTS[:1], embeddings=np.zeros((1, 8)))


def test_unfitting_texts_still_have_a_nearest_group(grouping):
    assignment = grouping.assign(TEXTS[:9], embeddings=make_unfitting_vectors(9))
    assert not assignment.fits.any()
    assert set(assignment.labels) <= {0, 1, 2}
    assert np.allclose(assignment.typicality, 1 / 91)


def test_a_far_text_fits_if_its_answer_is_a_common_one_of_the_group(grouping):
    """A short text lies far from every centre, though its answer says which group it belongs to."""
    grouping.groups[0] = replace(grouping.groups[0], name="lost luggage", answers={"missing bag": 9, "rude": 1})
    order = np.argsort(grouping.distances[grouping.labels == 0])
    grouping.distances = np.concatenate([grouping.distances, [10, 11]]).astype(np.float32)  # two stored texts are farther
    grouping.labels = np.concatenate([grouping.labels, [0, 0]])
    far = blobs(SIZES)[order[-1:]] + 0.5 * make_unfitting_vectors(1)
    answers = ["Lost luggage", "bag missing today", "rude", "lost", "", "lost luggage"]
    vectors = normalize_vectors(np.concatenate([far] * 5 + [-grouping.centres[:1]]))
    assignment = grouping._assign_batch(Batch(TEXTS[:6], vectors, answers, None))
    assert (assignment.typicality < MIN_TYPICALITY).all() and not assignment.labels[:5].any()
    assert assignment.fits.tolist() == [True, True, False, False, False, False]
    assert assignment.names[:3] == ["lost luggage", "lost luggage", "none of these"]


def test_rows_and_frame_count_groups_as_the_page_does(grouping):
    assignment = grouping.assign(TEXTS[:2], embeddings=np.concatenate([blobs(SIZES)[:1], make_unfitting_vectors(1)]))
    first, second = assignment.rows()
    assert list(first) == ["group", "group_name", "answer", "distance", "typicality", "fits", "nearest_group"]
    assert (first["group"], first["fits"], second["fits"]) == (1, True, False)
    assert (first["group_name"], second["group"], second["group_name"]) == (grouping.names[0], None, "none of these")
    assert second["nearest_group"] == grouping.names[assignment.labels[1]]
    assert assignment.to_frame()["text"].tolist() == TEXTS[:2]


def test_new_names_persist_through_saving_assigning_and_new_groups(grouping, model, tmp_path):
    grouping.rename({0: "late delivery"})
    grouping.save(tmp_path / "saved")
    loaded_grouping = Grouping.load(tmp_path / "saved", model)
    loaded_grouping.update(TEXTS[:30], embeddings=make_unfitting_vectors(30))
    loaded_grouping.save(tmp_path / "saved")
    names = Grouping.load(tmp_path / "saved").names
    assert names[0] == "late delivery"
    assert len(names) == 4
    assert loaded_grouping.assign(TEXTS[:1], embeddings=blobs(SIZES)[:1]).names == ["late delivery"]


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ({3: "x"}, "group must be a whole number from 0 to 2"),
        ({"0": "x"}, "group must be a whole number"),
        ({0: " "}, "is not a valid name of a group"),
        ({0: None}, "is not a valid name of a group"),
        ({0: "x", 1: "x"}, "Two groups would have the name 'x'"),
    ],
)
def test_invalid_names_change_nothing(grouping, names, message):
    before = grouping.names
    with pytest.raises(InputError, match=message):
        grouping.rename(names)
    assert grouping.names == before


def test_unfitting_texts_that_lie_close_together_form_a_new_group(grouping):
    before = grouping.centres.copy()
    vectors = np.concatenate([blobs(SIZES, seed=1), make_unfitting_vectors(30)])
    assignment = grouping.update([*TEXTS, *TEXTS[:30]], embeddings=vectors)
    assert len(grouping.groups) == 4
    assert np.array_equal(grouping.centres[:3], before)
    assert (assignment.labels[90:] == 3).all() and not (assignment.labels[:90] == 3).any()
    assert assignment.fits[90:].mean() > 0.8
    assert 10 <= grouping.groups[3].size <= 30
    assert len(grouping.groups[3].examples) == 5
    assert grouping.names[3] not in grouping.names[:3]
    assert np.array_equal(grouping.assign(TEXTS[:30], embeddings=make_unfitting_vectors(30)).labels, [3] * 30)


def test_few_or_scattered_texts_form_no_new_group(grouping):
    grouping.update(TEXTS[:9], embeddings=make_unfitting_vectors(9))
    grouping.update(TEXTS, embeddings=blobs(SIZES, seed=1))
    grouping.update(TEXTS[:60], embeddings=scattered(60))
    assert len(grouping.groups) == 3


def test_another_model_is_refused_by_name(result, make_model, tmp_path):
    result.save(tmp_path / "saved")
    with pytest.raises(InputError, match=r"was made with .*bert.*, and .*opt.* cannot be loaded with the same options"):
        Grouping.load(tmp_path / "saved", make_model("opt"))
    with pytest.raises(InputError, match=r"made with .*bert.* \(revision \w{16}\), and this is .*roberta.* cannot be compared"):
        Grouping.load(tmp_path / "saved", InBedder(make_model("roberta")))
    with pytest.raises(InputError, match="read in another way: pooling was 'avg-gen' and is 'avg-ppt'"):
        Grouping.load(tmp_path / "saved", InBedder(make_model("bert"), pooling="avg-ppt"))


def test_a_model_that_changed_since_is_refused(make_model, tmp_path):
    import shutil

    shutil.copytree(make_model("opt"), tmp_path / "model")
    cluster(TEXTS[:9], "What?", str(tmp_path / "model"), k=2).save(tmp_path / "saved")
    shutil.rmtree(tmp_path / "model")
    shutil.copytree(make_model("gpt2"), tmp_path / "model")
    with pytest.raises(InputError, match=r"was made with .*cannot be compared"):
        Grouping.load(tmp_path / "saved").assign(["a text"])


def test_a_model_that_was_moved_is_found_by_its_new_name(make_model, tmp_path):
    import shutil

    shutil.copytree(make_model("opt"), tmp_path / "model")
    result = cluster(TEXTS[:9], "What?", str(tmp_path / "model"), k=2)
    result.save(tmp_path / "saved")
    shutil.move(tmp_path / "model", tmp_path / "elsewhere")
    assignment = Grouping.load(tmp_path / "saved", str(tmp_path / "elsewhere")).assign(TEXTS[:9])
    assert np.array_equal(assignment.labels, result.labels)


def test_all_edits_of_two_editors_survive(grouping, tmp_path):
    grouping.save(tmp_path / "saved")

    def rename(number):
        for i in range(10):
            with Grouping.edit(tmp_path / "saved") as edited:
                edited.rename({number: f"{edited.names[number]} {number}{i}"})

    before = grouping.names
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(rename, [0, 1]))
    suffixes = ["".join(f" {number}{i}" for i in range(10)) for number in (0, 1)]
    assert Grouping.load(tmp_path / "saved").names == [before[0] + suffixes[0], before[1] + suffixes[1], before[2]]


def test_an_edit_that_fails_is_not_saved(grouping, tmp_path):
    grouping.save(tmp_path / "saved")
    with pytest.raises(KeyboardInterrupt), Grouping.edit(tmp_path / "saved") as edited:
        edited.rename({0: "new"})
        raise KeyboardInterrupt
    assert Grouping.load(tmp_path / "saved").names == grouping.names
    with pytest.raises(InputError, match="holds no grouping"), Grouping.edit(tmp_path / "none"):
        pass
    assert not (tmp_path / "none").exists()


def test_a_grouping_that_another_process_saved_since_is_not_replaced(grouping, tmp_path):
    grouping.save(tmp_path / "saved")
    first, second = (Grouping.load(tmp_path / "saved") for _ in range(2))
    for name in ("A", "B"):
        first.rename({0: name})
        first.save(tmp_path / "saved")
    with pytest.raises(InputError, match="was saved by another process since it was loaded"):
        second.save(tmp_path / "saved")
    second.save(tmp_path / "copy")
    assert Grouping.load(tmp_path / "saved").names[0] == "B"
    assert Grouping.load(tmp_path / "copy").names == grouping.names


def write_metadata(file, content):
    file.write_text(json.dumps(content | {HASH: hash_metadata(content)}))


def make_group(**fields):
    return {"name": "a", "size": 1, "keywords": [], "examples": [], "answers": {}, **fields}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"groups": []}, "0 groups but centres of shape"),
        ({"groups": [{"name": "a"}] * 3}, "its settings are incomplete"),
        ({"provenance": {}}, "its settings are incomplete"),
        ({"provenance": None}, "its settings are incomplete"),
        ({"groups": [make_group(size=size) for size in (2, -1, 3)]}, "a group has values of wrong types or below 0"),
        ({"groups": [make_group(answers={"a": -1})] * 3}, "a group has values of wrong types or below 0"),
    ],
)
def test_incomplete_settings_are_damage(grouping, tmp_path, changes, message):
    grouping.save(tmp_path / "saved")
    file = tmp_path / "saved" / "grouping.json"
    write_metadata(file, json.loads(file.read_text()) | changes)
    with pytest.raises(InputError, match=f"is damaged: {message}"):
        Grouping.load(tmp_path / "saved")


def list_places(value, place=()):
    """List the keys that lead to each part of a JSON value; of a list, only its first item."""
    yield place
    items = value.items() if isinstance(value, dict) else enumerate(value[:1]) if isinstance(value, list) else ()
    for key, item in items:
        yield from list_places(item, (*place, key))


@pytest.mark.parametrize("wrong_value", [5, None, [], {}, [[]], "x"], ids=repr)
def test_a_setting_of_any_wrong_type_is_damage_or_works(grouping, model, tmp_path, wrong_value):
    grouping.save(tmp_path / "saved")
    file = tmp_path / "saved" / "grouping.json"
    metadata = json.loads(file.read_text())
    for *parents, last in list(list_places(metadata))[1:]:
        changed = parent = json.loads(json.dumps(metadata))
        for key in parents:
            parent = parent[key]
        parent[last] = wrong_value
        write_metadata(file, changed)
        with contextlib.suppress(InbedderError):
            loaded = Grouping.load(tmp_path / "saved")
            loaded.provenance.load_model(model)
            assert repr(loaded) and loaded.assign(TEXTS[:1], embeddings=blobs(SIZES)[:1]).names


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"centres": np.ones((2, 32))}, r"3 groups but centres of shape \(2, 32\)"),
        ({"centres": np.full((3, 32), np.nan)}, "its arrays contain NaN"),
        ({"labels": np.zeros(4, dtype=int)}, r"labels of shape \(4,\) but distances of shape \(90,\)"),
        ({"labels": np.full(90, 3)}, "labels beyond its 3 centres"),
        ({"labels": np.zeros(90)}, "labels of type float64"),
    ],
)
def test_arrays_of_wrong_shapes_are_damage(grouping, tmp_path, change, message):
    for name, array in change.items():
        setattr(grouping, name, array)
    grouping.save(tmp_path / "saved")
    with pytest.raises(InputError, match=message):
        Grouping.load(tmp_path / "saved")


def test_vectors_of_another_length_and_no_text_are_refused(grouping):
    with pytest.raises(InputError, match="have vectors of 32 dimensions, but these have 3"):
        grouping.assign(["a"], embeddings=np.ones((1, 3)))
    with pytest.raises(InputError, match="no text to assign"):
        grouping.assign([])


def test_distances_of_mapped_vectors_come_from_the_encoded_sample(model):
    texts = [f"text {i} of {i % 7} kinds" for i in range(300)]
    mapped = model.encode_guided(texts, "What?", sample=60)
    grouping = Grouping.of(cluster(texts, "What?", model, k=2, embeddings=mapped))
    assert len(grouping.distances) == 60
    assert sum(group.size for group in grouping.groups) == 300


def test_texts_that_fit_no_group_form_no_group_to_assign_to(make_model):
    model = InBedder(make_model("bert"), backbone="instructor")
    vectors = np.concatenate([blobs((60, 40)), scattered(15)])
    result = cluster([f"text {i}" for i in range(115)], None, model, method="hdbscan", embeddings=vectors)
    assert result.names[result.left_out] == "none of these"
    grouping = Grouping.of(result)
    assert len(grouping.groups) == 2
    assert "none of these" not in grouping.names


def test_the_repr_of_a_grouping_holds_no_corpus(grouping):
    assert "text 3" not in repr(grouping)
    assert "'What?'" in repr(grouping)


def test_texts_from_a_pandas_column_keep_its_index(grouping):
    pandas = pytest.importorskip("pandas")
    column = pandas.Series(TEXTS[:20], index=range(100, 80, -1))
    vectors = make_unfitting_vectors(20)
    frame = grouping.assign(column, embeddings=vectors).to_frame()
    assert frame.index.equals(column.index)
    assert frame["text"].equals(column.rename("text"))
    assert grouping.update(column, embeddings=vectors).to_frame().index.equals(column.index)
    assert len(grouping.groups) == 4


@pytest.mark.parametrize("namer", NAMERS)
def test_new_groups_are_named_by_the_saved_namer(model, tmp_path, monkeypatch, namer):
    cluster(TEXTS, "What?", model, k=3, embeddings=blobs(SIZES), namer=namer).save(tmp_path / "saved")
    grouping = Grouping.load(tmp_path / "saved", model)
    assert grouping.provenance.options.namer == namer
    calls = []

    def record_call(name):
        calls.append(name)
        return lambda groups: [f"{namer} {len(groups)}" for _ in groups]

    monkeypatch.setattr("inbedder.grouping.assign.new_groups.find_namer", record_call)
    before = grouping.names
    grouping.update(TEXTS[:30], embeddings=make_unfitting_vectors(30))
    assert calls == [namer]
    assert grouping.names[:3] == before
    assert grouping.names[3].startswith(f"{namer} 4")


def test_a_custom_namer_leaves_new_groups_to_the_phrases(model, tmp_path):
    result = cluster(
        TEXTS, "What?", model, k=3, embeddings=blobs(SIZES), namer=lambda groups: [f"g {i}" for i in range(len(groups))]
    )
    grouping = Grouping.of(result, model)
    assert grouping.provenance.options.namer == "phrases"
    grouping.update(TEXTS[:30], embeddings=make_unfitting_vectors(30))
    assert len(grouping.names) == 4 and grouping.names[3].strip()


def test_the_most_central_answer_names_a_new_group_too(model, monkeypatch):
    grouping = Grouping.of(cluster(TEXTS, "What?", model, k=3, embeddings=blobs(SIZES), namer="central"), model)
    monkeypatch.setattr(type(grouping.provenance), "answer", lambda *_args, **_options: ["late delivery"] * 30)
    grouping.update(TEXTS[:30], embeddings=make_unfitting_vectors(30))
    assert grouping.names[3] == "late delivery"
