import logging
import subprocess
import sys

import numpy as np
import pytest

from inbedder import InBedder
from inbedder.errors import InputError
from inbedder.search import Index
from inbedder.search import index as index_module
from inbedder.search.model_vectors import name_column
from inbedder.vector_spec import VectorSpec
from tests.search.conftest import QUESTION, REVIEWS

SECOND_QUESTION = "What product is it?"


def list_texts(index):
    return sorted(index.storage.table.to_arrow()["text"].to_pylist())


def test_every_row_is_kept_once_with_typed_columns(index):
    table = index.storage.table.to_arrow()
    assert table["text"].to_pylist() == [row["text"] for row in REVIEWS]
    assert table["stars"].to_pylist() == [1, 5, 2, 1, 1, 4]
    assert table["shop"].to_pylist() == [row["shop"] for row in REVIEWS]
    assert len(set(table["id"].to_pylist())) == len(REVIEWS)
    assert str(table.schema.field("generic").type) == "fixed_size_list<item: float>[32]"
    assert index.verify() == []


def test_the_engine_prints_no_warning_of_a_new_table(make_model, tmp_path):
    script = "import sys; from inbedder.search import Index; Index.create(sys.argv[2], [{'text': 'a'}], sys.argv[1])"
    command = [sys.executable, "-c", script, str(make_model("bert")), str(tmp_path / "index")]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "WARN" not in run.stderr


def test_generic_vectors_are_what_the_model_encodes_without_an_instruction(index, tiny):
    vectors = np.array(index.storage.table.to_arrow()["generic"].to_pylist())
    expected = tiny.encode([row["text"] for row in REVIEWS], normalize_embeddings=True)
    np.testing.assert_allclose(vectors, expected, atol=1e-5)


def test_the_metadata_holds_the_vector_spec(index, tiny):
    assert VectorSpec.from_json(index.storage.table.schema.metadata[b"inbedder"]) == tiny.spec


def test_adding_the_same_rows_again_adds_nothing(index):
    assert index.add(REVIEWS) == 0
    assert index.add([*REVIEWS, {"text": "Brand new", "stars": 3}]) == 1
    assert len(index) == len(REVIEWS) + 1


def test_adding_an_unknown_column_is_refused_by_name(index):
    with pytest.raises(InputError, match="no column 'colour'"):
        index.add([{"text": "Red", "colour": "red"}])


def test_adding_a_value_of_another_type_is_refused_by_name(index):
    with pytest.raises(InputError, match="Column 'stars' holds int64"):
        index.add([{"text": "Fine", "stars": "many"}])
    assert len(index) == len(REVIEWS)


def test_batches_are_committed_one_by_one_and_an_interrupted_add_resumes(index, monkeypatch):
    monkeypatch.setattr(index_module, "BATCH_ROWS", 2)
    new = [{"text": f"Row number {number}"} for number in range(6)]
    append, appended = index.storage.append, []

    def fail_at_the_third(rows):
        if len(appended) == 2:
            raise KeyboardInterrupt
        appended.append(rows)
        append(rows)

    monkeypatch.setattr(index.storage, "append", fail_at_the_third)
    with pytest.raises(KeyboardInterrupt):
        index.add(new)
    assert len(index) == len(REVIEWS) + 4
    monkeypatch.setattr(index.storage, "append", append)
    assert index.add(new) == 2
    assert index.verify() == []


def test_an_interrupted_build_resumes(tmp_path, tiny, monkeypatch, caplog):
    monkeypatch.setattr(index_module, "BATCH_ROWS", 2)
    monkeypatch.setattr(index_module.Storage, "compact", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        Index.create(tmp_path / "i", REVIEWS[:4], tiny)
    monkeypatch.undo()
    with caplog.at_level(logging.WARNING):
        unfinished = Index.open(tmp_path / "i", tiny)
    assert "did not finish" in caplog.text
    assert len(unfinished) == 4
    assert "did not finish" in unfinished.verify()[0]
    index = Index.create(tmp_path / "i", REVIEWS, tiny)
    assert list_texts(index) == sorted(row["text"] for row in REVIEWS)
    assert index.verify() == []


ODD_NAMES = ["a/b", "a[0]", 'a"b', "a'b", "a\nb", "SELECT", "1", "é", "e\u0301", "\u200b", " a "]


@pytest.mark.parametrize("columns", [["a"], ["a", "A"], ["a" * 5000], ODD_NAMES])
def test_an_index_has_columns_of_any_name_that_is_not_refused(tmp_path, tiny, columns):
    index = Index.create(tmp_path / "i", [{"text": "Late", **{name: 3 for name in columns}}], tiny)
    assert set(columns) < set(index.search("late").columns)
    assert index.search("late", where=" AND ".join(f"`{name}` = 3" for name in columns))["text"].tolist() == ["Late"]


def test_refused_data_loads_no_model_and_leaves_no_file(tmp_path, monkeypatch):
    monkeypatch.setattr(InBedder, "__init__", lambda *_, **__: pytest.fail("the model was loaded"))
    (tmp_path / "photo.png").write_bytes(b"x")
    for folder, rows in [("new", [{"text": "Late", "": 1}]), ("new", [{"text": "Late", "a.b": 1}]), (".", REVIEWS)]:
        with pytest.raises(InputError):
            Index.create(tmp_path / folder, rows)
    assert [path.name for path in tmp_path.iterdir()] == ["photo.png"]


def test_a_failed_start_does_not_block_a_build_with_other_columns(tmp_path, tiny, monkeypatch):
    monkeypatch.setattr(index_module.Storage, "append", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        Index.create(tmp_path / "i", [{"text": "Late", "a": 1}], tiny)
    monkeypatch.undo()
    index = Index.create(tmp_path / "i", [{"text": "Late", "b": 1}], tiny)
    assert index.storage.columns == ["id", "text", "b"]
    assert index.verify() == []


def test_a_finished_index_is_not_built_again(index, tiny):
    with pytest.raises(InputError, match="already holds an index"):
        Index.create(index.storage.folder, REVIEWS, tiny)


def test_a_folder_of_other_files_is_refused_and_left_unchanged(tmp_path, tiny):
    (tmp_path / "photo.png").write_bytes(b"x")
    with pytest.raises(InputError, match="holds no index"):
        Index.create(tmp_path, REVIEWS, tiny)
    assert (tmp_path / "photo.png").read_bytes() == b"x"
    with pytest.raises(InputError, match="holds no index"):
        Index.open(tmp_path)


def test_another_model_is_refused_by_name(index, make_model):
    with pytest.raises(InputError, match=r"was built with '.*bert.*this is '.*roberta"):
        Index.open(index.storage.folder, InBedder(make_model("roberta")))


def test_the_same_model_with_other_options_is_refused(index, tiny):
    with pytest.raises(InputError, match="read in another way: layer was -1 and is 1"):
        Index.open(index.storage.folder, tiny.replace(pooling=tiny.pooling, layer=1))


def test_an_index_opens_with_the_model_that_it_names(index):
    rows = Index.open(index.storage.folder).search("battery", QUESTION, k=2)
    assert rows["text"].tolist() == index.search("battery", QUESTION, k=2)["text"].tolist()


def test_deleted_rows_are_gone_and_unknown_ids_are_ignored(index):
    first, *_ = index.storage.list_ids()
    assert index.delete([first, "nobody's"]) == 1
    assert first not in index.storage.list_ids()
    assert len(index) == len(REVIEWS) - 1
    assert index.add(REVIEWS) == 1


def test_an_update_changes_text_vectors_and_columns_of_its_row_only(index, tiny):
    name = index.instruct(QUESTION)
    before = {row["id"]: row for row in index.storage.table.to_arrow().to_pylist()}
    row_id = index.storage.list_ids("stars = 2")[0]
    assert index.update([{"id": row_id, "text": "The box was fine", "stars": 4}]) == 1
    after = {row["id"]: row for row in index.storage.table.to_arrow().to_pylist()}
    assert (after[row_id]["text"], after[row_id]["stars"], after[row_id]["shop"]) == ("The box was fine", 4, None)
    expected = tiny.encode("The box was fine", QUESTION, normalize_embeddings=True)
    np.testing.assert_allclose(after[row_id][name], expected, atol=1e-5)
    assert all(after[name] == before[name] for name in before if name != row_id)


def test_an_update_of_an_unknown_row_or_column_is_refused(index):
    with pytest.raises(InputError, match="no row with the id 'nobody'"):
        index.update([{"id": "nobody", "stars": 1}])
    with pytest.raises(InputError, match="no column 'colour'"):
        index.update([{"id": index.storage.list_ids()[0], "colour": "red"}])


def test_an_instructed_column_holds_the_vectors_under_the_instruction(index, tiny, monkeypatch):
    monkeypatch.setattr(index_module, "BATCH_ROWS", 4)
    name = index.instruct(QUESTION)
    assert name == name_column(QUESTION) != name_column(SECOND_QUESTION)
    table = index.storage.table.to_arrow()
    expected = tiny.encode(table["text"].to_pylist(), QUESTION, normalize_embeddings=True)
    np.testing.assert_allclose(np.array(table[name].to_pylist()), expected, atol=1e-5)
    assert index.info()["instructions"] == [{"instruction": QUESTION, "read": "all", "missing": 0}]


def test_an_interrupted_instruct_is_searchable_and_resumes(index, monkeypatch):
    expected = index.search("battery", QUESTION, k=6)
    monkeypatch.setattr(index_module, "BATCH_ROWS", 2)
    merge, merged = index.storage.merge, []

    def fail_at_the_second(rows):
        if merged:
            raise KeyboardInterrupt
        merged.append(rows)
        merge(rows)

    monkeypatch.setattr(index.storage, "merge", fail_at_the_second)
    with pytest.raises(KeyboardInterrupt):
        index.instruct(QUESTION)
    assert index.info()["instructions"][0]["missing"] == 4
    rows = index.search("battery", QUESTION, k=6)
    np.testing.assert_allclose(rows["score"], expected["score"], atol=1e-5)
    monkeypatch.setattr(index.storage, "merge", merge)
    index.instruct(QUESTION)
    assert index.info()["instructions"][0]["missing"] == 0
    assert len(index) == len(REVIEWS)


def test_rows_added_later_get_their_instructed_vectors_too(index):
    index.instruct(QUESTION)
    index.add([{"text": "Brand new"}])
    assert index.info()["instructions"][0]["missing"] == 0


def test_a_guided_column_encodes_only_a_sample(tmp_path, tiny, monkeypatch):
    texts = [f"The {thing} number {number} is broken" for number in range(30) for thing in ("box", "lamp", "phone", "bed")]
    index = Index.create(tmp_path / "i", texts, tiny)
    encoded_texts, encode = [], InBedder.encode

    def encode_and_record(model, texts, instruction=None, **options):
        encoded_texts.extend(texts if instruction == QUESTION else [])
        return encode(model, texts, instruction, **options)

    monkeypatch.setattr(InBedder, "encode", encode_and_record)
    monkeypatch.setitem(index_module.estimate_vectors.__kwdefaults__, "min_cosine", -1.0)
    index.instruct(QUESTION, sample=60)
    assert len(encoded_texts) == 61  # one more text gives the dimension
    assert index.info()["instructions"] == [{"instruction": QUESTION, "read": "60", "missing": 0}]
    assert index.verify() == []


def test_compacting_keeps_rows_versions_and_search(index):
    for number in range(4):
        index.add([{"text": f"Another one {number}", "stars": number}])
    before, versions = list_texts(index), index.info()["versions"]
    index.compact()
    assert list_texts(index) == before
    assert index.info()["versions"] >= versions
    assert index.search("another", hybrid=True, k=3)["text"].str.contains("Another").any()


def test_an_open_index_shows_what_another_process_commits(index, tiny):
    reader = Index.open(index.storage.folder, tiny)
    index.add([{"text": "Brand new"}])
    assert len(reader) == len(REVIEWS) + 1
    assert reader.search("Brand new", k=1)["text"].tolist() == ["Brand new"]


def test_an_index_without_texts_is_refused(tmp_path, tiny):
    with pytest.raises(InputError, match="at least one text"):
        Index.create(tmp_path / "i", [], tiny)


def test_verify_reports_damage(index):
    data = next((index.storage.folder / "texts.lance" / "data").iterdir())
    data.write_bytes(data.read_bytes()[: data.stat().st_size // 2])
    assert any("cannot be read" in line for line in Index.open(index.storage.folder).verify())


def test_verify_reports_duplicate_ids(index):
    index.storage.append(index.storage.table.to_arrow().slice(0, 1).replace_schema_metadata(None))
    assert any("more than once" in line for line in index.verify())
