r"""Prompt retrieval (INSTRUCTOR paper, appendix B.2): a language model answers with the examples that an embedder found.

    python -m inbedder_evaluation.prompting.in_context --model hkunlp/instructor-large \
        --baseline sentence-transformers/gtr-t5-large --language-model EleutherAI/gpt-j-6b --data DATA -o in_context.json

The training examples nearest to a question are put before it, the nearest last, as many as fit into 1,000 tokens. The answer is
the label of the smallest loss (``label_losses``); the score is the share of right answers, and for HellaSwag, whose labels are
sentences, ROUGE-L with the right one. As in the authors' code, 3,000 training examples and 256 questions are sampled, both sets
of vectors are centred, and examples of more than 250 tokens are skipped. Lengths are those of the language model's tokens; the
authors count GPT-2's, which GPT-J shares.
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
from inbedder_evaluation.embedders import Embedder, make_embedders, make_mteb_embedders
from inbedder_evaluation.prompting.label_losses import compute_label_losses, count_tokens, rouge_l
from inbedder_evaluation.results import Cell, format_aligned, load_cells, make_table, save_cells
from inbedder_evaluation.runner import center_vectors, describe_run
from inbedder_evaluation.tasks.sets import find_set
from inbedder_evaluation.tasks.task import Rows, TaskInfo, fingerprint

KIND = "in-context questions"
"""Kind of the sets in ``sets.yaml``."""
SETS = ("sst5", "mrpc", "rte", "dbpedia", "hellaswag", "multirc")
"""Sets of this kind."""
NUM_TRAINING_EXAMPLES, NUM_QUESTIONS = 3000, 256
MAX_PROMPT_TOKENS, MAX_EXAMPLE_TOKENS = 1000, 250


@dataclass(frozen=True)
class Questions:
    """A set of questions and of training examples."""

    info: TaskInfo
    """Its name, data and provenance."""
    instruction: str
    """The instruction for INSTRUCTOR models."""
    pool: Sequence[str]
    """Texts of the training examples that are embedded."""
    examples: Sequence[tuple[str, str]]
    """The training examples as the language model reads them, and their labels."""
    texts: Sequence[str]
    """Texts of the questions that are embedded."""
    questions: Sequence[str]
    """The questions as the language model reads them."""
    choices: Sequence[Sequence[str]]
    """The labels that each question chooses from."""
    labels: Sequence[str]
    """The right label of each question."""
    longest_example: int = MAX_EXAMPLE_TOKENS
    """Length in tokens above which an example is skipped."""


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
    paths = [folder / str(file) for file in (known_set.train, known_set.file)]
    for path in paths:
        if not path.is_file():
            raise InputError(f"There is no {path}. scripts/data/get_data.py says where its rows come from.")
    test: Rows = _sample(read_rows(str(paths[1])), NUM_QUESTIONS, seed)
    train: Rows = read_rows(str(paths[0]))
    if paths[0] == paths[1]:  # one file for both
        train = random.Random(seed).sample(train, len(train))
        test, train = train[:NUM_QUESTIONS], train[NUM_QUESTIONS:]
    train = _sample(train, NUM_TRAINING_EXAMPLES, seed)
    choices = [row[form["labels"]] if isinstance(form["labels"], str) else form["labels"] for row in [*train, *test]]
    labels = [str(words[int(row["label"])]) for words, row in zip(choices, [*train, *test], strict=True)]
    return Questions(
        info=TaskInfo(
            name=f"{name} in context",
            main_score="rouge_l" if isinstance(form["labels"], str) else "accuracy",
            source=str(known_set.file),
            revision=fingerprint([], [train, test, form, "smallest loss"]),
            licence=known_set.licence,
            citation=known_set.citation,
            quoted=known_set.quoted,
        ),
        instruction=form["instruction"],
        pool=[form["embedded"].format(**row) for row in train],
        examples=[(form["example"].format(**row), label) for row, label in zip(train, labels, strict=False)],
        texts=[form["embedded"].format(**row) for row in test],
        questions=[form["example"].format(**row) for row in test],
        choices=[[str(word) for word in words] for words in choices[len(train) :]],
        labels=labels[len(train) :],
        longest_example=form.get("longest_example", MAX_EXAMPLE_TOKENS),
    )


def _sample(rows: Rows, limit: int, seed: int) -> Rows:
    return random.Random(seed).sample(rows, limit) if len(rows) > limit else rows


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


def select_examples(
    ranks: Sequence[int], lengths: Sequence[int], question_length: int, longest_example: int = MAX_EXAMPLE_TOKENS
) -> list[int]:
    """Select the most similar examples that fit before a question.

    Args:
        ranks: Indices of the examples, the most similar first.
        lengths: Length of each example in tokens.
        question_length: Length of the question in tokens.
        longest_example: Length above which an example is skipped.

    Returns:
        Indices of the examples, the most similar last.
    """
    selected_indices, total = [], question_length
    for index in ranks:
        if lengths[index] > longest_example:
            continue
        total += lengths[index]
        if total > MAX_PROMPT_TOKENS:
            break
        selected_indices.append(index)
    return selected_indices[::-1]


def load_language_model(name: str) -> InBedder:
    """Load the model that answers.

    Args:
        name: Hub id or folder of a causal LM.

    Returns:
        The model.

    Raises:
        ModelError: If the model is not a causal LM.
    """
    model = InBedder(name, beside="none", dtype="float32")  # as the authors load GPT-J
    if model.backbone.kind != "causal":
        raise ModelError(f"{name} is a {model.backbone.kind} model; answering with examples needs a causal LM.")
    return model


def measure(questions: Questions, embedder: Embedder, language_model: InBedder, batch_size: int = 4) -> dict[str, float]:
    """Retrieve examples with an embedder and let a language model choose a label.

    Args:
        questions: The set.
        embedder: Finds the examples.
        language_model: Answers the questions.
        batch_size: Number of labels whose losses are computed in one pass.

    Returns:
        accuracy, ROUGE-L (rouge_l), both times 100, and the mean number of examples per prompt.
    """
    pool, queries = (embedder.encode(texts, questions.instruction) for texts in (questions.pool, questions.texts))
    parts = [count_tokens(language_model, column) for column in zip(*questions.examples, strict=True)]
    lengths = [sum(example) for example in zip(*parts, strict=True)]
    question_lengths = count_tokens(language_model, questions.questions)
    answers, example_counts = [], []
    for row, ranks in enumerate(rank_examples(pool, queries)):
        selected = select_examples(ranks, lengths, question_lengths[row], questions.longest_example)
        examples, labels = [questions.examples[index] for index in selected], questions.choices[row]
        losses = compute_label_losses(language_model, examples, questions.questions[row], labels, batch_size)
        answers.append(labels[int(np.argmin(losses))])
        example_counts.append(len(examples))
    pairs = list(zip(answers, questions.labels, strict=True))
    return {
        "accuracy": 100 * float(np.mean([answer == label for answer, label in pairs])),
        "rouge_l": 100 * float(np.mean([rouge_l(answer, label) for answer, label in pairs])),
        "examples_per_prompt": float(np.mean(example_counts)),
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
    task: Annotated[list[str], typer.Option(help=f"{', '.join(SETS)}; repeatable.")] = list(SETS),  # noqa: B006
    seed: Annotated[int, typer.Option(help="Seed of the sampled rows.")] = 0,
    batch_size: Annotated[int, typer.Option(min=1, help="Number of labels in one pass.")] = 4,
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
