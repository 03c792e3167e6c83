import csv
import io
import os
import stat
import sys
from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from typer.testing import CliRunner

from inbedder.cli import app
from inbedder.cli.shared_options import print_message, print_result
from inbedder.errors import InputError

REVIEWS = "id,review,stars\n1,=I love cats,good\n2,-5 for late boxes,bad\n3,How do I top up?,good\n4,I love dogs,good\n"
COMMANDS = {"embed": "v.npy", "answer": "a.csv", "cluster": "r.html"}
NOT_LOADED = ("-i", "What?", "--model", "no/such-model")
"""Arguments with a model that cannot be loaded, for which a command fails with another code."""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "reviews.csv").write_text(REVIEWS)
    return tmp_path


def invoke(*arguments, stdin=None):
    """Run a command; return its exit code and all output on one line."""
    result = CliRunner().invoke(app, [str(argument) for argument in arguments], input=stdin)
    return result.exit_code, " ".join(f"{result.output} {result.exception or ''}".replace("│", " ").split())


def refused(*arguments):
    """Run a command that must end with code 2; return its output."""
    code, output = invoke(*arguments)
    assert code == 2, output
    return output


@pytest.mark.parametrize("link", [None, os.symlink, os.link])
@pytest.mark.parametrize("command", ["answer", "cluster", "embed"])
def test_an_output_that_is_the_input_is_refused_before_any_work(folder, command, link):
    input_path = folder / ("mine.parquet" if command == "embed" else "mine.csv")
    if command == "embed":
        pyarrow.parquet.write_table(pyarrow.table({"text": ["I love cats"]}), input_path)
    else:
        input_path.write_text(REVIEWS)
    content = input_path.read_bytes()
    output = input_path
    if link is not None:
        output = input_path.with_name(f"other{input_path.suffix}")
        link(input_path, output)
    first = ("-o", "first.csv") if command == "cluster" else ()
    assert "is the input itself, which would be overwritten" in refused(
        command, input_path, *first, "-o", output.name, *NOT_LOADED
    )
    assert input_path.read_bytes() == content
    assert not (folder / "first.csv").exists()


def test_evaluate_does_not_replace_its_data(folder):
    (folder / "mine.json").write_text('[{"text": "I love cats", "a": "x", "b": "y"}]')
    output = refused("evaluate", "--data", "mine.json", "--criterion", "a=A?", "--criterion", "b=B?", "-o", "mine.json")
    assert "is the input itself" in output
    assert "I love cats" in (folder / "mine.json").read_text()


def test_a_file_on_standard_input_is_not_replaced(folder, monkeypatch):
    from inbedder.io.files import check_target

    with (folder / "reviews.csv").open() as file:
        monkeypatch.setattr(sys, "stdin", file)
        with pytest.raises(InputError, match="is the input itself"):
            check_target("reviews.csv", ["-"])
        check_target("other.csv", ["-"])


def test_two_outputs_that_are_one_file_are_refused(folder):
    (folder / "link.csv").symlink_to("r.csv")
    assert "two outputs are the same file" in refused("cluster", "reviews.csv", "-o", "r.csv", "-o", "link.csv", *NOT_LOADED)


@pytest.mark.parametrize("command", COMMANDS)
def test_outputs_that_are_no_regular_files_are_refused(folder, command):
    output = folder / COMMANDS[command]
    os.mkfifo(output)
    assert "is a pipe, not a regular file" in refused(command, "reviews.csv", "-o", output.name, *NOT_LOADED)
    assert stat.S_ISFIFO(output.stat().st_mode)
    output.unlink()
    output.symlink_to("/dev/null")
    assert "is a device, not a regular file" in refused(command, "reviews.csv", "-o", output.name, *NOT_LOADED)
    assert output.is_symlink()
    output.unlink()
    output.mkdir()
    assert "is a folder, not a regular file" in refused(command, "reviews.csv", "-o", output.name, *NOT_LOADED)


@pytest.mark.parametrize("command", COMMANDS)
def test_an_unwritable_folder_is_refused_before_the_model_is_loaded(folder, command):
    if not Path("/proc/self").is_dir():
        pytest.skip("needs an unwritable folder")
    assert "Cannot write" in refused(command, "reviews.csv", "-o", f"/proc/self/{COMMANDS[command]}", *NOT_LOADED)


def test_a_job_is_refused_if_its_folder_is_the_input_or_unwritable(folder):
    (folder / "rows").mkdir()
    (folder / "rows" / "reviews.csv").write_text(REVIEWS)
    job = ("--engine", "ray", *NOT_LOADED)
    assert "is the input itself" in refused("embed", "rows", "-o", "./rows", *job)
    assert "give a folder" in refused("embed", "reviews.csv", "-o", "v.npy", *job)
    assert "its folder does not exist" in refused("embed", "reviews.csv", "-o", "no/vectors", *job)
    if Path("/proc/self").is_dir():
        assert "Cannot write" in refused("embed", "reviews.csv", "-o", "/proc/self/vectors", *job)


def test_checks_of_outputs_leave_no_file(folder):
    refused("answer", "reviews.csv", "-o", "reviews.csv", *NOT_LOADED)
    assert invoke("answer", "reviews.csv", "-o", "a.csv", *NOT_LOADED)[0] == 1
    assert sorted(os.listdir(folder)) == ["reviews.csv"]


def test_links_and_modes_of_outputs_stay(folder, make_model):
    (folder / "outputs").mkdir()
    target = folder / "outputs" / "real.npy"
    target.write_text("old")
    target.chmod(0o640)
    (folder / "v.npy").symlink_to("outputs/real.npy")
    assert invoke("embed", "reviews.csv", "-o", "v.npy", "--model", make_model("bert"))[0] == 0
    assert (folder / "v.npy").is_symlink()
    assert np.load(target).shape == (4, 32)
    assert stat.S_IMODE(target.stat().st_mode) == 0o640


def test_texts_that_a_spreadsheet_would_run_are_guarded_by_default(folder, make_model):
    model = ("-i", "What?", "--model", make_model("bert"), "--text-column", "review")
    for command, options in (("answer", ()), ("cluster", ("-k", "2"))):
        assert invoke(command, "reviews.csv", *options, "-o", "out.csv", *model)[0] == 0
        rows = list(csv.DictReader(io.StringIO((folder / "out.csv").read_text())))
        assert [row["review"] for row in rows][:2] == ["'=I love cats", "'-5 for late boxes"]
        assert [row["id"] for row in rows] == ["1", "2", "3", "4"]
        assert invoke(command, "reviews.csv", *options, "-o", "out.csv", "--no-guard-cells", *model)[0] == 0
        rows = list(csv.DictReader(io.StringIO((folder / "out.csv").read_text())))
        assert [row["review"] for row in rows][:2] == ["=I love cats", "-5 for late boxes"]


def test_the_detected_text_column_is_printed(folder, make_model):
    model = ("-i", "What?", "--model", make_model("bert"))
    assert "The texts are in column 'review'." in invoke("embed", "reviews.csv", *model)[1]
    assert "The texts are" not in invoke("embed", "reviews.csv", "--text-column", "review", *model)[1]
    assert "The texts are" not in invoke("answer", "-", *model, stdin="I love cats\n")[1]


def test_no_control_sequence_reaches_the_terminal(folder, make_model, monkeypatch):
    texts = "".join(f"{word}\x1b]0;owned\x07 {word}\x9b2J\n" for word in ("cats", "dogs", "boxes", "birds"))
    (folder / "t.txt").write_text(texts)
    model = ("--model", make_model("bert"), "--backbone", "instructor")
    result = CliRunner().invoke(app, ["cluster", "t.txt", "-i", "\x1b[31mWhat?", "-k", "2", *model])
    assert result.exit_code == 0
    assert not set(result.output) & {"\x1b", "\x07", "\x9b"}
    assert r"\x1b[31mWhat?" in result.output
    result = CliRunner().invoke(app, ["embed", "t.txt", "-o", "\x1b[31m.csv"])
    assert result.exit_code == 2
    assert "\x1b[31m" not in result.output
    monkeypatch.setattr("inbedder.embedder.InBedder.answer", lambda *_, **__: ["\x1b[31mred"] * 4)
    result = CliRunner().invoke(app, ["answer", "t.txt", "-i", "What?", "--model", make_model("bert")])
    assert result.stdout == "\\x1b[31mred\n" * 4


@pytest.mark.parametrize("print_text", [print_message, print_result])
def test_direction_marks_and_control_characters_are_escaped(capsys, print_text):
    marks = "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
    print_text(f"a{marks}\x1b\x9b\x00b \u05e9\tc")
    captured = capsys.readouterr()
    escapes = "".join(f"\\u{ord(mark):04x}" for mark in marks)
    assert captured.out + captured.err == f"a{escapes}\\x1b\\x9b\\x00b \u05e9\tc\n"
