import gzip
import json
import math

import pytest

from inbedder.conditional.rated_rows import group_by_pair, is_ordered, read_rated_pairs, select_contrasting
from inbedder.errors import InputError
from inbedder.io.outputs import write_records
from inbedder_finetune.conditional.rated_pairs import (
    PairSampler,
    find_file,
    get_sentences,
    mark_higher_rated,
    sample_pairs,
    split_development,
)
from inbedder_finetune.synthetic.compose import WRITTEN_FOLDER

CSV = """sentence1,sentence2,condition,label
A man rides a red bike,A man drives a red car,The colour of the vehicle,5
A man rides a red bike,A man drives a red car,The kind of vehicle,2
Two dogs sleep,Two cats run,What the animals do,1
Two dogs sleep,Two cats run,The number of animals,5
"""


def write(tmp_path, text=CSV, name="c.csv"):
    (tmp_path / name).write_text(text, encoding="utf-8")
    return tmp_path / name


@pytest.mark.parametrize("kind", ["csv", "tsv", "jsonl", "parquet"])
def test_every_table_format_is_read(tmp_path, kind):
    rows = read_rated_pairs(write(tmp_path))
    names = ("sentence1", "sentence2", "condition", "label")
    write_records([{name: getattr(row, name) for name in names} for row in rows], tmp_path / f"t.{kind}")
    assert read_rated_pairs(tmp_path / f"t.{kind}") == rows
    assert (rows[0].condition, rows[0].label, rows[0].row) == ("The colour of the vehicle", 5.0, 1)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "condition,label",
            "respect,label",
            r"lacks the column condition; it has 'sentence1', 'sentence2', 'respect', 'label'",
        ),
        ("vehicle,2", "vehicle,7", r"c.csv: row 2 has the rating 7 in column 'label', outside 1 to 5. Correct or delete the row"),
        ("vehicle,2", "vehicle,0.5", "row 2 has the rating 0.5 in column 'label', outside 1 to 5"),
        ("vehicle,2", "vehicle,", "row 2 has '' in column 'label', not a rating"),
        ("vehicle,2", "vehicle,nan", "row 2 has 'nan' in column 'label', not a rating"),
        ("What the animals do", " ", r"row 3 has no text in column 'condition' \(it is empty\)"),
        ("vehicle,2", "vehicle,2,9", r"row 2 cannot be read: 5 cells under 4 columns, delimited by ','. Correct"),
    ],
)
def test_bad_rows_are_reported_and_can_be_left_out(tmp_path, old, new, message):
    path = write(tmp_path, CSV.replace(old, new))
    with pytest.raises(InputError, match=message):
        read_rated_pairs(path)
    if "lacks" not in message:
        assert len(read_rated_pairs(path, skip_bad=True)) == 3


def test_an_empty_cell_of_a_typed_table_is_reported(tmp_path):
    lines = [{"sentence1": "a", "sentence2": None, "condition": "c", "label": 3}]
    with pytest.raises(InputError, match=r"row 1 has no text in column 'sentence2' \(it is empty \(NaN\)\)"):
        read_rated_pairs(write(tmp_path, json.dumps(lines[0]) + "\n", "c.jsonl"))
    lines = [{"sentence1": "a", "sentence2": "b", "condition": "c", "label": float("nan")}]
    with pytest.raises(InputError, match="row 1 has nan in column 'label', not a rating"):
        read_rated_pairs(write(tmp_path, json.dumps(lines[0]) + "\n", "d.jsonl"))


def test_hidden_labels_are_reported(tmp_path):
    hidden = "\n".join(line[: line.rfind(",")] + ",-1" for line in CSV.splitlines()[1:])
    with pytest.raises(InputError, match="hides its labels"):
        read_rated_pairs(write(tmp_path, f"{CSV.splitlines()[0]}\n{hidden}\n"))


def test_a_column_split_selects_rows(tmp_path):
    lines = CSV.splitlines()
    text = "\n".join([f"split,{lines[0]}", *(f"train,{line}" for line in lines[1:3]), *(f"test,{line}" for line in lines[3:])])
    path = write(tmp_path, text)
    assert [row.row for row in read_rated_pairs(path, "test")] == [3, 4]
    assert len(read_rated_pairs(path)) == 4
    with pytest.raises(InputError, match=r"has no row of the split 'validation', only of 'train', 'test'. Rename one"):
        read_rated_pairs(path, "validation")


def test_a_pair_is_its_sentences_unless_a_column_names_it(tmp_path):
    assert list(group_by_pair(read_rated_pairs(write(tmp_path))).values()) == [[0, 1], [3, 2]]  # the higher rating first
    lines = CSV.splitlines()
    path = write(tmp_path, "\n".join([f"pair,{lines[0]}", *(f"p1,{line}" for line in lines[1:])]))
    with pytest.raises(InputError, match="Rows 1 and 3 are of pair p1 but have different sentences"):
        group_by_pair(read_rated_pairs(path))


SWAPPED = CSV.replace("Two dogs sleep,Two cats run,What", "Two cats run,Two dogs sleep,What")


def test_swapped_sentences_are_one_pair_unless_named_as_two(tmp_path):
    rows = read_rated_pairs(write(tmp_path, SWAPPED))
    assert list(group_by_pair(rows).values()) == [[0, 1], [3, 2]]
    assert [(row.sentence1, row.label) for row in select_contrasting(rows)[2:]] == [("Two dogs sleep", 5), ("Two cats run", 1)]
    head, *lines = SWAPPED.splitlines()
    one_pair, two_pairs = (
        [f"pair,{head}", *(f"{name},{line}" for name, line in zip(names, lines, strict=True))] for names in ("aabb", "aabc")
    )
    assert list(group_by_pair(read_rated_pairs(write(tmp_path, "\n".join(one_pair))))) == ["a", "b"]
    assert list(group_by_pair(read_rated_pairs(write(tmp_path, "\n".join(two_pairs))))) == ["a", "b", "c"]


# Invented rows with the features of the re-annotated split: decimal ratings, equal ratings, a swapped pair of four rows.
REANNOTATED = """sentence1,sentence2,condition,label
A man rides a red bike,A man drives a red car,The colour of the vehicle,5.0
A man rides a red bike,A man drives a red car,The kind of vehicle,2.0
"Two dogs, asleep",Two cats run,What the animals do,3.0
"Two dogs, asleep",Two cats run,The number of animals,3.0
A girl reads,A boy writes,the room,4.0
A girl reads,A boy writes,the child,2.0
A boy writes,A girl reads,the age,4.0
A boy writes,A girl reads,the deed,1.0
"""


def test_a_file_like_the_reannotated_split_is_read_completely(tmp_path):
    path = tmp_path / "c.csv.gz"
    path.write_bytes(gzip.compress(REANNOTATED.encode()))
    rows = read_rated_pairs(path)
    assert [row.row for row in rows] == list(range(1, 9))
    assert list(group_by_pair(rows).values()) == [[0, 1], [2, 3], [4, 6, 5, 7]]
    assert [row.row for row in select_contrasting(rows)] == [1, 2]
    assert mark_higher_rated(rows) == [True] + [False] * 7
    assert sorted(PairSampler(rows)) == sorted(PairSampler(rows, keep_pairs=False)) == list(range(8))


def test_a_missing_value_of_a_jsonl_row_is_that_rows_error(tmp_path):
    row = {"sentence1": "a", "sentence2": "b", "condition": "c", "label": 3, "split": "test", "pair": float("nan")}
    rows = [
        {key: value for key, value in row.items() if key not in ("label", "split")},
        row,
        row | {"sentence1": "d", "pair": " "},
    ]
    path = write(tmp_path, "\n".join(map(json.dumps, rows)), "c.jsonl")
    assert [pair_row.pair for pair_row in read_rated_pairs(path, "test")] == ["'a' / 'b'", "'b' / 'd'"]
    with pytest.raises(InputError, match="row 1 has None in column 'label', not a rating"):
        read_rated_pairs(path)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("Two dogs sleep,Two cats run,What the animals do,1\n", ""),
        ("The number of animals,5\n", "The number of animals,1\n"),
        ("The number of animals,5\n", "a,5\nTwo dogs sleep,Two cats run,b,4\n"),
    ],
)
def test_one_row_equal_ratings_and_three_rows_have_no_order(tmp_path, old, new):
    rows = read_rated_pairs(write(tmp_path, CSV.replace(old, new)))
    pairs = [[rows[index] for index in indices] for indices in group_by_pair(rows).values()]
    assert [is_ordered(pair_rows) for pair_rows in pairs] == [True, False]
    assert [row.row for row in select_contrasting(rows)] == [1, 2]
    assert [row.row for row, higher in zip(rows, mark_higher_rated(rows), strict=True) if higher] == [1]


def test_contrasting_pairs_have_the_higher_rating_first(tmp_path):
    assert [row.label for row in select_contrasting(read_rated_pairs(write(tmp_path)))] == [5, 2, 5, 1]


def make_rows(count, tmp_path):
    lines = [f"a {i},b {i},{c},{label}" for i in range(count) for c, label in (("x", 1), ("y", 4))]
    return read_rated_pairs(write(tmp_path, "\n".join([CSV.splitlines()[0], *lines])))


def test_larger_samples_of_pairs_contain_smaller_ones(tmp_path):
    rows = make_rows(20, tmp_path)
    small, large = ({row.pair for row in sample_pairs(rows, count, seed=3)} for count in (5, 10))
    assert len(small) == 5 and small < large
    assert all(len(indices) == 2 for indices in group_by_pair(sample_pairs(rows, 5, seed=3)).values())
    assert small != {row.pair for row in sample_pairs(rows, 5, seed=4)}
    assert sample_pairs(rows, None) == rows
    with pytest.raises(InputError, match="Cannot sample 21 pairs from 20"):
        sample_pairs(rows, 21)


def test_development_rows_are_split_off_by_pair(tmp_path):
    head = CSV.splitlines()[0]
    lines = [f"p{i}{c},{a},{b},{c},{label}" for i in range(20) for a, b, c, label in
             ((f"a {i}", f"b {i}", "x", 1), (f"b {i}", f"a {i}", "y", 4))]  # fmt: skip
    rows = read_rated_pairs(write(tmp_path, "\n".join([f"pair,{head}", *lines])))
    training, development = split_development(rows, 5)
    assert (len(training), len(development)) == (30, 10)
    assert not {get_sentences(row) for row in training} & {get_sentences(row) for row in development}
    assert sorted(row.row for row in training + development) == list(range(1, 41))
    assert split_development(rows, 5)[1] == development != split_development(rows, 5, seed=1)[1]
    with pytest.raises(InputError, match=r"data.development_pairs=20 leaves none of 20 pairs for training"):
        split_development(rows, 20)


def test_every_row_is_sampled_once_and_no_pair_spans_two_batches(tmp_path):
    rows = make_rows(11, tmp_path)
    del rows[3], rows[7]  # leaves two rows without a partner
    sampler = PairSampler(rows, seed=1)
    first = list(sampler)
    assert sorted(first) == list(range(20)) and len(sampler) == 20
    batches = [first[i : i + 4] for i in range(0, 20, 4)]
    for pair in group_by_pair(rows).values():
        assert sum(bool(set(batch) & set(pair)) for batch in batches) == 1
    assert first == list(PairSampler(rows, seed=1))
    sampler.set_epoch(1)
    assert list(sampler) != first


def test_the_sampler_puts_the_higher_rating_first(tmp_path):
    rows = make_rows(6, tmp_path)
    order = list(PairSampler(rows))
    assert [rows[index].label for index in order] == [4, 1] * 6
    assert all(rows[a].pair == rows[b].pair for a, b in zip(order[::2], order[1::2], strict=True))


def test_without_pairs_the_rows_come_at_random(tmp_path):
    rows = make_rows(50, tmp_path)
    sampler = PairSampler(rows, keep_pairs=False)
    order = list(sampler)
    assert sorted(order) == list(range(100)) and order == list(sampler)
    assert sum(rows[a].pair == rows[b].pair for a, b in zip(order[::2], order[1::2], strict=True)) < 5
    sampler.set_epoch(1)
    assert list(sampler) != order


def test_a_file_is_found_in_the_folder_or_among_those_shipped(tmp_path):
    assert find_file("opinions.yaml", tmp_path) == WRITTEN_FOLDER / "opinions.yaml"
    (tmp_path / "opinions.yaml").touch()
    assert find_file("opinions.yaml", tmp_path) == tmp_path / "opinions.yaml"
    assert find_file("none.csv", tmp_path) == tmp_path / "none.csv"


def test_hidden_labels_are_read_when_they_are_only_predicted(tmp_path):
    path = write(tmp_path, CSV.replace(",5\n", ",-1\n").replace(",2\n", ",-1.0\n").replace(",1\n", ",-1\n"))
    with pytest.raises(InputError, match=r"hides its labels .* inbedder evaluate --task csts --predict"):
        read_rated_pairs(path)
    rows = read_rated_pairs(path, may_hide_labels=True)
    assert [row.row for row in rows] == [1, 2, 3, 4] and all(math.isnan(row.label) for row in rows)
    partly = write(tmp_path, CSV.replace(",2\n", ",-1\n"), "partly.csv")
    with pytest.raises(InputError, match="row 2 has the rating -1 in column 'label', outside 1 to 5"):
        read_rated_pairs(partly, may_hide_labels=True)


def test_rows_without_conditions_are_rated_from_zero_to_five(tmp_path):
    path = write(tmp_path, "sentence1,sentence2,label\nA cat,A dog,0\nTwo dogs,Two cats,4.6\n")
    with pytest.raises(InputError, match="lacks the column condition"):
        read_rated_pairs(path)
    rows = read_rated_pairs(path, needs_condition=False)
    assert [(row.condition, row.label) for row in rows] == [("", 0.0), ("", 4.6)]
    with pytest.raises(InputError, match="outside 1 to 5"):
        read_rated_pairs(write(tmp_path, CSV.replace(",2\n", ",0\n")), needs_condition=False)
