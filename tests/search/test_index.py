import logging

import numpy as np
import pytest

from inbedder import InBedder
from inbedder.errors import InputError
from inbedder.search import Index
from inbedder.search import index as index_module
from inbedder.search.model_vectors import column_of
from inbedder.vector_spec import VectorSpec
from tests.search.conftest import QUESTION, REVIEWS

OTHER = "What product is it?"


def texts_of(index):
    return sorted(index.storage.table.to_arrow()["text"].to_pylist())


def test_every_row_is_kept_once_with_typed_columns(index):
    table = index.storage.table.to_arrow()
    assert table["text"].to_pylist() == [row["text"] for row in REVIEWS]
    assert table["stars"].to_pylist() == [1, 5, 2, 1, 1, 4]
    assert table["shop"].to_pylist() == [row["shop"] for row in REVIEWS]
    assert len(set(table["id"].to_pylist())) == len(REVIEWS)
    assert str(table.schema.field("generic").type) == "fixed_size_list<item: float>[32]"
    assert index.verify() == []


def test_generic_vectors_are_what_the_model_encodes_without_an_instruction(index, tiny):
    held = np.array(index.storage.table.to_arrow()["generic"].to_pylist())
    expected = tiny.encode([row["text"] for row in REVIEWS], normalize_embeddings=True)
    np.testing.assert_allclose(held, expected, atol=1e-5)


def test_metadata_name_the_model_and_its_settings(index, tiny):
    assert VectorSpec.from_json(index.storage.table.schema.metadata[b"inbedder"]) == tiny.spec


def test_adding_the_same_rows_again_adds_nothing(index):
    assert index.add(REVIEWS) == 0
    assert index.add([*REVIEWS, {"text": "Brand new", "stars": 3}]) == 1
    assert len(index) == len(REVIEWS) + 1


def test_adding_a_column_that_is_not_there_is_refused_by_name(index):
    with pytest.raises(InputError, match="no column 'colour'"):
        index.add([{"text": "Red", "colour": "red"}])


def test_adding_a_value_of_another_type_is_refused_by_name(index):
    with pytest.raises(InputError, match="Column 'stars' holds int64"):
        index.add([{"text": "Fine", "stars": "many"}])
    assert len(index) == len(REVIEWS)


def test_batches_are_committed_one_by_one_and_a_broken_add_goes_on(index, monkeypatch):
    monkeypatch.setattr(index_module, "BATCH", 2)
    new = [{"text": f"Row number {number}"} for number in range(6)]
    append, done = index.storage.append, []

    def fails_at_the_third(rows):
        if len(done) == 2:
            raise KeyboardInterrupt
        done.append(rows)
        append(rows)

    monkeypatch.setattr(index.storage, "append", fails_at_the_third)
    with pytest.raises(KeyboardInterrupt):
        index.add(new)
    assert len(index) == len(REVIEWS) + 4
    monkeypatch.setattr(index.storage, "append", append)
    assert index.add(new) == 2
    assert index.verify() == []


def test_a_build_that_was_interrupted_goes_on(tmp_path, tiny, monkeypatch, caplog):
    monkeypatch.setattr(index_module, "BATCH", 2)
    monkeypatch.setattr(index_module.Storage, "compact", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        Index.create(tmp_path / "i", REVIEWS[:4], tiny)
    monkeypatch.undo()
    with caplog.at_level(logging.WARNING):
        unfinished = Index.open(tmp_path / "i", tiny)
    assert "did not finish" in caplog.text
    assert len(unfinished) == 4
    assert "did not finish" in unfinished.verify()[0]
    whole = Index.create(tmp_path / "i", REVIEWS, tiny)
    assert texts_of(whole) == sorted(row["text"] for row in REVIEWS)
    assert whole.verify() == []


def test_a_finished_index_is_not_built_again(index, tiny):
    with pytest.raises(InputError, match="holds an index already"):
        Index.create(index.storage.folder, REVIEWS, tiny)


def test_a_folder_of_other_things_is_refused_and_left_alone(tmp_path, tiny):
    (tmp_path / "photo.png").write_bytes(b"x")
    with pytest.raises(InputError, match="holds no index"):
        Index.create(tmp_path, REVIEWS, tiny)
    assert (tmp_path / "photo.png").read_bytes() == b"x"
    with pytest.raises(InputError, match="holds no index"):
        Index.open(tmp_path)


def test_another_model_is_refused_by_name(index, make_model):
    with pytest.raises(InputError, match=r"was built with '.*bert.*this is '.*roberta"):
        Index.open(index.storage.folder, InBedder(make_model("roberta")))


def test_the_same_model_read_in_another_way_is_refused(index, tiny):
    with pytest.raises(InputError, match="read in another way: layer was -1 and is 1"):
        Index.open(index.storage.folder, tiny.with_pooling(tiny.pooling, layer=1))


def test_an_index_opens_with_the_model_that_it_names(index):
    found = Index.open(index.storage.folder).search("battery", QUESTION, k=2)
    assert found["text"].tolist() == index.search("battery", QUESTION, k=2)["text"].tolist()


def test_deleted_rows_are_gone_and_unknown_ids_are_passed_over(index):
    first, *_ = index.storage.ids()
    assert index.delete([first, "nobody's"]) == 1
    assert first not in index.storage.ids()
    assert len(index) == len(REVIEWS) - 1
    assert index.add(REVIEWS) == 1


def test_an_update_changes_text_vectors_and_columns_of_its_row_alone(index, tiny):
    name = index.instruct(QUESTION)
    before = {row["id"]: row for row in index.storage.table.to_arrow().to_pylist()}
    chosen = index.storage.ids("stars = 2")[0]
    assert index.update([{"id": chosen, "text": "The box was fine", "stars": 4}]) == 1
    after = {row["id"]: row for row in index.storage.table.to_arrow().to_pylist()}
    assert (after[chosen]["text"], after[chosen]["stars"], after[chosen]["shop"]) == ("The box was fine", 4, None)
    expected = tiny.encode("The box was fine", QUESTION, normalize_embeddings=True)
    np.testing.assert_allclose(after[chosen][name], expected, atol=1e-5)
    assert all(after[other] == before[other] for other in before if other != chosen)


def test_an_update_of_an_unknown_row_or_column_is_refused(index):
    with pytest.raises(InputError, match="no row with the id 'nobody'"):
        index.update([{"id": "nobody", "stars": 1}])
    with pytest.raises(InputError, match="no column 'colour'"):
        index.update([{"id": index.storage.ids()[0], "colour": "red"}])


def test_an_instructed_column_holds_the_vectors_under_the_instruction(index, tiny, monkeypatch):
    monkeypatch.setattr(index_module, "BATCH", 4)
    name = index.instruct(QUESTION)
    assert name == column_of(QUESTION) != column_of(OTHER)
    table = index.storage.table.to_arrow()
    expected = tiny.encode(table["text"].to_pylist(), QUESTION, normalize_embeddings=True)
    np.testing.assert_allclose(np.array(table[name].to_pylist()), expected, atol=1e-5)
    assert index.info()["instructions"] == [{"instruction": QUESTION, "read": "all", "missing": 0}]


def test_a_broken_instruct_is_searched_through_and_goes_on(index, monkeypatch):
    expected = index.search("battery", QUESTION, k=6)
    monkeypatch.setattr(index_module, "BATCH", 2)
    merge, done = index.storage.merge, []

    def fails_at_the_second(rows):
        if done:
            raise KeyboardInterrupt
        done.append(rows)
        merge(rows)

    monkeypatch.setattr(index.storage, "merge", fails_at_the_second)
    with pytest.raises(KeyboardInterrupt):
        index.instruct(QUESTION)
    assert index.info()["instructions"][0]["missing"] == 4
    found = index.search("battery", QUESTION, k=6)
    np.testing.assert_allclose(found["score"], expected["score"], atol=1e-5)
    monkeypatch.setattr(index.storage, "merge", merge)
    index.instruct(QUESTION)
    assert index.info()["instructions"][0]["missing"] == 0
    assert len(index) == len(REVIEWS)


def test_rows_added_later_get_their_instructed_vectors_too(index):
    index.instruct(QUESTION)
    index.add([{"text": "Brand new"}])
    assert index.info()["instructions"][0]["missing"] == 0


def test_a_guided_column_reads_a_sample_alone(tmp_path, tiny, monkeypatch):
    texts = [f"The {thing} number {number} is broken" for number in range(30) for thing in ("box", "lamp", "phone", "bed")]
    index = Index.create(tmp_path / "i", texts, tiny)
    read, encode = [], InBedder.encode

    def counting(model, texts, instruction=None, **options):
        read.extend(texts if instruction == QUESTION else [])
        return encode(model, texts, instruction, **options)

    monkeypatch.setattr(InBedder, "encode", counting)
    monkeypatch.setattr("inbedder.encoding.guided.LOW", -1.0)
    monkeypatch.setattr(index_module.guided_map, "__kwdefaults__", {"sample": 1000, "seed": 0, "low": -1.0})
    index.instruct(QUESTION, sample=60)
    assert len(read) == 61  # and one text for the length of a vector
    assert index.info()["instructions"] == [{"instruction": QUESTION, "read": "60", "missing": 0}]
    assert index.verify() == []


def test_compacting_keeps_rows_versions_and_search(index):
    for number in range(4):
        index.add([{"text": f"Another one {number}", "stars": number}])
    before, versions = texts_of(index), index.info()["versions"]
    index.compact()
    assert texts_of(index) == before
    assert index.info()["versions"] >= versions
    assert index.search("another", hybrid=True, k=3)["text"].str.contains("Another").any()


def test_what_another_process_commits_is_shown(index, tiny):
    reader = Index.open(index.storage.folder, tiny)
    index.add([{"text": "Brand new"}])
    assert len(reader) == len(REVIEWS) + 1
    assert reader.search("Brand new", k=1)["text"].tolist() == ["Brand new"]


def test_no_texts_make_no_index(tmp_path, tiny):
    with pytest.raises(InputError, match="at least one text"):
        Index.create(tmp_path / "i", [], tiny)


def test_damage_is_told_by_verify(index):
    data = next((index.storage.folder / "texts.lance" / "data").iterdir())
    data.write_bytes(data.read_bytes()[: data.stat().st_size // 2])
    assert any("cannot be read" in line for line in Index.open(index.storage.folder).verify())


def test_ids_that_are_there_twice_are_told_by_verify(index):
    index.storage.append(index.storage.table.to_arrow().slice(0, 1).replace_schema_metadata(None))
    assert any("more than once" in line for line in index.verify())
