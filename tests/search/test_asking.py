"""Grouping the texts of an index by a new question."""

import json
import shutil

import numpy as np
import pytest

pytest.importorskip("lancedb")

from inbedder import InBedder, cluster
from inbedder.encoding.guided import encode_general
from inbedder.errors import InputError
from inbedder.search import Index
from inbedder.search.asking import estimate_vectors, read_rows_to_group
from inbedder.vectors.vectors import normalize_vectors
from tests.search.conftest import QUESTION

SAMPLE = 60
THINGS = ("box", "lamp", "phone", "bed")
ROWS = [
    {"id": str(4 * number + place), "text": f"The {thing} number {number} is broken", "shop": thing[0]}
    for number in range(30)
    for place, thing in enumerate(THINGS)
]


@pytest.fixture(scope="module")
def broken_things(tmp_path_factory, make_model):
    folder = tmp_path_factory.mktemp("asking") / "i"
    return Index.create(folder, ROWS, InBedder(make_model("bert")))


@pytest.fixture
def encoded_texts(monkeypatch):
    texts, encode = [], InBedder.encode

    def encode_and_record(model, rows, instruction=None, **options):
        texts.extend(rows if instruction == QUESTION else [])
        return encode(model, rows, instruction, **options)

    monkeypatch.setattr(InBedder, "encode", encode_and_record)
    return texts


def test_only_the_sample_is_read_however_poor_the_estimate(broken_things, encoded_texts):
    result = broken_things.ask(QUESTION, sample=SAMPLE, k=3)
    texts = {row["text"] for row in ROWS}
    assert len(texts.intersection(encoded_texts)) == SAMPLE
    assert len(result.texts) == len(ROWS)
    assert SAMPLE <= sum(answer != "" for answer in result.answers) < len(ROWS)
    (note,) = (note for note in result.notes if note.startswith(f"{SAMPLE} of {len(ROWS)} texts were read"))
    assert note.endswith("This is too little to rely on: read more of them.") is (result.embeddings.cosine < 0.75)


def test_groups_of_a_sample_of_all_texts_are_those_of_cluster(broken_things):
    result = broken_things.ask(QUESTION, k=3, seed=1)
    direct = cluster([row["text"] for row in ROWS], QUESTION, broken_things.model, k=3, seed=1)
    assert result.labels.tolist() == direct.labels.tolist()
    assert result.answers == direct.answers
    assert not any("were read" in note for note in result.notes)


def test_rows_are_in_the_order_of_their_ids_which_label_the_frame(broken_things):
    frame = broken_things.ask(QUESTION, sample=SAMPLE, k=2).to_frame()
    assert frame.index.tolist() == [row["id"] for row in ROWS]
    assert frame["text"].tolist() == [row["text"] for row in ROWS]


def test_stored_vectors_are_taken_instead_of_an_estimate(tmp_path, make_model, encoded_texts):
    index = Index.create(tmp_path / "i", ROWS, InBedder(make_model("bert")))
    index.instruct(QUESTION)
    encoded_texts.clear()
    result = index.ask(QUESTION, sample=SAMPLE, k=2)
    assert not {row["text"] for row in ROWS}.intersection(encoded_texts)
    expected = normalize_vectors(index.model.encode([row["text"] for row in ROWS], QUESTION))
    np.testing.assert_allclose(result.embeddings, expected, atol=1e-6)
    assert not any("estimated" in note for note in result.notes)


def test_an_index_keeps_two_layers_of_the_base_encoder_for_the_estimate(tmp_path, make_model):
    shutil.copytree(make_model("bert"), tmp_path / "m")
    (tmp_path / "m" / "inbedder.json").write_text(json.dumps({"base_encoder": make_model("headless-bert")}))
    model, texts = InBedder(tmp_path / "m"), [row["text"] for row in ROWS]
    index = Index.create(tmp_path / "i", ROWS, model)
    general = encode_general(model, texts)
    expected = model.encode_guided(texts, QUESTION, sample=SAMPLE, generic=general)
    rows = read_rows_to_group(index.storage, QUESTION)
    estimated = estimate_vectors(model, rows, QUESTION, SAMPLE, min_cosine=-1.0)
    np.testing.assert_allclose(estimated, normalize_vectors(np.asarray(expected)), atol=2e-3)
    assert index.storage.columns == ["id", "text", "shop"]
    assert index.verify() == []
    assert index.search(texts[0], QUESTION, k=1)["text"].tolist() == texts[:1]
    assert len(Index.create(tmp_path / "short", ROWS, model.replace(truncate_dim=8)).ask(QUESTION, k=2).texts) == len(ROWS)


def test_an_empty_index_and_a_small_sample_are_refused(tmp_path, make_model, broken_things):
    index = Index.create(tmp_path / "i", ROWS[:1], InBedder(make_model("bert")))
    index.delete(["0"])
    with pytest.raises(InputError, match="holds no rows"):
        index.ask(QUESTION)
    with pytest.raises(InputError, match="at least 50 texts"):
        broken_things.ask(QUESTION, sample=10)
