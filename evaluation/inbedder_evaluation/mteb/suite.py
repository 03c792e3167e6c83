r"""INSTRUCTOR's measurement on MTEB: 56 English sets, each under its own instruction (INSTRUCTOR paper, tables 2, 9 and 10).

    python -m inbedder_evaluation.mteb.suite --model hkunlp/instructor-large --baseline sentence-transformers/gtr-t5-large \
        --kind STS --kind Classification -o results.json --mteb-results mteb
    python -m inbedder_evaluation.mteb.suite --model hkunlp/instructor-large --wording tag --wording simple -o results.json
    python -m inbedder_evaluation.mteb.suite --model hkunlp/instructor-large --bare-documents --bare-long-texts -o results.json

mteb loads the sets at its own revisions and computes the scores. ``prompts/mteb.yaml`` holds the instructions; every model of
this package gets them, and a baseline runs as mteb runs it. ``--wording`` chooses other words: those of the authors' smaller and
larger model, paraphrases (figure 4), or less detail (figure 5). The table has the paper's numbers for the models it measured.

The authors' code embeds some texts without an instruction. Until November 2023 these were the documents of retrieval sets
(github.com/xlang-ai/instructor-embedding/issues/111), so that the paper's scores of these sets probably have none:
``--bare-documents``. And in clustering they are texts of more than 256 tokens, instruction included: ``--bare-long-texts``. Each
model then has a second column; a set that the two do not change is not measured again.
"""

from __future__ import annotations

import logging
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from inbedder.cli.model_options import with_model_options
from inbedder.errors import InbedderError, InputError, MissingExtraError
from inbedder.io.files import hash_file
from inbedder.models.bundled import resolve_name
from inbedder_evaluation.embedders import Embedder, make_embedders
from inbedder_evaluation.mteb.instructions import NO_INSTRUCTION, WORDINGS, InstructedSet, select_sets
from inbedder_evaluation.mteb.results import save_cells_as_mteb
from inbedder_evaluation.mteb.table import make_suite_table, make_wording_table
from inbedder_evaluation.results import Cell, format_aligned, load_cells, save_cells
from inbedder_evaluation.runner import describe_run
from inbedder_evaluation.tasks.task import TaskInfo, fingerprint

try:
    from inbedder_evaluation.mteb_adapters import AbsEncoder, PromptType, describe, list_texts, load_mteb_model
except MissingExtraError as error:
    if __name__ != "__main__":
        raise
    raise SystemExit(f"error: {error}") from error

if TYPE_CHECKING:
    from mteb.abstasks import AbsTask
    from mteb.abstasks.task_metadata import TaskMetadata
    from torch.utils.data import DataLoader

    from inbedder.vectors.vectors import Vectors

BENCHMARK = "MTEB(eng, v1)"
"""mteb's name of the 56 sets, which fixes the splits and languages."""
MAIN_SCORES = {"PairClassification": "cosine_ap"}
"""Main scores that are not those of today's mteb: the paper takes the average precision of cosines."""


MAX_INSTRUCTED_TOKENS = 256
"""Length of a text with its instruction above which the authors' clustering leaves the instruction out."""


@dataclass(frozen=True)
class BareTexts:
    """Which texts get no instruction, as in the authors' code."""

    documents: bool = False
    """Documents of retrieval sets."""
    long_texts: bool = False
    """Texts of clustering sets that have more than ``MAX_INSTRUCTED_TOKENS`` tokens with the instruction."""

    def __str__(self) -> str:
        """Format the names of both for the name of a model in tables."""
        return ", ".join(["bare documents"] * self.documents + ["bare long texts"] * self.long_texts)

    def changes(self, kind: str) -> bool:
        """Return whether sets of a kind have such texts."""
        return (self.documents and kind == "Retrieval") or (self.long_texts and kind == "Clustering")


@dataclass(frozen=True)
class Candidate:
    """A model under one wording, or a baseline."""

    name: str
    """Name in tables."""
    revision: str
    """Identifies its weights and settings."""
    encoder: Any
    """What mteb evaluates."""
    embedder: Embedder | None = None
    """The model of this package; None for a baseline."""
    wording: str = NO_INSTRUCTION
    """One of ``WORDINGS``."""
    bare_texts: BareTexts = BareTexts()
    """Which texts get no instruction."""
    plain_name: str = ""
    """Name in tables of the same model and wording when every text has its instruction."""


class InstructedEncoder(AbsEncoder):
    """An embedder that mteb can evaluate under the instructions of one wording."""

    def __init__(
        self, embedder: Embedder, sets: Sequence[InstructedSet], wording: str, bare_texts: BareTexts = BareTexts()
    ) -> None:
        """Look up the instructions of all sets.

        Args:
            embedder: The embedder.
            sets: The sets.
            wording: One of ``WORDINGS``.
            bare_texts: Which texts get no instruction.
        """
        self.embedder, self.bare_texts = embedder, bare_texts
        self.instructions = {each.name: each.get_instructions(wording) for each in sets if each.has_wording(wording)}
        self.kinds = {each.name: each.kind for each in sets}
        self.mteb_model_meta = describe("inbedder/suite", embedder.revision)

    def encode(
        self,
        inputs: DataLoader[Any],
        *,
        task_metadata: TaskMetadata,
        prompt_type: PromptType | None = None,
        **_kwargs: Any,
    ) -> Vectors:
        """Embed a set's texts under its instruction.

        Args:
            inputs: Batches with a "text" list each.
            task_metadata: Names the set.
            prompt_type: Query or document, for asymmetric sets.
            **_kwargs: Not used.

        Returns:
            float32, shape (n, d).
        """
        (query, document), texts = self.instructions[task_metadata.name], list_texts(inputs)
        is_document, kind = prompt_type == PromptType.document, self.kinds[task_metadata.name]
        if not self.bare_texts.changes(kind):
            return self.embedder.encode(texts, document if is_document else query)
        if kind == "Retrieval":
            return self.embedder.encode(texts, "" if is_document else query)
        assert self.embedder.count_tokens is not None
        lengths = self.embedder.count_tokens([query + text for text in texts])
        return self.embedder.encode(texts, [query if length <= MAX_INSTRUCTED_TOKENS else "" for length in lengths])


def load_tasks() -> dict[str, AbsTask]:
    """Load mteb's tasks by name, without their data; CQADupstackRetrieval is replaced by its twelve parts."""
    import mteb

    tasks = mteb.get_benchmark(BENCHMARK).tasks
    return {part.metadata.name: part for task in tasks for part in getattr(task, "tasks", [task])}


def make_candidates(
    models: Sequence[str],
    baselines: Sequence[str],
    sets: Sequence[InstructedSet],
    wordings: Sequence[str],
    batch_size: int = 64,
    bare_texts: BareTexts = BareTexts(),
    **options: Any,
) -> Iterator[Candidate]:
    """Load models and baselines one after the other.

    Args:
        models: Names, hub ids or folders of models of this package.
        baselines: Names of models of mteb or sentence-transformers.
        sets: The sets to measure.
        wordings: Some of ``WORDINGS``.
        batch_size: Maximum number of texts in one pass.
        bare_texts: Which texts get no instruction when a model of this package is measured a second time.
        **options: Further arguments of ``InBedder``.

    Yields:
        Each model under each wording, and again with bare texts if there are any, then the baselines.
    """
    for name in models:
        variants = make_embedders(name, batch_size=batch_size, verbatim=True, **options)
        for wording in wordings:
            embedder = variants[-1 if wording == NO_INSTRUCTION else 0]
            suffix = "" if wording in ("large", NO_INSTRUCTION) else f", {wording} wording"
            for choice in [BareTexts()] if wording == NO_INSTRUCTION else dict.fromkeys([BareTexts(), bare_texts]):
                title = ", ".join(filter(None, [embedder.name, str(choice)])) + suffix
                encoder = InstructedEncoder(embedder, sets, wording, choice)
                yield Candidate(title, embedder.revision, encoder, embedder, wording, choice, embedder.name + suffix)
    for name in baselines:
        encoder = load_mteb_model(name, own_prompts=True)
        folder = Path(resolve_name(name))
        files = sorted(folder.rglob("*.safetensors")) if folder.is_dir() else []
        revision = fingerprint([], [hash_file(file) for file in files]) if files else str(encoder.mteb_model_meta.revision)
        yield Candidate(f"{name}, by mteb", revision, encoder)


def measure(
    candidate: Candidate, task: AbsTask, known_set: InstructedSet, finished_cells: Mapping[Any, Cell], batch_size: int = 64
) -> Cell:
    """Measure a model on a set, unless it has been measured before.

    Args:
        candidate: The model.
        task: mteb's task.
        known_set: The set of the task.
        finished_cells: Cells by their key.
        batch_size: Batch size of a baseline.

    Returns:
        The cell; scores times 100.

    Raises:
        InputError: If mteb cannot load the set.
    """
    import mteb

    metadata, embedder = task.metadata, candidate.embedder
    instructions = known_set.get_instructions(candidate.wording)
    data_revision = f"{metadata.revision[:16]} {fingerprint([], instructions)[:8]}"
    key = (candidate.name, candidate.revision, metadata.name, data_revision, "raw", 0)
    if key in finished_cells:
        return finished_cells[key]
    plain_cell = finished_cells.get((candidate.plain_name, *key[1:]))
    if plain_cell is not None and not candidate.bare_texts.changes(known_set.kind):
        return replace(plain_cell, model=candidate.name)
    started = time.time()
    with _load_data(task), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".* is superseded by")
        results = mteb.evaluate(
            candidate.encoder, task, cache=None, encode_kwargs={"batch_size": batch_size}, show_progress_bar=False
        )
    (scores,) = results.task_results[0].scores[task.eval_splits[0]]  # one language each
    numbers = {name: round(100 * float(score), 2) for name, score in scores.items() if isinstance(score, (int, float))}
    info = TaskInfo(
        metadata.name, metadata.main_score, metadata.dataset["path"], data_revision, str(metadata.license), "see mteb"
    )
    return Cell(
        *key,
        main_score=MAIN_SCORES.get(metadata.type, metadata.main_score),
        scores=numbers,
        first_prompt=embedder.prompt("...", instructions[0]) if embedder else "",
        seconds=round(time.time() - started, 1),
        metadata=describe_run(info) | ({"spec": dict(embedder.spec)} if embedder and embedder.spec else {}),
    )


@contextmanager
def _load_data(task: AbsTask) -> Iterator[None]:
    """Load a task's data from the hub unless they are loaded, and free them afterwards."""
    if task.data_loaded:
        yield
        return
    try:
        task.load_data()
    except Exception as error:
        path = task.metadata.dataset["path"]
        raise InputError(f"Cannot read {path} from the hub ({type(error).__name__}: {error}). This needs a network.") from error
    yield
    task.unload_data()


app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
@with_model_options
def main(
    output: Annotated[Path, typer.Option("-o", "--output", help="A .json file; a rerun keeps its finished cells.")],
    model: Annotated[list[str], typer.Option(help="a bundled model, a hub id or a folder; repeatable.")] = [],  # noqa: B006
    baseline: Annotated[list[str], typer.Option(help="Model of mteb or sentence-transformers; repeatable.")] = [],  # noqa: B006
    kind: Annotated[list[str], typer.Option(help="mteb's type of task, such as STS; repeatable. Default: all.")] = [],  # noqa: B006
    task: Annotated[list[str], typer.Option(help="mteb's name of a set; repeatable. Default: all 56.")] = [],  # noqa: B006
    wording: Annotated[list[str], typer.Option(help=f"Words to ask in: {', '.join(WORDINGS)}; repeatable.")] = ["large"],  # noqa: B006
    bare_documents: Annotated[
        bool, typer.Option("--bare-documents", help="Also measure without instruction of retrieval sets' documents.")
    ] = False,
    bare_long_texts: Annotated[
        bool, typer.Option("--bare-long-texts", help="Also measure without that of clustered texts of over 256 tokens.")
    ] = False,
    mteb_results: Annotated[Path | None, typer.Option(help="Folder for the results in mteb's format.")] = None,
    batch_size: Annotated[int, typer.Option(min=1, help="Maximum number of texts in one pass.")] = 64,
    model_options: dict[str, Any] = {},  # noqa: B006 - the decorator fills it
) -> None:
    """Measure models on INSTRUCTOR's 56 sets of MTEB under its instructions."""
    if output.suffix != ".json":
        raise InputError(f"{output}: give a file that ends in .json.")
    if not model and not baseline:
        raise InputError("Give a --model or a --baseline.")
    if unknown := [each for each in wording if each not in WORDINGS]:
        raise InputError(f"There is no wording {unknown[0]!r}. Choose from: {', '.join(WORDINGS)}.")
    sets = [each for each in select_sets(kind, task) if any(map(each.has_wording, wording))]
    if not sets:
        raise InputError("None of these sets has paraphrases; table 6 of the paper gives them for two only. Leave --task out.")
    logging.getLogger("mteb").setLevel(logging.ERROR)  # it recommends newer versions of the paper's sets
    tasks = load_tasks()
    finished_cells = {cell.key: cell for cell in load_cells(output)}
    cells = []
    bare_texts = BareTexts(bare_documents, bare_long_texts)
    for candidate in make_candidates(model, baseline, sets, wording, batch_size, bare_texts, **model_options):
        for each in sets:
            if candidate.embedder and not each.has_wording(candidate.wording):
                continue
            cell = measure(candidate, tasks[each.name], each, finished_cells, batch_size)
            finished_cells[cell.key] = cell
            save_cells(finished_cells.values(), output)
            cells.append(cell)
            typer.echo(f"{cell.task} · {cell.model} · {cell.scores[cell.main_score]:.1f}", err=True)
    if mteb_results is not None:
        save_cells_as_mteb(cells, tasks, mteb_results)
    typer.echo(format_aligned(make_suite_table(cells)))
    if rows := make_wording_table(cells):
        typer.echo(f"\nbest and worst wording\n{format_aligned(rows)}")


if __name__ == "__main__":
    try:
        app()
    except InbedderError as error:
        raise SystemExit(f"error: {error}") from error
