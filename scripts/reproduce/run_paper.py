#!/usr/bin/env python3
"""Run, or list with --dry-run, the commands that reproduce the tables and figures of a paper.

    scripts/reproduce/inbedder.sh --dry-run                       (calls this script)
    scripts/reproduce/inbedder.sh --only "Table 1" --data FOLDER

``PAPER.yaml`` lists every table, figure and method of a paper: its ``state``, the ``steps`` that reproduce it, and a ``note``.
docs/papers.md shows the same lists and explains the states. A step is a ``command`` with placeholders:

- ``{out}`` and ``{data}``: the folders given as --out and --data, relative to the current folder; steps run in the repository
- the keys of the step's ``for``, which runs the command once per value; ``{key_name}`` is the value after its last slash

A training that has left its result (``makes``) is skipped, and results files resume, so a rerun continues after a crash. A failed
step does not stop the others; the failures are listed at the end.
"""

from __future__ import annotations

import argparse
import importlib.util
import itertools
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

INSTALL = "pip install '.[mini]' ./finetune './evaluation[mteb]'"
"""What installs all packages of the steps, in the repository."""

try:
    import yaml

    from inbedder_finetune.recipe import read_settings
except ImportError as error:
    sys.exit(f"error: {sys.executable} has no {error.name}. Run in the repository: {INSTALL}")

ROOT = Path(__file__).resolve().parents[2]
FOLDER = Path(__file__).parent
STATES = ("run here", "ready", "partly ready", "elsewhere", "not possible")
LAUNCHER = "accelerate launch --config_file finetune/inbedder_finetune/fsdp.yaml -m "
"""What a command begins with that trains on several GPUs."""
PACKAGES = {
    "accelerate": "accelerate",
    "--baseline": "mteb",
    "--hub": "datasets",
    "inbedder evaluate": "inbedder_evaluation",
    "inbedder_evaluation.mteb": "mteb",
    "inbedder_evaluation.sweeps": "matplotlib",
    "inbedder_evaluation": "inbedder_evaluation",
}
"""The package that a command with these words imports."""


@dataclass(frozen=True)
class Step:
    """One command of a part."""

    command: str
    """The command line, its placeholders filled except ``{data}`` and ``{out}``."""
    fills: str
    """The cells that it fills."""
    models: tuple[str, ...]
    """The models that it names, or the one that its recipe trains."""
    recipe: str | None
    """The recipe that it trains."""
    data: tuple[str, ...] = ()
    """The data sets that it reads."""
    needs: str = ""
    """The machine that it needs beyond a laptop."""
    makes: str = ""
    """A file or folder whose existence shows that the step is done; "" runs the step again, and its results file resumes."""


@dataclass(frozen=True)
class Part:
    """A table, figure or method of a paper."""

    part: str
    """Its name, such as "Table 1"."""
    content: str
    """What it shows, in a few words."""
    state: str
    """One of ``STATES``."""
    note: str = ""
    """What differs, where the result is, or why it is not possible."""
    files: tuple[str, ...] = ()
    """The files that implement it."""
    steps: tuple[Step, ...] = ()
    """The commands that reproduce it."""


@dataclass(frozen=True)
class Paper:
    """The list of a paper's parts."""

    title: str
    """The heading on the page."""
    models: Mapping[str, str]
    """The kind of each model that a command names."""
    parts: tuple[Part, ...]
    """The parts, in the paper's order."""


def list_papers() -> list[str]:
    """List the names of the papers."""
    return sorted(path.stem for path in FOLDER.glob("*.yaml"))


def read_paper(name: str) -> Paper:
    """Read the list of a paper's parts.

    Args:
        name: One of ``list_papers()``.

    Returns:
        The list, with one step per command.

    Raises:
        ValueError: If an entry has an unknown key or state.
    """
    content = yaml.safe_load((FOLDER / f"{name}.yaml").read_text(encoding="utf-8"))
    models = content["models"] or {}
    return Paper(content["title"], models, tuple(_parse_part(entry, models) for entry in content["parts"]))


def _parse_part(entry: dict[str, Any], models: Mapping[str, str]) -> Part:
    unknown = entry.keys() - {field.name for field in fields(Part)}
    if unknown or entry["state"] not in STATES:
        raise ValueError(f"{entry['part']}: unknown {', '.join(unknown) or entry['state']}.")
    steps = tuple(step for values in entry.get("steps", ()) for step in _expand_step(values, entry["part"], models))
    return Part(**{**entry, "files": tuple(entry.get("files", ())), "steps": steps})


def _expand_step(values: dict[str, Any], part: str, models: Mapping[str, str]) -> Iterator[Step]:
    """Make one step per combination of the values of ``for``."""
    unknown = values.keys() - {"command", "for", "fills", "data", "needs", "makes"}
    if unknown:
        raise ValueError(f"{part}: unknown {', '.join(unknown)}.")
    choices = values.get("for", {})
    for combination in itertools.product(*choices.values()):
        placeholders = {}
        for key, value in zip(choices, combination, strict=True):
            placeholders |= {key: str(value), f"{key}_name": str(value).rsplit("/", 1)[-1]}
        texts = {key: _fill(str(values.get(key, "")), placeholders) for key in ("command", "fills", "needs", "makes")}
        words = shlex.split(texts["command"].removeprefix(LAUNCHER))
        recipe = words[2] if words[:2] == ["inbedder", "finetune"] else None
        named_models = tuple(model for model in models if model in words)
        if recipe is not None:
            named_models = (str(read_settings(recipe)["model"]),)
        data = tuple(map(str, values.get("data", ())))
        yield Step(**{**texts, "fills": texts["fills"] or part}, models=named_models, recipe=recipe, data=data)


def _fill(text: str, placeholders: Mapping[str, str]) -> str:
    for key, value in placeholders.items():
        text = text.replace(f"{{{key}}}", value)
    return text


def describe_step(step: Step, folders: Mapping[str, str]) -> list[str]:
    """Describe a step in lines of plain text: its command, models, recipe, data, cells and machine."""
    details = {
        "models": ", ".join(step.models),
        "recipe": step.recipe or "",
        "data": ", ".join(step.data),
        "fills": step.fills,
        "needs": step.needs,
    }
    return [
        f"  $ {_fill(step.command, quote_folders(folders))}",
        *(f"      {key}: {value}" for key, value in details.items() if value),
    ]


def describe_part(part: Part, folders: Mapping[str, str]) -> list[str]:
    """Describe a part and its steps in lines of plain text; ``folders`` fills placeholders."""
    lines = [f"{part.part}: {part.content} ({part.state})"]
    note = re.sub(r"\[([^]]*)\]\(([^)]*)\)", r"\1 (\2)", part.note)
    lines += [f"  {note}"] if note else []
    lines += [f"  in {', '.join(part.files)}"] if part.files else []
    return [*lines, *(line for step in part.steps for line in describe_step(step, folders))]


def make_page_rows(name: str) -> list[list[str]]:
    """Make the rows of a paper's table in docs/papers.md, the head first."""
    rows = [["part", "content", "state", "commands and recipes", "where, and what differs"]]
    for part in read_paper(name).parts:
        recipes = list(dict.fromkeys(f"`{step.recipe}`" for step in part.steps if step.recipe))
        programs = list(dict.fromkeys(_name_program(step.command) for step in part.steps if not step.recipe))
        programs = [f"recipe{'s' * (len(recipes) > 1)} {', '.join(recipes)}"] * bool(recipes) + programs
        links = ", ".join(f"[{Path(path).name}](../{path})" for path in part.files)
        note = part.note.replace("](", "](../").replace("](../http", "](http")  # the page is in docs/
        rows.append([part.part, part.content, part.state, ", ".join(programs), ". ".join(filter(None, (links, note)))])
    return rows


def _name_program(command: str) -> str:
    """Name the program of a command in Markdown."""
    words = shlex.split(command)
    if words[:2] == ["python", "-m"]:
        subcommand = [word for word in words[3:4] if words[2].endswith(".sweeps")]
        return f"`{' '.join([words[2].removeprefix('inbedder_evaluation.'), *subcommand])}`"
    return f"`{Path(words[1]).name if words[0] == 'python' else ' '.join(words[:2])}`"


def make_argv(command: str) -> list[str]:
    """Make the arguments of a process from a command line; ``inbedder`` and ``python`` run in the current environment."""
    program, *words = shlex.split(command)
    modules = {"inbedder": ["-m", "inbedder"], "accelerate": ["-m", "accelerate.commands.accelerate_cli"], "python": []}
    return [sys.executable, *modules[program], *words]


def find_missing_packages(steps: Iterable[Step]) -> list[str]:
    """Find the packages that steps import and this Python lacks."""
    packages = {package for step in steps for words, package in PACKAGES.items() if words in step.command}
    return sorted(package for package in packages if importlib.util.find_spec(package) is None)


def quote_folders(folders: Mapping[str, str]) -> dict[str, str]:
    """Quote folders for a command line."""
    return {key: shlex.quote(folder) for key, folder in folders.items()}


def run_step(step: Step, folders: Mapping[str, str]) -> str:
    """Run a step, unless what it makes exists.

    Args:
        step: The step.
        folders: The folders for ``{out}`` and ``{data}``.

    Returns:
        Why it failed; "" if it is done.
    """
    command = _fill(step.command, quote_folders(folders))
    if step.makes and Path(ROOT, _fill(step.makes, folders)).exists():
        print(f"done before: {command}")
        return ""
    if "{data}" in command:
        return f"it reads your data, so give --data FOLDER: {step.command}"
    print(f"$ {command}", flush=True)
    code = subprocess.run(make_argv(command), cwd=ROOT, check=False).returncode
    return f"exit code {code}: {command}" if code else ""


def main() -> None:
    """Run or list the steps of a paper."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paper", choices=list_papers())
    parser.add_argument("--dry-run", action="store_true", help="print the steps without running them")
    parser.add_argument("--only", action="append", default=[], help="run only this part, such as 'Table 1'; may repeat")
    parser.add_argument("--data", help="folder of the data sets that cannot be downloaded (evaluation/README.md)")
    parser.add_argument("--out", help="output folder; default: runs/reproduce/PAPER in the repository")
    options = parser.parse_args()
    paper = read_paper(options.paper)
    names = {part.part.lower() for part in paper.parts}
    if unknown := [name for name in options.only if name.lower() not in names]:
        parser.error(f"no part {unknown[0]!r}. Choose from: {', '.join(part.part for part in paper.parts)}.")
    selected_names = {name.lower() for name in options.only} or names
    parts = [part for part in paper.parts if part.part.lower() in selected_names]
    folders = {"out": str(Path(options.out).absolute()) if options.out else f"runs/reproduce/{options.paper}"}
    folders |= {"data": str(Path(options.data).absolute())} if options.data else {}
    if options.dry_run:
        print("\n\n".join("\n".join(describe_part(part, folders)) for part in parts))
        return
    steps = {step: part.part for part in parts for step in part.steps}
    if options.data and not Path(options.data).is_dir():
        sys.exit(f"error: --data {options.data} is not a folder.")
    if missing := find_missing_packages(steps):
        sys.exit(f"error: {sys.executable} has no {', '.join(missing)}. Run in the repository: {INSTALL}")
    try:
        Path(ROOT, folders["out"]).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        sys.exit(f"error: --out {folders['out']} cannot be a folder ({error.strerror}).")
    failures = [f"{name}: {failure}" for step, name in steps.items() if (failure := run_step(step, folders))]
    if failures:
        sys.exit(
            "\n".join(["error: these steps failed. Correct the causes above and rerun; finished steps are skipped.", *failures])
        )


if __name__ == "__main__":
    if hasattr(signal, "SIGPIPE"):
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # stops quietly when ``head`` has read enough
    try:
        main()
    except KeyboardInterrupt:
        sys.exit("error: interrupted. Rerun to continue; finished steps are skipped.")
