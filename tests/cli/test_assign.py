import csv
import json

import numpy as np
import pytest
import typer

from inbedder import Grouping, InBedder, cluster
from inbedder.cli.assign import check_save_folders, save_groupings
from inbedder.errors import InputError
from tests.cli.test_cli import run

REVIEWS = "id,review,name\n1,I love cats,a\n2,The box was crushed and late,b\n3,How do I top up my account?,c\n4,I love dogs,d\n"
NEW = "review,stars\nI love dogs,5\nA lamp came late,1\n"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "reviews.csv").write_text(REVIEWS)
    (tmp_path / "new.csv").write_text(NEW)
    return tmp_path


@pytest.fixture
def grouping_folder(folder, monkeypatch, make_model):
    """Save the groups of one question."""
    options = (
        "-i",
        "What?",
        "-k",
        "2",
        "-o",
        "r.csv",
        "--save",
        "groups",
        "--text-column",
        "review",
        "--model",
        make_model("opt"),
    )
    assert run(monkeypatch, "cluster", "reviews.csv", *options) == 0
    return folder / "groups"


def rows_of(path):
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_new_rows_get_groups_and_keep_their_columns(folder, grouping_folder, monkeypatch, capsys):
    assert run(monkeypatch, "assign", "groups/", "new.csv", "-o", "assigned.csv") == 0
    rows = rows_of(folder / "assigned.csv")
    assert list(rows[0])[:5] == ["review", "stars", "group", "group_name", "answer"]
    assert list(rows[0])[5:] == ["distance", "typicality", "fits", "nearest_group"]
    assignment = Grouping.load(grouping_folder).assign(["I love dogs", "A lamp came late"])
    assert [int(row["group"]) for row in rows] == (assignment.labels + 1).tolist()
    assert [row["group_name"] for row in rows] == assignment.names
    assert [row["stars"] for row in rows] == ["5", "1"]
    assert "none of these" in capsys.readouterr().err


def test_columns_of_the_user_are_not_replaced(folder, grouping_folder, monkeypatch):
    (folder / "mine.csv").write_text("review,fits\nI love cats,slim\n")
    assert run(monkeypatch, "assign", "groups", "mine.csv", "--text-column", "review", "-o", "assigned.json") == 0
    first = json.loads((folder / "assigned.json").read_text())[0]
    assert first["fits"] == "slim"
    assert first["fits_2"] in (True, False)


def test_several_questions_are_saved_and_assigned_together(folder, monkeypatch, make_model):
    options = ("-i", "What?", "-i", "Who?", "-k", "2", "-o", "r.csv", "--text-column", "review", "--model", make_model("bert"))
    assert run(monkeypatch, "cluster", "reviews.csv", *options, "--save", "groups") == 0
    assert run(monkeypatch, "assign", "groups", "new.csv", "-o", "assigned.csv") == 0
    columns = list(rows_of(folder / "assigned.csv")[0])
    assert [name for name in columns if name.startswith("group")] == [
        "group: What?",
        "group_name: What?",
        "group: Who?",
        "group_name: Who?",
    ]
    assert Grouping.load(folder / "groups" / "2").question == "Who?"
    with pytest.raises(InputError, match=r"Its subfolders do, one per question: .*groups/1, .*groups/2\."):
        Grouping.load(folder / "groups")


def test_update_adds_groups_and_saves_them(folder, grouping_folder, monkeypatch, capsys):
    texts = "".join(f"a wholly other thing, number {i}\n" for i in range(30))
    (folder / "many.txt").write_text(texts)
    grouping = Grouping.load(grouping_folder)
    vectors = np.concatenate([grouping.model.encode(["a wholly other thing, number 3"], "What?")] * 2)
    grouping.centres = -np.concatenate([vectors, vectors])[: len(grouping.groups)] / np.linalg.norm(vectors[0])
    grouping.labels, grouping.distances = np.zeros(40, dtype=np.int64), np.full(40, 0.4, dtype=np.float32)
    grouping.save(grouping_folder)
    assert run(monkeypatch, "assign", "groups", "many.txt") == 0
    assert len(Grouping.load(grouping_folder).groups) == 2
    with monkeypatch.context() as patches:
        patches.setattr(Grouping, "save", lambda *_: (_ for _ in ()).throw(InputError("The disk is full.")))
        assert run(patches, "assign", "groups", "many.txt", "--update", "-o", "first.csv") == 1
    assert len(rows_of(folder / "first.csv")) == 30  # the table is written all the same
    assert "error: The disk is full." in capsys.readouterr().err
    assert run(monkeypatch, "assign", "groups", "many.txt", "--update") == 0
    assert len(Grouping.load(grouping_folder).groups) == 3
    assert "(new)" in capsys.readouterr().err


def test_another_model_is_refused_and_names_both(folder, grouping_folder, monkeypatch, capsys, make_model):
    assert run(monkeypatch, "assign", "groups", "new.csv", "--model", make_model("gpt2")) == 1
    errors = capsys.readouterr().err
    assert "was made with" in errors and "opt" in errors and "gpt2" in errors
    assert not (folder / "assigned.csv").exists()


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("assign", "nowhere", "new.csv"), 1, "holds no grouping"),
        (("assign", "groups", "new.csv", "-o", "new.csv"), 2, "is the input itself"),
        (("assign", "groups", "new.csv", "-o", "a.html"), 2, "give a file that ends in"),
        (("cluster", "new.csv", "-i", "What?", "--save", "."), 2, "holds other files but no grouping"),
        (("cluster", "new.csv", "-i", "A?", "-i", "B?", "--save", "groups"), 2, "does not hold the groups of 2"),
        (("cluster", "new.csv", "-i", "What?", "--method", "umap"), 2, "Unknown method 'umap'"),
        (("cluster", "new.csv", "-i", "What?", "-k", "2", "--method", "hdbscan"), 1, "hdbscan finds the number of groups itself"),
    ],
)
def test_invalid_arguments_are_refused_before_the_model_is_loaded(
    folder, grouping_folder, monkeypatch, capsys, arguments, code, message
):
    monkeypatch.setattr("inbedder.embedder.InBedder.__init__", None)
    assert run(monkeypatch, *arguments) == code
    assert message in " ".join(capsys.readouterr().err.replace("│", " ").split())


def test_a_damaged_grouping_fails_with_a_message(folder, grouping_folder, monkeypatch, capsys):
    path = next(grouping_folder.glob("centres-*.npy"))
    path.write_bytes(path.read_bytes()[:-1])
    assert run(monkeypatch, "assign", "groups", "new.csv") == 1
    assert "is damaged" in capsys.readouterr().err


def test_the_chosen_number_and_the_outline_are_shown(folder, monkeypatch, capsys, make_model):
    (folder / "many.txt").write_text("".join(f"thing {i} of {'red green blue'.split()[i % 3]} kind\n" for i in range(120)))
    options = ("-i", "What?", "-o", "r.html", "--model", make_model("opt"))
    assert run(monkeypatch, "cluster", "many.txt", *options) == 0
    page = (folder / "r.html").read_text(encoding="utf-8")
    assert "groups, chosen from 2 to" in page
    assert "groups, chosen from 2 to" in capsys.readouterr().err
    assert run(monkeypatch, "cluster", "many.txt", *options, "--levels", "4,9", "--method", "agglomerative") == 0
    page = (folder / "r.html").read_text(encoding="utf-8")
    assert page.count('<li class="branch"') == 4
    assert "9 groups in 4 branches" in page
    assert "chosen from" not in page


@pytest.mark.parametrize("saved", [["1"], ["1", "2"], []])
def test_saving_several_questions_again_completes_a_killed_run(folder, make_model, saved):
    grouping = Grouping.of(cluster(["cats", "dogs", "late"], "A?", InBedder(make_model("opt")), k=2))
    (folder / "groups" / "2").mkdir(parents=True)
    (folder / "groups" / "2" / ".labels-0123456789abcdef.npy-inbedder-abcdefgh.npy").write_bytes(b"half")
    for name in saved:
        grouping.save(folder / "groups" / name)
    check_save_folders(folder / "groups", 2)
    with pytest.raises(typer.BadParameter, match="hold"):
        check_save_folders(folder / "groups", 1)
    (folder / "groups" / "3").mkdir()
    with pytest.raises(typer.BadParameter, match="does not hold the groups of 2 questions"):
        check_save_folders(folder / "groups", 2)


def test_groupings_of_several_questions_are_saved_all_or_none(folder, make_model):
    model = InBedder(make_model("bert"))
    texts = ["I love cats", "The box was crushed and late", "How do I top up my account?", "I love dogs"]
    result = cluster(texts, "What?", model, k=2)
    empty_result = cluster(texts, "Why?", model, method="hdbscan")
    with pytest.raises(InputError, match=r"Under 'Why\?' no text fits a group, so there is nothing to save"):
        save_groupings([result, empty_result], folder / "groups")
    assert not (folder / "groups").exists()
