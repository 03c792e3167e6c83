import csv
import io
import json
import os
import re
import sqlite3
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.main import get_command

from inbedder import InBedder, cli
from inbedder.io.outputs import VectorWriter

REVIEWS = """id,review,stars
1,I love cats,good
2,The box was crushed and late,bad
3,How do I top up my account?,good
4,I love dogs,good
"""


def list_commands(group):
    """List the commands of a group, and those of its subgroups."""
    return (
        [each for command in group.commands.values() for each in (command, *list_commands(command))]
        if hasattr(group, "commands")
        else []
    )


ALL_COMMANDS = list_commands(get_command(cli.app))
COMMANDS = [command for command in get_command(cli.app).commands.values() if not hasattr(command, "commands")]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "reviews.csv").write_text(REVIEWS)
    return tmp_path


def run(monkeypatch, *arguments):
    """Run the command line; return its exit code."""
    monkeypatch.setattr(sys, "argv", ["inbedder", *map(str, arguments)])
    try:
        cli.main()
    except SystemExit as stop:
        return stop.code or 0
    return 0


def test_help_needs_no_torch():
    code = "import sys; sys.argv = ['inbedder', '--help']\nfrom inbedder import cli\ntry: cli.main()\nexcept SystemExit: pass\n"
    code += "heavy = {'torch', 'transformers', 'numpy', 'sklearn', 'mteb', 'inbedder_evaluation.runner'} & set(sys.modules)\n"
    code += "assert not heavy, heavy"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert all(command in result.stdout for command in ("embed", "answer", "cluster", "finetune"))


def test_timings_show_every_stage_also_of_a_failure(folder, monkeypatch, make_model, capsys):
    arguments = ["cluster", "reviews.csv", "-i", "What?", "-k", "2", "--model", make_model("bert"), "--timings"]
    assert run(monkeypatch, *arguments) == 0
    line = capsys.readouterr().err.splitlines()[-1]
    assert re.fullmatch(r"Seconds: (\w+ \d+\.\d(, )?)+; \d+\.\d in all\.", line)
    assert {"loading", "tokenizing", "model", "groups", "page", "other"} <= set(line.split())
    assert run(monkeypatch, *arguments[:-3], "--model", "nowhere", "--timings") == 1
    assert "Seconds: loading" in capsys.readouterr().err
    assert run(monkeypatch, *arguments[:-1]) == 0
    assert "Seconds:" not in capsys.readouterr().err


def test_embed_writes_short_vectors_in_few_bits(folder, monkeypatch, make_model, capsys):
    options = ["-i", "What?", "--model", make_model("bert"), "--truncate-dim", "20"]
    texts = ["I love cats", "The box was crushed and late", "How do I top up my account?", "I love dogs"]
    model = InBedder(make_model("bert"), truncate_dim=20)
    for precision in ("int8", "ubinary"):
        assert run(monkeypatch, "embed", "reviews.csv", *options, "--precision", precision, "-o", "v.npy") == 0
        np.testing.assert_array_equal(np.load("v.npy"), model.encode(texts, "What?", precision=precision))
    assert run(monkeypatch, "embed", "reviews.csv", *options, "--precision", "int8", "--guided", "50", "-o", "v.npy") == 0
    np.testing.assert_array_equal(np.load("v.npy"), model.encode(texts, "What?", precision="int8"))
    assert run(monkeypatch, "embed", "reviews.csv", *options, "--precision", "int4") == 2
    assert run(monkeypatch, "embed", "reviews.csv", *options[:-1], "33") == 1
    assert "truncate_dim=33, but the vectors have 32 dimensions" in capsys.readouterr().err


def test_embed_writes_the_vectors_of_the_library(folder, monkeypatch, make_model, capsys):
    model = make_model("bert")
    assert run(monkeypatch, "embed", "reviews.csv", "-i", "What?", "-o", "v.npy", "--model", model) == 0
    texts = ["I love cats", "The box was crushed and late", "How do I top up my account?", "I love dogs"]
    vectors = np.load(folder / "v.npy", allow_pickle=False)
    assert np.allclose(vectors, InBedder(model).encode(texts, "What?"), atol=1e-6)
    assert "4 vectors of 32 dimensions" in capsys.readouterr().err
    assert run(monkeypatch, "embed", "reviews.csv", "-i", "What?", "-o", "v.parquet", "--model", model) == 0
    import pyarrow.parquet

    table = pyarrow.parquet.read_table(folder / "v.parquet").to_pydict()
    assert table["row"] == [1, 2, 3, 4]
    assert np.allclose(table["embedding"], vectors, atol=1e-6)


def test_answer_prints_a_line_per_text_or_writes_a_table(folder, monkeypatch, make_model, capsys):
    model = make_model("opt")
    assert run(monkeypatch, "answer", "reviews.csv", "-i", "What?", "--model", model) == 0
    assert len(capsys.readouterr().out.split("\n")) == 5
    arguments = ("-n", "2", "--temperature", "1", "-o", "a.jsonl", "--model", model)
    assert run(monkeypatch, "answer", "reviews.csv", "-i", "What?", *arguments) == 0
    rows = [json.loads(line) for line in (folder / "a.jsonl").read_text().splitlines()]
    source = list(csv.DictReader((folder / "reviews.csv").open(encoding="utf-8")))
    assert list(rows[0]) == [*source[0], "answer_1", "answer_2"]
    assert [{name: row[name] for name in source[0]} for row in rows] == source


def test_answer_counts_each_distinct_answer_and_shows_its_first_text(folder, monkeypatch, make_model, capsys):
    (folder / "t.txt").write_text("one\ntwo\nthree\nfour\nfive\n")
    answers = ["late", "Good", "  GOOD", "", " good "]
    monkeypatch.setattr("inbedder.embedder.InBedder.answer", lambda *_, **__: answers)
    arguments = ("answer", "t.txt", "-i", "What?", "--distinct", "--model", make_model("bert"))
    assert run(monkeypatch, *arguments) == 0
    assert capsys.readouterr().out.splitlines() == ["Good\t3\ttwo", "late\t1\tone", "\t1\tfour"]
    assert run(monkeypatch, *arguments, "-o", "a.csv") == 0
    assert (folder / "a.csv").read_text().splitlines() == ["answer,count,text", "Good,3,two", "late,1,one", ",1,four"]
    assert "a.csv: 3 distinct answers to 5 texts." in capsys.readouterr().err
    assert run(monkeypatch, *arguments, "-n", "2") == 2
    assert "leave out -n" in " ".join(capsys.readouterr().err.replace("│", " ").split())


def test_cluster_writes_page_and_table_for_several_instructions(folder, monkeypatch, make_model, capsys):
    arguments = ("-i", "What?", "-i", "Who?", "-k", "2", "-o", "r.html", "-o", "r.csv", "--label-column", "stars")
    assert run(monkeypatch, "cluster", "reviews.csv", *arguments, "--model", make_model("bert")) == 0
    page = (folder / "r.html").read_text(encoding="utf-8")
    assert "What?" in page and "Who?" in page
    lines = (folder / "r.csv").read_text().splitlines()
    assert lines[0].startswith(
        "id,review,stars,group: What?,group_name: What?,answer: What?,fit: What?,between: What?,group: Who?,"
    )
    assert len(lines) == 1 + 4
    assert "Written: r.html, r.csv" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("embed", "none.csv"), 1, "Cannot read 'none.csv'"),
        (("embed", "reviews.csv", "--text-column", "txt"), 1, "No column 'txt'. The columns are: 'id', 'review', 'stars'"),
        (("embed", "reviews.csv", "--model", "no/such-model"), 1, "Check the spelling and the network"),
        (("embed", "reviews.xml"), 1, "unknown file type '.xml'"),
        (("embed", "reviews.csv", "-o", "v.txt"), 2, "give a file that ends in .npy, .parquet"),
        (("embed", "reviews.csv", "-o", "no/folder/v.npy"), 2, "its folder does not exist"),
        (("cluster", "reviews.csv"), 2, "Missing option"),
        *((("cluster", "reviews.csv", "-i", "What?", "-k", k), 2, "give a number or auto") for k in ("many", "²", "9" * 5000)),
        (("cluster", "reviews.csv", "-i", "What?", "-k", "9"), 1, "a number from 1 to 4"),
        (
            ("cluster", "reviews.csv", "-i", "What?", "--split", "sentence", "--top", "2"),
            2,
            "the table has the shares of all groups",
        ),
        (("finetune", "none.yaml"), 1, "Cannot read the recipe none.yaml"),
        (("nonsense",), 2, "No such command"),
    ],
)
def test_a_failure_has_its_code_and_gives_advice(folder, monkeypatch, capsys, make_model, arguments, code, message):
    if arguments[0] == "cluster":
        arguments = (*arguments, "--model", make_model("bert"))
    assert run(monkeypatch, *arguments) == code
    output = " ".join(capsys.readouterr().err.replace("│", " ").split())
    assert message in output
    assert "Traceback" not in output
    assert sorted(os.listdir(folder)) == ["reviews.csv"]


def test_debug_shows_the_traceback(folder, monkeypatch, capsys):
    assert run(monkeypatch, "--debug", "embed", "none.csv") == 1
    assert "Traceback" in capsys.readouterr().err


def test_skipped_rows_are_counted(folder, monkeypatch, capsys, make_model):
    (folder / "reviews.csv").write_text(REVIEWS + "5,,good\n")
    assert run(monkeypatch, "embed", "reviews.csv", "--model", make_model("bert")) == 1
    assert "row 5: column 'review' is empty" in capsys.readouterr().err
    assert run(monkeypatch, "embed", "reviews.csv", "--skip-bad", "--model", make_model("bert")) == 0
    assert "Skipped 1 bad row." in capsys.readouterr().err


def test_a_full_disk_fails_with_a_message_and_leaves_nothing(folder, monkeypatch, capsys, make_model):
    if not Path("/dev/full").exists():
        pytest.skip("needs /dev/full")

    def write_to_a_full_disk(*_args, **_options):
        with open("/dev/full", "wb") as file:
            file.write(b"x")

    monkeypatch.setattr(VectorWriter, "add", write_to_a_full_disk)
    assert run(monkeypatch, "embed", "reviews.csv", "--model", make_model("bert")) == 1
    assert "No space left on device" in capsys.readouterr().err
    assert sorted(os.listdir(folder)) == ["reviews.csv"]


def test_long_texts_are_cut_with_a_plain_warning(folder, monkeypatch, capsys, make_model):
    (folder / "long.txt").write_text("word " * 5000 + "\nshort\n")
    assert run(monkeypatch, "embed", "long.txt", "--model", make_model("bert")) == 0
    assert "warning: 1 of 2 texts were cut at their end" in capsys.readouterr().err


def test_texts_are_embedded_window_by_window(folder, monkeypatch, make_model, capsys):
    texts = [f"text {i % 7} of a few" for i in range(23)] + ["word " * 3000] * 2
    (folder / "many.txt").write_text("\n".join(texts))
    monkeypatch.setattr("inbedder.encoding.prompt_runner.PROMPTS_PER_WINDOW", 4)
    assert run(monkeypatch, "embed", "many.txt", "-i", "What?", "-o", "v.npy", "--model", make_model("bert")) == 0
    with pytest.warns(UserWarning, match="cut"):
        expected = InBedder(make_model("bert")).encode(texts, "What?")
    assert np.allclose(np.load(folder / "v.npy", allow_pickle=False), expected, atol=1e-6)
    assert capsys.readouterr().err.count("2 of 25 texts were cut at their end") == 1


def test_embedding_reads_standard_input(folder, monkeypatch, make_model):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO("a cat 😀\na dog\n".encode())))
    assert run(monkeypatch, "embed", "-", "-i", "What?", "-o", "v.npy", "--model", make_model("bert")) == 0
    assert np.load(folder / "v.npy", allow_pickle=False).shape == (2, 32)


def test_evaluate_takes_a_table_of_the_user(folder, monkeypatch, make_model, capsys):
    rows = [f"{kind} is {mood} number {i},{kind},{mood}" for kind in "ab" for mood in "xy" for i in range(4)]
    (folder / "mine.csv").write_text("\n".join(["text,kind,mood", *rows]))
    arguments = (
        "evaluate",
        "--model",
        make_model("bert"),
        "--data",
        "mine.csv",
        "--seeds",
        "2",
        "--criterion",
        "kind=Which kind?",
    )
    assert run(monkeypatch, *arguments, "--criterion", "mood=Which mood?") == 0
    output = capsys.readouterr()
    assert "The texts are in column 'text'." in output.err
    assert "mine.csv triplets" in output.out and "no instruction" in output.out and "±" in output.out
    first = json.loads((folder / "results.json").read_text())["cells"]
    assert run(monkeypatch, *arguments, "--criterion", "mood=Another question?") == 0
    second = json.loads((folder / "results.json").read_text())["cells"]
    assert second[: len(first)] == first
    assert len(second) == 2 * len(first)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--data", "typo.csv", "--criterion", "a=b"), "There is no typo.csv"),
        (("--data", "reviews.csv"), "needs two criteria"),
        (("--data", "reviews.csv", "--criterion", "stars=Good?", "--criterion", "sters=Bad?"), "No column 'sters'"),
        (("--task", "nope"), "No task is called nope"),
    ],
)
def test_evaluate_refuses_invalid_data(folder, monkeypatch, capsys, arguments, message):
    assert run(monkeypatch, "evaluate", *arguments) == 1
    assert message in capsys.readouterr().err


def test_finetune_runs_a_recipe(folder, monkeypatch, make_model, capsys):
    rows = [{"input": f"I love {w}", "instruction": "What animals?", "output": w} for w in ("cats", "dogs") * 4]
    (folder / "qa.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "r.yaml").write_text(f"model: {make_model('bert')}\nmax_length: 64\ndata: {{sources: [qa.jsonl]}}\n")
    settings = ("--set", "training.max_steps=2", "--set", "training.output=out", "--set", "training.batch_size=4")
    assert run(monkeypatch, "finetune", "r.yaml", *settings) == 0
    assert "Use it: inbedder embed" in capsys.readouterr().err
    assert run(monkeypatch, "embed", "reviews.csv", "--model", "out") == 0


def test_a_cache_is_filled_inspected_verified_and_cleared(folder, monkeypatch, make_model, capsys):
    model = make_model("opt")
    for _ in range(2):
        assert run(monkeypatch, "embed", "reviews.csv", "-i", "What?", "--model", model, "--cache", "cache") == 0
    assert run(monkeypatch, "answer", "reviews.csv", "-i", "What?", "--model", model, "--cache", "cache") == 0
    capsys.readouterr()
    assert run(monkeypatch, "cache", "info", "cache") == 0
    output = capsys.readouterr().out
    assert "4 entries" in output
    assert "vectors, 1st-gen, layer -1" in output
    assert "answers" in output
    assert " MB on disk, no limit; oldest use 20" in output
    assert run(monkeypatch, "cache", "verify", "cache") == 0
    with sqlite3.connect(folder / "cache" / "inbedder.sqlite") as raw:
        raw.execute(
            "UPDATE entries SET data = zeroblob(3) WHERE space = 1 AND key = (SELECT min(key) FROM entries WHERE space = 1)"
        )
    assert run(monkeypatch, "cache", "verify", "cache") == 1
    raw.close()
    assert run(monkeypatch, "cache", "verify", "cache", "--repair") == 0
    assert "repaired; 7 intact entries remain" in capsys.readouterr().err
    assert run(monkeypatch, "cache", "verify", "cache") == 0
    assert run(monkeypatch, "cache", "clear", "cache") == 0
    assert not (folder / "cache").exists()
    assert run(monkeypatch, "cache", "info", "cache") == 2
    assert run(monkeypatch, "cache", "polish", ".") == 2


@pytest.mark.parametrize("command", ["embed", "answer", "cluster"])
def test_the_size_of_a_cache_is_set_once_and_shown(folder, monkeypatch, make_model, capsys, command):
    options = ["-i", "What?", "--model", make_model("opt"), "--cache", "cache"] + (["-k", "2"] if command == "cluster" else [])
    assert run(monkeypatch, command, "reviews.csv", *options, "--cache-size", "5G") == 0
    assert run(monkeypatch, command, "reviews.csv", *options) == 0
    capsys.readouterr()
    assert run(monkeypatch, "cache", "info", "cache") == 0
    assert "of at most 5,000.0 MB" in capsys.readouterr().out
    assert run(monkeypatch, command, "reviews.csv", *options, "--cache-size", "5 apples") == 1
    assert "not a valid cache size" in capsys.readouterr().err


@pytest.mark.parametrize("damage", [b"no database " * 500, b""], ids=["rubbish", "empty"])
def test_a_cache_that_cannot_be_opened_is_reported_and_cleared(folder, monkeypatch, capsys, damage):
    (folder / "cache").mkdir()
    (folder / "cache" / "inbedder.sqlite").write_bytes(damage)
    failed = 1 if damage else 0
    for action in (["info"], ["verify"], ["verify", "--repair"]):
        assert run(monkeypatch, "cache", action[0], "cache", *action[1:]) == failed
        assert ("inbedder cache clear cache" in capsys.readouterr().err) == bool(damage)
    assert run(monkeypatch, "cache", "clear", "cache") == 0
    assert not (folder / "cache").exists()


def test_a_damaged_cache_is_repaired_or_reported_as_not_repaired(folder, monkeypatch, make_model, capsys):
    assert run(monkeypatch, "embed", "reviews.csv", "-i", "What?", "--model", make_model("opt"), "--cache", "cache") == 0
    path = folder / "cache" / "inbedder.sqlite"
    content = path.read_bytes()
    for page in range(len(content) // 4096):
        path.write_bytes(content[: page * 4096] + bytes(4096) + content[(page + 1) * 4096 :])
        repaired = run(monkeypatch, "cache", "verify", "cache", "--repair") == 0
        assert (run(monkeypatch, "cache", "verify", "cache") == 0) == repaired
        assert ("repaired;" in capsys.readouterr().err) <= repaired


def test_guided_encodes_a_sample_and_reports_it(folder, monkeypatch, make_model, capsys):
    (folder / "many.txt").write_text("".join(f"{word} {i}\n" for i in range(40) for word in ("cats", "dogs", "late box")))
    model = make_model("opt")
    assert run(monkeypatch, "embed", "many.txt", "-i", "What?", "--model", model, "--guided", "60", "--normalize") == 0
    assert "60 of 120 texts were encoded under 'What?'" in capsys.readouterr().err
    assert np.allclose(np.linalg.norm(np.load("vectors.npy"), axis=1), 1, atol=1e-5)
    options = ["-i", "What?", "-i", "Why?", "--model", model, "--guided", "60", "-k", "3", "-o", "groups.csv"]
    assert run(monkeypatch, "cluster", "many.txt", *options) == 0
    assert capsys.readouterr().err.count("60 of 120 texts were encoded") == 2
    with (folder / "groups.csv").open(newline="") as file:
        assert len(list(csv.DictReader(file))) == 120


def test_a_model_that_does_not_answer_clusters_with_a_note(folder, monkeypatch, make_model, capsys):
    options = ("--model", make_model("bert"), "--backbone", "instructor")
    arguments = ("-i", "Represent the review:", "-i", "@topic", "-k", "2", "-o", "r.html", "-o", "r.csv")
    assert run(monkeypatch, "cluster", "reviews.csv", *arguments, *options) == 0
    output = capsys.readouterr().err
    assert "does not answer, so the groups are named by the words of their texts" in output
    assert "Most frequent answers" not in (folder / "r.html").read_text(encoding="utf-8")
    rows = list(csv.DictReader((folder / "r.csv").read_text().splitlines()))
    assert len(rows) == 4 and {row["answer: @topic"] for row in rows} == {""} and all(row["group_name: @topic"] for row in rows)
    assert run(monkeypatch, "answer", "reviews.csv", "-i", "What?", *options) == 1
    assert "it embeds and does not answer" in capsys.readouterr().err
    for pooling, code in (("mean", 0), ("1st-gen", 1)):
        assert run(monkeypatch, "embed", "reviews.csv", "-o", "v.npy", "--pooling", pooling, *options) == code
    assert "An embedding model has no pooling '1st-gen'" in capsys.readouterr().err


def test_every_summary_is_a_sentence_that_a_list_of_commands_does_not_cut():
    summaries = [command.help.splitlines()[0] for command in ALL_COMMANDS]
    assert len(summaries) > 25
    assert [line for line in summaries if len(line) >= 45 or not line.endswith(".")] == []


@pytest.mark.parametrize("command", COMMANDS)
def test_help_of_a_command_has_an_example(command):
    examples = [line for line in command.epilog.removeprefix("Example: ").split("\n\n") if line != "Examples:"]
    assert examples and all(line.startswith("inbedder ") and len(line) <= 82 for line in examples)


def test_help_of_cluster_shows_ten_options_three_examples_and_all_names(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "100")
    assert run(monkeypatch, "cluster", "--help") == 0
    short = capsys.readouterr().out
    first = [
        "--instruction",
        "--output",
        "-k",
        "--text-column",
        "--model",
        "--by",
        "--over",
        "--save",
        "--label-column",
        "--title",
    ]
    assert re.findall(r"^│ \*? +(--?[a-z-]+)", short, re.MULTILINE) == [*first, "--help-all", "--help"]
    assert short.count("inbedder cluster reviews.csv") == 3 and "@complaint" in short.split("Named instructions:")[1]
    assert run(monkeypatch, "cluster", "--help-all") == 0
    complete = capsys.readouterr().out
    assert "--min-size" in complete and "--re-enc-n" in complete and "--min-size" not in short
    assert run(monkeypatch, "cluster", "--help") == 0
    assert capsys.readouterr().out == short


@pytest.mark.parametrize(
    "arguments",
    [
        ("answer", "reviews.csv"),
        ("embed", "reviews.csv", "-o", "v.npy"),
        ("cluster", "reviews.csv"),
        ("classify", "reviews.csv", "--into", "a", "--into", "b"),
        ("search", "index", "cats"),
        ("suggest", "reviews.csv"),
        ("compare-wordings", "reviews.csv", "-i", "What?"),
        ("groups", "groups", "split", "1", "reviews.csv"),
    ],
    ids=lambda arguments: arguments[0],
)
@pytest.mark.parametrize(("question", "message"), [("", "question is empty"), (" ", "question is empty"), ("@mood", "@mood")])
def test_no_question_is_refused_before_the_model_is_loaded(folder, monkeypatch, capsys, arguments, question, message):
    monkeypatch.setattr("inbedder.embedder.InBedder.__init__", lambda *_, **__: pytest.fail("a model was loaded"))
    assert run(monkeypatch, *arguments, "-i", question) == 2
    assert message in capsys.readouterr().err


def test_a_long_option_with_one_dash_is_named(folder, monkeypatch, capsys):
    assert run(monkeypatch, "cluster", "reviews.csv", "-i", "What?", "-by", "stars") == 2
    assert "did you mean --by?" in capsys.readouterr().err
    assert run(monkeypatch, "cluster", "reviews.csv", "-i", "What?", "-over=stars") == 2
    assert "did you mean --over?" in capsys.readouterr().err


def test_one_text_is_no_texts(folder, monkeypatch, make_model, capsys):
    (folder / "one.txt").write_text("one row only")
    assert run(monkeypatch, "cluster", "one.txt", "-i", "What?", "-o", "out.csv", "--model", make_model("opt")) == 0
    errors = capsys.readouterr().err
    assert "Reading 1 text under 1 question, and grouping." in errors
    assert errors.count("Too few texts to name a group") == 1 and "form one group" not in errors
