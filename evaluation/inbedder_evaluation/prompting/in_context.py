r"""Prompt retrieval (INSTRUCTOR paper, appendix B.2): a language model answers with the examples that an embedder found.

    python -m inbedder_evaluation.prompting.in_context --model hkunlp/instructor-large \
        --baseline sentence-transformers/gtr-t5-large --language-model EleutherAI/gpt-j-6b --data DATA -o in_context.json

The training examples nearest to a question are put before it, the nearest last, as many as fit into 1,000 tokens. The language
model's answer is right if its first line is the words for the label; the score is the share of right answers. As in the authors'
code, 3,000 training examples and 256 questions are sampled, both sets of vectors are centred, and examples of more than 250
tokens are skipped. The authors take the label of the smallest loss instead of the answer, GPT-2's tokens for the lengths, and
MRPC's validation questions instead of its test questions.
"""

from __future__ import annotations

import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from inbedder.cli.model_options import with_model_options
from inbedder.embedder import InBedder
from inbedder.errors import InbedderError, InputError, ModelError
from inbedder.io.tables import read_rows
from inbedder.prompting.templates import read_prompts
from inbedder.vectors.vectors import Vectors, normalize_vectors
from inbedder_evaluation.embedders import Embedder, count_tokens, make_embedders, make_mteb_embedders
from inbedder_evaluation.results import Cell, format_aligned, load_cells, make_table, save_cells
from inbedder_evaluation.runner import center_vectors, describe_run
from inbedder_evaluation.tasks.sets import find_set
from inbedder_evaluation.tasks.task import Rows, TaskInfo, fingerprint

KIND = "in-context questions"
"""Kind of the sets in ``sets.yaml``."""
NUM_TRAINING_EXAMPLES, NUM_QUESTIONS = 3000, 256
MAX_PROMPT_TOKENS, MAX_EXAMPLE_TOKENS = 1000, 250
NEW_TOKENS = 8
"""Maximum length of an answer in tokens."""
SEPARATOR = "\n\n\n"
"""Between examples."""


@dataclass(frozen=True)
class Questions:
    """A set of questions and of training examples."""

    info: TaskInfo
    """Its name, data and provenance."""
    instruction: str
    """The instruction for INSTRUCTOR models."""
    pool: Sequence[str]
    """Texts of the training examples that are embedded."""
    examples: Sequence[str]
    """The training examples with their labels, as the language model reads them."""
    texts: Sequence[str]
    """Texts of the questions that are embedded."""
    questions: Sequence[str]
    """The questions as the language model reads them, without labels."""
    labels: Sequence[str]
    """The words for the label of each question."""


def load_questions(name: str, folder: Path, seed: int = 0) -> Questions:
    """Load a set and sample from it.

    Args:
        name: A set of this kind in ``sets.yaml``.
        folder: Folder of the known sets.
        seed: Seed of the samples.

    Returns:
        The sampled rows, as ``prompts/in_context.yaml`` writes them.

    Raises:
        InputError: If there is no such set, or a file is missing.
    """
    known_set, form = find_set(KIND, name), read_prompts("in_context")[name]
    splits = []
    for file, limit in ((known_set.train, NUM_TRAINING_EXAMPLES), (known_set.file, NUM_QUESTIONS)):
        path = folder / str(file)
        if not path.is_file():
            raise InputError(f"There is no {path}. scripts/data/get_data.py says where its rows come from.")
        rows: Rows = read_rows(str(path))
        splits.append(random.Random(seed).sample(rows, limit) if len(rows) > limit else rows)
    train, test = splits
    words = [form["labels"][int(row["label"])] for row in train]
    examples = [form["example"].format(**row) + word for row, word in zip(train, words, strict=True)]
    return Questions(
        info=TaskInfo(
            name=f"{name} in context",
            main_score="accuracy",
            source=str(known_set.file),
            revision=fingerprint([], [train, test, form]),
            licence=known_set.licence,
            citation=known_set.citation,
            quoted=known_set.quoted,
        ),
        instruction=form["instruction"],
        pool=[form["embedded"].format(**row) for row in train],
        examples=examples,
        texts=[form["embedded"].format(**row) for row in test],
        questions=[form["example"].format(**row) for row in test],
        labels=[form["labels"][int(row["label"])] for row in test],
    )


def rank_examples(pool: Vectors, queries: Vectors) -> list[list[int]]:
    """Rank training examples by their cosine with each question, after centring both sets of vectors.

    Args:
        pool: Vectors of the examples, shape (n, d).
        queries: Vectors of the questions, shape (m, d).

    Returns:
        For each question the rows of the examples, the most similar first.
    """
    cosines = normalize_vectors(center_vectors(queries)) @ normalize_vectors(center_vectors(pool)).T
    ranks: list[list[int]] = np.argsort(-cosines, axis=1, kind="stable").tolist()
    return ranks


def build_context(ranked_examples: Sequence[str], ranked_lengths: Sequence[int], question_length: int) -> str:
    """Join the most similar examples that fit before a question.

    Args:
        ranked_examples: Examples, the most similar first.
        ranked_lengths: Their lengths in tokens.
        question_length: Length of the question in tokens.

    Returns:
        The examples, the most similar last; each ends in ``SEPARATOR``.
    """
    fitting_examples, total = [], question_length
    for example, length in zip(ranked_examples, ranked_lengths, strict=True):
        if length > MAX_EXAMPLE_TOKENS:
            continue
        total += length
        if total > MAX_PROMPT_TOKENS:
            break
        fitting_examples.append(example + SEPARATOR)
    return "".join(reversed(fitting_examples))


def load_language_model(name: str) -> InBedder:
    """Load the model that answers.

    Args:
        name: Hub id or folder of a causal LM.

    Returns:
        The model; its prompt is the context and the question.

    Raises:
        ModelError: If the model is not a causal LM.
    """
    length = MAX_PROMPT_TOKENS + MAX_EXAMPLE_TOKENS
    model = InBedder(name, template="prefix", max_length=length, max_new_tokens=NEW_TOKENS, beside="none")
    if model.backbone.kind != "causal":
        raise ModelError(f"{name} is a {model.backbone.kind} model; answering with examples needs a causal LM.")
    return model


def measure(questions: Questions, embedder: Embedder, language_model: InBedder, batch_size: int = 4) -> dict[str, float]:
    """Retrieve examples with an embedder and let a language model answer.

    Args:
        questions: The set.
        embedder: Finds the examples.
        language_model: Answers the questions.
        batch_size: Number of questions that are answered in one pass.

    Returns:
        accuracy, and the shares of answers that are no label (percent_without_label) and mean number of examples per prompt.
    """
    pool, queries = (embedder.encode(texts, questions.instruction) for texts in (questions.pool, questions.texts))
    lengths = count_tokens(language_model, questions.examples)
    question_lengths = count_tokens(language_model, questions.questions)
    contexts = [
        build_context([questions.examples[i] for i in ranks], [lengths[i] for i in ranks], length)
        for ranks, length in zip(rank_examples(pool, queries), question_lengths, strict=True)
    ]
    answers = language_model.answer(list(questions.questions), contexts, batch_size=batch_size)
    first_lines = [(str(answer).strip().splitlines() or [""])[0].strip() for answer in answers]
    known_labels = {example.rsplit("\n", 1)[-1] for example in questions.examples}
    return {
        "accuracy": 100 * float(np.mean([line == label for line, label in zip(first_lines, questions.labels, strict=True)])),
        "percent_without_label": 100 * float(np.mean([line not in known_labels for line in first_lines])),
        "examples_per_prompt": float(np.mean([context.count(SEPARATOR) for context in contexts])),
    }


app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
@with_model_options
def main(
    output: Annotated[Path, typer.Option("-o", "--output", help="A .json file; a rerun keeps its finished cells.")],
    data: Annotated[Path, typer.Option(help="Folder of known sets.")],
    language_model: Annotated[str, typer.Option(help="A causal LM that answers; the paper uses EleutherAI/gpt-j-6b.")],
    model: Annotated[list[str], typer.Option(help="a bundled model, a hub id or a folder; repeatable.")] = [],  # noqa: B006
    baseline: Annotated[list[str], typer.Option(help="Model of mteb or sentence-transformers; repeatable.")] = [],  # noqa: B006
    task: Annotated[list[str], typer.Option(help="sst5 or mrpc; repeatable.")] = ["sst5", "mrpc"],  # noqa: B006
    seed: Annotated[int, typer.Option(help="Seed of the sampled rows.")] = 0,
    batch_size: Annotated[int, typer.Option(min=1, help="Number of questions answered in one pass.")] = 4,
    model_options: dict[str, Any] = {},  # noqa: B006 - the decorator fills it
) -> None:
    """Measure embedders by the answers of a language model to which they give examples."""
    if output.suffix != ".json":
        raise InputError(f"{output}: give a file that ends in .json.")
    sets = [load_questions(name, data, seed) for name in task]
    embedders = [embedder for name in model for embedder in make_embedders(name, verbatim=True, **model_options)]
    embedders += [make_mteb_embedders(name)[0] for name in baseline]
    if not embedders:
        raise InputError("Give a --model or a --baseline.")
    answering = load_language_model(language_model)
    cells = {cell.key: cell for cell in load_cells(output)}
    for embedder in embedders:
        for questions in sets:
            cell = _make_cell(questions, embedder, answering, language_model, seed, batch_size, cells)
            cells[cell.key] = cell
            save_cells(cells.values(), output)
    typer.echo(format_aligned(make_table(list(cells.values()))))


def _make_cell(
    questions: Questions,
    embedder: Embedder,
    answering: InBedder,
    language_model: str,
    seed: int,
    batch_size: int,
    cells: Mapping[Any, Cell],
) -> Cell:
    revision = f"{questions.info.revision} {fingerprint([], answering.spec.key())[:8]}"
    key = (embedder.name, embedder.revision, f"{questions.info.name}, {language_model}", revision, "raw", seed)
    if key in cells:
        return cells[key]
    started = time.time()
    scores = measure(questions, embedder, answering, batch_size)
    return Cell(
        *key,
        main_score=questions.info.main_score,
        scores={name: round(score, 2) for name, score in scores.items()},
        first_prompt=questions.questions[0] if questions.info.quoted else "",
        seconds=round(time.time() - started, 1),
        metadata=describe_run(questions.info),
    )


if __name__ == "__main__":
    try:
        app()
    except InbedderError as error:
        raise SystemExit(f"error: {error}") from error
