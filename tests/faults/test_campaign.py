"""The campaign's own books: what is lost or wrong is counted as such, and can be made again from the seed."""

import importlib
import json
import multiprocessing
import random
import signal
import sys
from argparse import Namespace
from pathlib import Path

import numpy as np
import pytest

SCRIPTS = Path(__file__).parents[2] / "scripts"


@pytest.fixture(scope="module", autouse=True)
def beside_the_scripts():
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONWARNINGS", "")
        for name in ("HF_HUB_OFFLINE", "TOKENIZERS_PARALLELISM", "OMP_NUM_THREADS"):
            patch.setenv(name, "1")
        yield


@pytest.fixture
def faults():
    return importlib.import_module("tests.faults.campaign")


@pytest.fixture
def stage():
    return importlib.import_module("tests.faults.stage")


@pytest.fixture
def uses():
    return importlib.import_module("tests.faults.odd_inputs")


def tally_of(faults, folder, do, numbers=range(4), seed=0):
    return faults.run_kind(faults.Kind("a kind", 10, do), numbers, seed, folder)


def test_a_fault_that_returns_was_survived_and_leaves_no_folder(faults, tmp_path):
    tally = tally_of(faults, tmp_path, lambda fault: (fault.folder / "left").write_text("x") and None)
    assert (tally.attempts, tally.survived, tally.lost, tally.undetected) == (4, 4, [], [])
    assert list(tmp_path.iterdir()) == []


def test_a_wrong_case_is_counted_and_can_be_reproduced(faults, stage, tmp_path):
    right = np.ones((2, 3), np.float32)

    def do(fault):
        fault.note(f"drawn {fault.draw.random():.6f}")
        stage.check_vectors(right * (1.01 if fault.number == 2 else 1), right, "the model")

    tally = tally_of(faults, tmp_path, do, seed=7)
    assert (tally.attempts, tally.survived, len(tally.undetected), tally.lost) == (4, 3, 1, [])
    assert "the model gave vectors that are off by 0.01" in tally.undetected[0]
    assert "--seed 7 --only 'a kind' --number 2" in tally.undetected[0]
    assert tally_of(faults, tmp_path, do, numbers=[2], seed=7).undetected == tally.undetected
    assert tally_of(faults, tmp_path, do, numbers=[2], seed=8).undetected != tally.undetected


@pytest.mark.parametrize("bad", [np.nan, np.inf, 1.001])
def test_vectors_that_differ_are_wrong(faults, stage, bad):
    right = np.ones((2, 3), np.float32)
    stage.check_vectors(right * np.float32(1.000001), right, "it")
    vectors = right.copy()
    vectors[1, 2] = bad
    with pytest.raises(faults.UndetectedError):
        stage.check_vectors(vectors, right, "it")
    with pytest.raises(faults.UndetectedError, match="shape"):
        stage.check_vectors(right[:1], right, "it")


def test_losses_are_counted_and_impossible_faults_are_skipped(faults, tmp_path):
    ends = [faults.Lost("gone"), KeyError("raw"), faults.NotPossible("no mounts"), None]

    def do(fault):
        if ends[fault.number] is not None:
            raise ends[fault.number]

    tally = tally_of(faults, tmp_path, do)
    assert (tally.attempts, tally.survived, len(tally.lost), tally.not_possible) == (3, 1, 2, "no mounts")
    assert "gone" in tally.lost[0]
    assert "raised KeyError" in tally.lost[1]
    table = faults.table_of([tally])
    assert "not possible here: no mounts" in table
    assert table.count("\nlost: ") == 2


def test_faults_for_which_no_time_is_left_are_not_called_survived(faults, tmp_path):
    tally = faults.run_kind(faults.Kind("a kind", 3, lambda _: None), range(3), 0, tmp_path, end=0.0)
    assert (tally.attempts, tally.survived, tally.left_out) == (0, 0, 3)
    assert tally.to_json()["no_time_left_for"] == 3


def test_kinds_take_turns_so_that_a_slow_one_leaves_time_for_the_others(faults, tmp_path, monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(faults.time, "monotonic", lambda: clock[0])
    turns = []

    def make_kind(name, seconds):
        def do(_fault):
            clock[0] += seconds
            turns.append(name)

        return faults.Kind(name, 20, do)

    kinds = [(make_kind("slow", 5.0), range(20)), (make_kind("quick", 0.5), range(20))]
    tallies = {tally.kind: tally for tally in faults.take_turns(kinds, 0, tmp_path, end=29.0)}
    assert turns[:3] == ["slow", "quick", "quick"]
    assert (tallies["quick"].attempts, tallies["quick"].left_out) == (20, 0)
    assert (tallies["slow"].attempts, tallies["slow"].left_out) == (4, 16)


def test_a_short_campaign_takes_an_even_part_of_each_kind(faults):
    kind = faults.Kind("a kind", 60, lambda _: None)
    assert kind.numbers(15) == list(range(60))
    assert kind.numbers(2) == [0, 7, 15, 22, 30, 37, 45, 52]
    assert kind.numbers(0.01) == [0]
    assert faults.Kind("a kind", 60, lambda _: None, thinned=False).numbers(0.01) == list(range(60))


def test_damage_is_decided_by_the_seed_and_changes_the_file(stage, tmp_path):
    vectors = []
    for seed in [*range(30), *range(30)]:
        path = tmp_path / "file"
        path.write_bytes(bytes(range(1, 256)) * 40)
        stage.damage(path, random.Random(seed))
        vectors.append(path.read_bytes() if path.exists() else None)
        assert vectors[-1] != bytes(range(1, 256)) * 40
    assert vectors[:30] == vectors[30:]
    assert None in vectors
    assert b"" in vectors


def test_an_odd_file_that_gives_another_number_of_texts_is_undetected(faults, uses, tmp_path):
    (tmp_path / "t.csv").write_text("text,stars\nI love cats,5\n,4\n")
    uses.check_odd(tmp_path / "t.csv", {"texts": "refused", "skip_bad": 1})
    for expected in ({"texts": 2, "skip_bad": 1}, {"texts": "refused", "skip_bad": 2}):
        with pytest.raises(faults.UndetectedError, match="instead of"):
            uses.check_odd(tmp_path / "t.csv", expected)


def test_outputs_are_compared_exactly_or_up_to_rounding(stage, tmp_path):
    same_file = stage.same_file
    right = np.ones((2, 3), np.float32)
    for name, vectors in (("right", right), ("near", right * np.float32(1.000001)), ("off", right * 2), ("short", right[:1])):
        np.save(tmp_path / f"{name}.npy", vectors)
    assert same_file(tmp_path / "right.npy", tmp_path / "right.npy", loosely=False)
    assert same_file(tmp_path / "near.npy", tmp_path / "right.npy", loosely=True)
    assert not same_file(tmp_path / "near.npy", tmp_path / "right.npy", loosely=False)
    assert not same_file(tmp_path / "off.npy", tmp_path / "right.npy", loosely=True)
    assert not same_file(tmp_path / "short.npy", tmp_path / "right.npy", loosely=True)


def test_a_run_that_ignores_the_signal_is_lost(faults, tmp_path):
    runs = importlib.import_module("tests.faults.forked_runs")
    fault = faults.Fault("a kind", 0, 0, tmp_path)
    speeds = iter((0.5, 0.25, 0.125))
    moments = []

    def faster_and_faster(moment):
        moments.append(moment)
        remaining = next(speeds, None)
        return runs.Done(0, remaining, "") if remaining else runs.Done(143, moment, "", was_working=True)

    assert runs.end_one(fault, 15, 2.0, faster_and_faster).code == 143
    assert moments == sorted(moments, reverse=True)
    assert len(moments) == 4
    with pytest.raises(faults.Lost, match="had no effect"):
        runs.end_one(fault, 15, 1.0, lambda moment: runs.Done(0, moment + 5.0, "", was_working=True))
    with pytest.raises(faults.NotPossible):
        runs.end_one(fault, 15, 1.0, lambda moment: runs.Done(0, moment / 2, ""))


def run_writer(folder, at):
    """Write an output in another process that is killed before a file operation; return its exit code and its operations."""
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    writer = importlib.import_module("tests.faults.folder_kills").write_and_count
    process = context.Process(target=writer, args=("an output", "", str(folder), at, sender))
    process.start()
    sender.close()
    process.join(100)
    return process.exitcode, receiver.recv() if process.exitcode == 0 else None


def test_a_writer_is_killed_before_the_file_operation_drawn(tmp_path):
    folder = tmp_path / "target"
    folder.mkdir()
    assert run_writer(folder, 0) == (-signal.SIGKILL, None)
    assert list(folder.iterdir()) == []
    code, count = run_writer(folder, None)
    assert code == 0
    assert count >= 2
    assert [path.name for path in folder.iterdir()] == ["vectors.npy"]


def test_a_vector_that_depends_on_its_neighbours_is_undetected(faults, tmp_path):
    module = importlib.import_module("tests.faults.neighbours")

    class Model:
        def __init__(self, shift):
            self.shift = shift

        def encode(self, texts, _instruction, **_options):
            return np.ones((len(texts), 4), np.float32) + self.shift * len(texts)

    source = module.Neighbours(Namespace(models={"opt": tmp_path}))
    for shift, num_survived in ((0.0, 3), (0.1, 0)):
        source.load = lambda _name, _number, shift=shift: Model(shift)
        tally = tally_of(faults, tmp_path / str(shift), source.use, numbers=range(3))
        assert (tally.survived, len(tally.undetected)) == (num_survived, 3 - num_survived)


def test_hostile_bodies_stay_below_the_servers_limit():
    from inbedder.server.settings import Settings

    module = importlib.import_module("tests.faults.hostile_cases")
    body = module._fill('{"input": [', "null", "]}", 1000)
    assert set(json.loads(body)["input"]) == {None}
    assert 990 < len(body) <= 1000
    assert Settings().max_body_bytes > module.MAX_BODY_BYTES


def test_the_exit_code_tells_of_a_bad_end(faults, monkeypatch, tmp_path, capsys):
    main_module = importlib.import_module("tests.faults.__main__")
    tallies = [faults.Tally("a kind", attempts=2, survived=2)]
    monkeypatch.setattr(main_module, "campaign", lambda _options, _folder: (tallies, {}))
    monkeypatch.setenv("FAULTS_FOLDER", str(tmp_path))
    assert main_module.main(["-o", str(tmp_path / "results.json")]) == 0
    tallies.append(faults.Tally("another", attempts=1, undetected=["a case"]))
    assert main_module.main(["-o", str(tmp_path / "results.json")]) == 1
    results = json.loads((tmp_path / "results.json").read_text())
    assert results["total"] == {"attempts": 3, "survived": 2, "lost": 0, "undetected": 1}
    assert results["undetected"] == ["a case"]
    assert "undetected: a case" in capsys.readouterr().out


def test_the_committed_results_hold_a_whole_campaign_and_nothing_lost():
    results = json.loads((SCRIPTS / "results" / "faults.json").read_text())
    assert results["total"]["attempts"] == results["total"]["survived"] >= 1500
    assert results["lost"] == results["undetected"] == []
    assert not any("no_time_left_for" in kind for kind in results["kinds"])
    assert results["memory"]["lines"] == 1_000_000
    assert results["memory"]["flat"]


def test_a_lane_leaves_out_kinds_that_were_not_asked_for(faults, tmp_path):
    main_module = importlib.import_module("tests.faults.__main__")
    kinds = [faults.Kind(name, 2, lambda _: None) for name in ("damaged cache", "kill")]
    options = Namespace(only="damaged", number=1, minutes=15, seed=0)
    tallies = main_module.run_lane(kinds, options, tmp_path, sys.maxsize)
    assert [(tally.kind, tally.attempts) for tally in tallies] == [("damaged cache", 1)]
