import json

import pytest

from inbedder.errors import InputError
from inbedder_evaluation.tasks.corpus import load_corpus, make_corpus, read_corpus

CRITERIA = {"kind": "Which kind?", "mood": "Which mood?"}
ROWS = [
    {"text": "a b", "kind": "x", "mood": "good"},
    {"text": "c d", "kind": "y", "mood": "bad"},
    {"text": "e f", "kind": "x", "mood": "bad"},
    {"text": "e f", "kind": "x", "mood": "bad"},
    {"text": "g h", "kind": float("nan"), "mood": "bad"},
    {"text": "", "kind": "x", "mood": "bad"},
    {"text": "i j", "kind": "y", "mood": None},
]


def test_incomplete_rows_and_repeated_texts_are_left_out_and_counted():
    corpus = make_corpus("toy", ROWS, CRITERIA)
    assert corpus.texts == ["a b", "c d", "e f"]
    assert corpus.labels == (["x", "y", "x"], ["good", "bad", "bad"])
    assert corpus.instructions == ("Which kind?", "Which mood?")
    assert corpus.dropped == 4


def test_the_revision_changes_with_the_rows():
    assert make_corpus("toy", ROWS, CRITERIA).revision == make_corpus("other", ROWS, CRITERIA).revision
    assert make_corpus("toy", ROWS[:3], CRITERIA).revision == make_corpus("toy", ROWS, CRITERIA).revision
    changed = [dict(ROWS[0], text="changed"), *ROWS[1:]]
    assert make_corpus("toy", changed, CRITERIA).revision != make_corpus("toy", ROWS, CRITERIA).revision


@pytest.mark.parametrize(
    ("criteria", "message"),
    [
        ({"kind": "A?", "mod": "B?"}, "No column 'mod' in toy. The columns are: 'text', 'kind', 'mood'"),
        ({"kind": "A?"}, "Two criteria are needed"),
    ],
)
def test_wrong_criteria_are_named(criteria, message):
    with pytest.raises(InputError, match=message):
        make_corpus("toy", ROWS, criteria)


def test_one_class_is_not_enough():
    with pytest.raises(InputError, match=r"column 'kind' has 1 class\(es\) in 2 rows; a criterion needs two"):
        make_corpus("toy", [ROWS[0], ROWS[2]], CRITERIA)


def test_a_table_of_the_users_own_is_read(tmp_path):
    (tmp_path / "mine.csv").write_text("review,kind,mood\nfirst one,x,good\nsecond one,y,bad\nthird one,x,bad\n")
    corpus = read_corpus(str(tmp_path / "mine.csv"), CRITERIA)
    assert corpus.texts == ["first one", "second one", "third one"]
    assert corpus.name == "mine.csv"


def test_bad_rows_of_a_users_table_are_counted(tmp_path, caplog):
    (tmp_path / "mine.csv").write_text('review,kind,mood\nfirst one,x,good\n"open one,x,bad\nsecond one,y,bad\n,x,bad\n')
    assert read_corpus(str(tmp_path / "mine.csv"), CRITERIA).texts == ["first one", "second one"]
    assert caplog.messages == ["mine.csv: 2 bad rows were left out."]


def test_a_known_corpus_is_read_from_its_folder(tmp_path):
    folder = tmp_path / "amazon_multidomain"
    folder.mkdir()
    import gzip

    rows = [{"text": f"t {i}", "domain": "ab"[i % 2], "polarity": "xy"[i // 10]} for i in range(20)]
    with gzip.open(folder / "all.jsonl.gz", "wt") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)
    corpus = load_corpus("amazon_multidomain", tmp_path)
    assert len(corpus.texts) == 20
    assert corpus.instructions[1] == "Is the review positive or negative?"
    assert len(load_corpus("amazon_multidomain", tmp_path, limit=12).texts) == 12
    with pytest.raises(InputError, match="Unknown corpus"):
        load_corpus("nope", tmp_path)


def test_a_table_is_measured_on_as_many_rows_as_asked(tmp_path):
    path = tmp_path / "mine.csv"
    path.write_text("text,kind,mood\n" + "".join(f"t {i},{'ab'[i % 2]},{'xy'[i // 10]}\n" for i in range(20)))
    corpus = read_corpus(str(path), {"kind": "Kind?", "mood": "Mood?"}, "text", 12)
    assert (len(corpus.texts), corpus.name) == (12, "mine.csv (12 rows)")
    assert corpus.texts == read_corpus(str(path), {"kind": "Kind?", "mood": "Mood?"}, "text", 12).texts
    assert len(read_corpus(str(path), {"kind": "Kind?", "mood": "Mood?"}, "text").texts) == 20


def test_the_revision_tells_which_question_belongs_to_which_column():
    swapped = {"mood": CRITERIA["kind"], "kind": CRITERIA["mood"]}
    assert make_corpus("toy", ROWS, swapped).revision != make_corpus("toy", ROWS, CRITERIA).revision


def test_named_instructions_are_resolved():
    corpus = make_corpus("toy", ROWS, {"kind": "@topic", "mood": "Which mood?"})
    assert corpus.instructions == ("What is the topic of the text?", "Which mood?")


def test_labels_in_lists_count_where_there_is_one(tmp_path):
    import gzip

    (tmp_path / "acos_restaurant").mkdir()
    rows = [
        {"text": f"t {i}", "categories": ["FOOD", "PRICE"][: 1 + (i == 3)], "sentiments": [["good"], ["bad"]][i % 2]}
        for i in range(9)
    ]
    rows += [{"text": "u", "categories": ["PRICE"], "sentiments": ["good"]}]
    with gzip.open(tmp_path / "acos_restaurant" / "train.jsonl.gz", "wt") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)
    corpus = load_corpus("acos_restaurant", tmp_path)
    assert len(corpus.texts) == 9
    assert set(corpus.labels[0]) == {"FOOD", "PRICE"}
