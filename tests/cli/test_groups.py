import csv
import errno
import io

import pytest

from inbedder import Grouping
from tests.cli.test_cli import run

REVIEWS = "review\n" + "".join(f"{word} number {i}\n" for i in range(8) for word in ("cat", "parcel", "account"))


@pytest.fixture
def groups(tmp_path, monkeypatch, make_model):
    """Save three groups, and return a function that runs ``inbedder groups``."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "reviews.csv").write_text(REVIEWS)
    options = ("-i", "What?", "-k", "3", "-o", "r.csv", "--save", "groups", "--model", make_model("bert"))
    assert run(monkeypatch, "cluster", "reviews.csv", *options) == 0
    return lambda *arguments: run(monkeypatch, "groups", "groups", *arguments)


def test_groups_are_merged_and_renamed_and_the_list_is_printed(groups, capsys):
    before = Grouping.load("groups")
    capsys.readouterr()
    assert groups("merge", "1", "3", "--name", "both") == 0
    after = Grouping.load("groups")
    assert after.names == ["both", before.names[1]]
    assert after.groups[0].size == before.groups[0].size + before.groups[2].size
    assert groups("rename", "2", "rest") == 0
    assert groups("rename", "REST", "rest of it") == 0
    assert Grouping.load("groups").names == ["both", "rest of it"]
    capsys.readouterr()
    assert groups() == 0
    first_list = capsys.readouterr().out
    assert groups("list") == 0
    assert first_list == (second_list := capsys.readouterr().out)
    assert [line.split(maxsplit=2)[2] for line in second_list.splitlines()] == ["name", "both", "rest of it"]


def test_a_change_says_how_many_texts_changed_group(groups, capsys):
    first, second, _ = ((group.name, group.size) for group in Grouping.load("groups").groups)
    capsys.readouterr()
    assert groups("rename", "1", "new") == 0
    assert "\nNo text changed group.\n" in capsys.readouterr().err
    assert groups("merge", "1", "2") == 0
    message = f"\n{second[1]} texts changed group: new {first[1]} → {first[1] + second[1]}; {second[0]} {second[1]} → 0.\n"
    assert message in capsys.readouterr().err
    label = Grouping.load("groups").assign(["cat number 0"]).labels[0]
    assert groups("move", "reviews.csv", "--row", "1", "--to", str(2 - label)) == 0
    assert "\n1 text changed group: " in capsys.readouterr().err
    assert groups("move", "reviews.csv", "--row", "1", "--to", str(2 - label)) == 0
    assert "\nNo text changed group.\n" in capsys.readouterr().err


def test_a_split_says_how_many_texts_of_the_group_are_in_the_table(groups, capsys):
    grouping = Grouping.load("groups")
    size = grouping.groups[0].size
    texts = REVIEWS.splitlines()[1:]
    members = [text for text, label in zip(texts, grouping.assign(texts).labels, strict=True) if label == 0]
    for count in (size - 2, size - 1):
        with open(f"{count}.csv", "w", encoding="utf-8") as file:
            file.write("review\n" + "\n".join(members[:count]) + "\n")
    capsys.readouterr()
    assert groups("split", "1", f"{size - 2}.csv", "-i", "Which?", "-k", "2") == 1
    assert f"The table holds {size - 2} of the {size} texts of group 1, so nothing was changed." in capsys.readouterr().err
    assert Grouping.load("groups").names == grouping.names
    assert groups("split", "1", f"{size - 1}.csv", "-i", "Which?", "-k", "2") == 0
    assert f"The table holds {size - 1} of the {size} texts of group 1. The new" in capsys.readouterr().err


class FullDisk(io.StringIO):
    def write(self, _text):
        raise OSError(errno.ENOSPC, "No space left on device")


def test_what_was_saved_is_said_though_the_list_cannot_be_written(groups, monkeypatch, capsys):
    with monkeypatch.context() as patches:
        patches.setattr("sys.stdout", FullDisk())
        assert groups("rename", "1", "new") == 1
    assert "Saved: groups" in capsys.readouterr().err
    assert Grouping.load("groups").names[0] == "new"


def test_a_group_is_split_by_another_question_and_new_texts_follow(groups, monkeypatch, capsys):
    assert groups("split", "1", "reviews.csv", "-i", "Which?", "-k", "2") == 0
    grouping = Grouping.load("groups")
    assert "The table holds" not in capsys.readouterr().err
    assert len(grouping.groups) == 4 and grouping.split_questions == ["Which?"]
    assert run(monkeypatch, "assign", "groups", "reviews.csv", "-o", "out.csv") == 0
    with open("out.csv", newline="", encoding="utf-8") as file:
        assert {row["group_name"] for row in csv.DictReader(file)} == set(grouping.names)


def test_rows_are_moved(groups):
    sizes = [group.size for group in Grouping.load("groups").groups]
    assert groups("move", "reviews.csv", "--row", "1", "--row", "1", "--row", "2", "--to", "3") == 0
    after = Grouping.load("groups")
    assert sum(group.size for group in after.groups) == sum(sizes) and len(after.centres) > 3
    assert after.assign(["cat number 0"]).labels.tolist() == [2]


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("merge", "1"), 1, "at least two groups"),
        (("merge", "1", "9"), 2, "there are 3 groups"),
        (("rename", "0", "x"), 2, "there are 3 groups, and none has the number or name '0'"),
        (("rename", "no such name", "x"), 2, "none has the number or name 'no such name'"),
        (("move", "reviews.csv", "--row", "99", "--to", "1"), 1, "no text in row 99"),
        (("split", "1", "none.csv", "-i", "Which?"), 1, "none.csv"),
    ],
)
def test_wrong_numbers_change_nothing(groups, capsys, arguments, code, message):
    before = Grouping.load("groups").names
    assert groups(*arguments) == code
    assert message in " ".join(capsys.readouterr().err.replace("│", " ").split())
    assert Grouping.load("groups").names == before
