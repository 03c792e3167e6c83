import importlib
import importlib.util
import re
import shlex
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import typer
from mteb.abstasks import AbsTask, AbsTaskRetrieval
from typer.testing import CliRunner

from inbedder.cli.app import app as inbedder_app
from inbedder_evaluation.tasks.sets import read_sets
from inbedder_finetune.registry import read_method
from tests.evaluation.mteb.tiny_mteb import fill
from tests.scripts.stand_ins import FAMILIES, SHORT, SHORT_TRAINING, make_rows, write_data
from tests.scripts.test_run_paper import ROOT, run_paper

PAPERS = {name: run_paper.read_paper(name) for name in run_paper.list_papers()}
STEPS = {name: list(dict.fromkeys(step for part in paper.parts for step in part.steps)) for name, paper in PAPERS.items()}


class ParsedError(Exception):
    """Raised when a script has parsed its arguments."""


def load_program(words):
    """Load the module of a command, and return it with its arguments."""
    launcher = shlex.split(run_paper.LAUNCHER)
    words = words[len(launcher) :] if words[: len(launcher)] == launcher else words
    if words[0] == "inbedder":
        return inbedder_app, words[1:]
    if words[:2] == ["python", "-m"]:
        module, arguments = importlib.import_module(words[2]), words[3:]
        if hasattr(module, "__path__"):
            module = importlib.import_module(f"{words[2]}.__main__")
    else:
        name = Path(words[1]).stem
        spec = importlib.util.spec_from_file_location(name, ROOT / words[1])
        module, arguments = importlib.util.module_from_spec(spec), words[2:]
        spec.loader.exec_module(module)
    if hasattr(module, "typer") and not hasattr(module, "app"):
        module.app = typer.Typer()
        module.app.command()(module.main)
    return getattr(module, "app", module), arguments


def parse(words):
    program, arguments = load_program(words)
    if not isinstance(program, typer.Typer):
        with pytest.MonkeyPatch.context() as patch, pytest.raises(ParsedError):
            parse_args = program.argparse.ArgumentParser.parse_args
            patch.setattr(sys, "argv", ["script", *arguments])
            patch.setattr(program.argparse.ArgumentParser, "parse_args", lambda self: raise_parsed(parse_args(self)))
            program.main()
        return
    command = typer.main.get_command(program)
    while hasattr(command, "commands"):
        command, arguments = command.get_command(None, arguments[0]), arguments[1:]
    command.make_context("command", arguments)


def raise_parsed(_arguments):
    raise ParsedError


def list_settings(words):
    return [words[i + 1] for i, word in enumerate(words) if word == "--set"]


@pytest.mark.parametrize("name", PAPERS)
def test_every_command_and_file_of_a_paper_exists(name):
    paper = PAPERS[name]
    missing = [path for part in paper.parts for path in part.files if not (ROOT / path).exists()]
    links = [link for part in paper.parts for link in re.findall(r"\]\(([^)#]+)\)", part.note)]
    missing += [link for link in links if not link.startswith("http") and not (ROOT / link).exists()]
    assert missing == []
    for step in STEPS[name]:
        words = shlex.split(run_paper._fill(step.command, {"out": "out", "data": "data"}))
        parse(words)
        if step.recipe is not None:
            read_method(step.recipe, list_settings(words))


@pytest.mark.parametrize("name", PAPERS)
def test_a_part_is_ready_only_with_commands(name):
    for part in PAPERS[name].parts:
        assert part.steps if "ready" in part.state else part.note or part.files, part.part


@pytest.mark.parametrize("name", PAPERS)
def test_every_hub_id_of_a_command_has_a_kind(name):
    words = [word for step in STEPS[name] for word in shlex.split(step.command)]
    ids = {word for word in words if re.fullmatch(r"[\w.-]+/[\w.-]+", word) and not (ROOT / word).exists()}
    assert ids <= PAPERS[name].models.keys()


def make_settings(values):
    return [word for setting in values.items() for word in ("--set", "=".join(setting))]


def run_words(words):
    """Run a command in this process; return its error, if any."""
    program, arguments = load_program(words)
    if isinstance(program, typer.Typer):
        result = CliRunner().invoke(program, arguments)
        return f"{result.exception!r}\n{result.output[-800:]}" if result.exit_code else ""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["script", *arguments])
        program.main()
    return ""


class StandIns:
    """Runs commands on tiny models and data."""

    def __init__(self, models, folder, make_model, make_sentence_model):
        self.folders = {"out": str(folder / "out"), "data": str(folder / "data")}
        self.make_model = make_model
        self.encoder, baseline = str(make_sentence_model("t5", "mean", dense=True)), str(make_sentence_model())
        folders = {"instructor": self.encoder, "embedding": baseline} | {kind: make_model(FAMILIES[kind]) for kind in FAMILIES}
        self.models = {model: folders[kind] for model, kind in models.items() if kind != "endpoint"}
        self.finished_commands = {}
        for each in self.folders.values():
            Path(each).mkdir()
        write_data(folder / "data")

    def replace(self, step):
        """Replace models and folders in a step's command, and shorten trainings."""
        command = re.sub(r"/checkpoint-\d+", "", run_paper._fill(step.command, self.folders))
        command = re.sub(r"--size \d+", "--size 4", command)
        command = re.sub(r"--max-new-tokens \d+", "--max-new-tokens 3", command)
        if "inbedder_evaluation.mteb.suite" in command and "--task" not in command:
            command = re.sub(r"--kind \w+", "", command) + " --task STS12"
        words = [self.models.get(word, word) for word in shlex.split(command)]
        if words[1] == "evaluate" and "--protocol" not in words and "--predict" not in words:
            words += ["--seeds", "1"]
        if "csts_experiments.py" in command:
            return [
                *words,
                "--seeds",
                "1",
                *make_settings({"model": self.make_model(FAMILIES["pairs"]), **SHORT_TRAINING, **SHORT["conditional"]}),
            ]
        if step.recipe is None:
            return words
        method, recipe = read_method(step.recipe, list_settings(words))
        name = method.__name__.split(".")[1]
        kind = {"contrastive": None, "conditional": "pairs"}.get(name, "masked" if "roberta" in recipe.model else "causal")
        model = self.make_model(FAMILIES[kind]) if kind else self.encoder
        settings = {"model": model, **SHORT_TRAINING, **SHORT[name]}
        if getattr(recipe, "curriculum", None):
            settings |= {"curriculum.model": model} | ({"curriculum.steps": "100"} if recipe.curriculum.tasks else {})
        return [*words, *make_settings(settings)]

    def run(self, step):
        """Run a step's command, or link the results of an equal one; return what failed."""
        result = Path(run_paper._fill(step.makes, self.folders))
        if step.makes and result.exists():
            return ""
        words = self.replace(step)
        outputs = [word for word in words if self.folders["out"] in word]
        signature = tuple(word for word in words if word not in outputs and not word.startswith("training.seed="))
        if signature in self.finished_commands:
            self.link(outputs, self.finished_commands[signature])
        else:
            self.finished_commands[signature] = outputs
            if failure := run_words(words):
                return f"{shlex.join(words)}\n{failure}"
        return "" if result.exists() else f"{step.command} did not make {step.makes}"

    def link(self, outputs, finished_outputs):
        for output, finished_output in zip(outputs, finished_outputs, strict=True):
            output, finished_output = (Path(path.removeprefix("training.output=")) for path in (output, finished_output))
            if finished_output.exists() and not output.exists():
                output.parent.mkdir(parents=True, exist_ok=True)
                output.symlink_to(finished_output)


@pytest.fixture
def a_tiny_hub(monkeypatch):
    """Serve tiny data in place of the hub's sets and mteb's, and leave out the shipped sets, which are larger."""
    sets = tuple(known_set for known_set in read_sets() if not known_set.shipped)
    monkeypatch.setattr("inbedder_evaluation.tasks.sets.read_sets", lambda: sets)
    monkeypatch.setattr("inbedder_evaluation.tasks.read_sets", lambda: sets)
    monkeypatch.setattr("datasets.load_dataset", lambda *_arguments, **_options: make_rows(12))
    commit = SimpleNamespace(commit_id="05bec95" + 33 * "0")
    monkeypatch.setattr("huggingface_hub.HfApi.list_repo_commits", lambda *_arguments, **_options: [commit])
    for kind in (AbsTask, AbsTaskRetrieval):
        monkeypatch.setattr(kind, "load_data", lambda task, **_options: fill(task))


@pytest.mark.slow
@pytest.mark.parametrize("name", PAPERS)
def test_all_commands_of_a_paper_run_on_tiny_stand_ins(name, tmp_path, a_tiny_hub, make_model, make_sentence_model):
    stand_ins = StandIns(PAPERS[name].models, tmp_path, make_model, make_sentence_model)
    needs_endpoint = {step for step in STEPS[name] if "endpoint" in map(PAPERS[name].models.get, step.models)}
    steps = [
        step for step in STEPS[name] if step not in needs_endpoint and "compare_tours" not in step.command
    ]  # it takes minutes
    failures = [failure for step in steps if (failure := stand_ins.run(step))]
    assert not failures, "\n\n".join(failures)
