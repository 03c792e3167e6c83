r"""Creation of IntentEmotion and InstructSTSB by a model behind an endpoint (InBedder paper, appendix A).

    python -m inbedder_evaluation.prompting.create_sets intent-emotion banking77/test.jsonl.gz \
        --endpoint https://api.openai.com/v1 --model gpt-4 -o intent_emotion.jsonl
    python -m inbedder_evaluation.prompting.create_sets instruct-stsb stsb/test.jsonl.gz \
        --endpoint https://api.openai.com/v1 --model gpt-4 -o instruct_stsb.jsonl

``prompts/set_creation.yaml`` quotes the paper's prompts, two per row in one conversation. A row whose answers are not the JSON
that they ask for is skipped. The paper gives no sampling settings; decoding is greedy.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from inbedder.errors import InbedderError, InputError
from inbedder.io.files import atomic_write
from inbedder.io.tables import read_rows
from inbedder.prompting.templates import read_prompts
from inbedder_evaluation.prompting.chat_endpoint import ChatEndpoint
from inbedder_evaluation.tasks.task import Rows, read_instructions

MAX_ANSWER_TOKENS = 512
SAVED_ROWS = 100
"""Number of rows that are asked about before the file is saved."""
EMOTIONS = ("optimistic", "frustrating")

Answers = Sequence[Mapping[str, str]]
Table = Annotated[Path, typer.Argument(help="Table of the base set's rows.")]
Endpoint = Annotated[str, typer.Option(help="Base address of an endpoint that speaks OpenAI's chat completions.")]
Model = Annotated[str, typer.Option(help="The endpoint's name of the model.")]
Output = Annotated[Path, typer.Option("-o", "--output", help="A .jsonl file; a rerun asks only about rows that it lacks.")]
Limit = Annotated[int | None, typer.Option(min=1, help="Maximum number of rows of the table.")]
BatchSize = Annotated[int, typer.Option(min=1, help="Maximum number of requests at a time.")]

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, help=__doc__)


def fill_prompt(prompt: str, values: Mapping[str, Any]) -> str:
    """Fill the words in brackets of a prompt, by position, so that brackets in a value stay."""
    return re.sub(r"\[([A-Z0-9]+)\]", lambda match: str(values[match[1]]), prompt)


def ask_twice(
    endpoint: ChatEndpoint, prompts: Sequence[str], rows: Sequence[Mapping[str, Any]], keys: Sequence[str], batch_size: int = 8
) -> list[Answers | None]:
    """Hold a conversation of two questions about each row.

    Args:
        endpoint: The model.
        prompts: Both questions.
        rows: The values of their words in brackets.
        keys: The keys of the JSON object of each answer.
        batch_size: Maximum number of requests at a time.

    Returns:
        Both answers per row; None where one of them lacks a key or is not a JSON object of texts.
    """
    conversations: list[list[dict[str, str]]] = [[] for _ in rows]
    answers: list[list[str]] = [[] for _ in rows]
    for prompt in prompts:
        for conversation, row in zip(conversations, rows, strict=True):
            conversation.append({"role": "user", "content": fill_prompt(prompt, row)})
        for row_number, answer in enumerate(endpoint.reply(conversations, batch_size)):
            answers[row_number].append(answer)
            conversations[row_number].append({"role": "assistant", "content": answer})
    return [_parse_answers(each, keys) for each in answers]


def _parse_answers(answers: Sequence[str], keys: Sequence[str]) -> Answers | None:
    """Parse JSON objects, also between marks of code."""
    try:
        contents = [json.loads(answer[answer.index("{") : answer.rindex("}") + 1]) for answer in answers]
    except ValueError:
        return None
    is_complete = all(isinstance(content.get(key), str) and content[key].strip() for content in contents for key in keys)
    return [{key: content[key].strip() for key in keys} for content in contents] if is_complete else None


def make_triplets(answers: Answers) -> Rows:
    """Make the four triplets of an utterance: two by emotion, then two by intent.

    Args:
        answers: The utterance in both emotions, with its intent and with another one.

    Returns:
        Rows of criterion, instruction, anchor, positive and negative.
    """
    same_intent, other_intent = answers
    pairs, triplets = (EMOTIONS, EMOTIONS[::-1]), []
    for emotion, contrast in pairs:
        triplets.append(("emotion", same_intent[emotion], other_intent[emotion], same_intent[contrast]))
    for emotion, contrast in pairs:
        triplets.append(("intent", same_intent[emotion], same_intent[contrast], other_intent[emotion]))
    rows = [dict(zip(("criterion", "anchor", "positive", "negative"), triplet, strict=True)) for triplet in triplets]
    return [{**row, "instruction": read_instructions("intent_emotion")[row["criterion"]]} for row in rows]


def create(
    endpoint: ChatEndpoint,
    name: str,
    rows: Sequence[Mapping[str, Any]],
    keys: Sequence[str],
    make_rows: Callable[[Mapping[str, Any], Answers], Rows],
    output: Path,
    batch_size: int = 8,
) -> int:
    """Create the rows of a set and write them; rows of the file stay.

    Args:
        endpoint: The model.
        name: The set in ``prompts/set_creation.yaml``.
        rows: The values of the prompts' words in brackets, and the row's name (source).
        keys: The keys of each answer.
        make_rows: Turns a row and its answers into rows of the set.
        output: A .jsonl file.
        batch_size: Maximum number of requests at a time.

    Returns:
        The number of rows that were skipped.

    Raises:
        InputError: If the output is not a .jsonl file.
    """
    if output.suffix != ".jsonl":
        raise InputError(f"{output}: give a file that ends in .jsonl.")
    created = read_rows(str(output)) if output.exists() else []
    finished_sources, num_skipped = {row["source"] for row in created}, 0
    missing = [row for row in rows if row["source"] not in finished_sources]
    for start in range(0, len(missing), SAVED_ROWS):
        part = missing[start : start + SAVED_ROWS]
        for row, answers in zip(
            part, ask_twice(endpoint, read_prompts("set_creation")[name], part, keys, batch_size), strict=True
        ):
            num_skipped += answers is None
            created += [{**new, "source": row["source"]} for new in make_rows(row, answers)] if answers else []
        with atomic_write(output) as temporary:
            temporary.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in created), encoding="utf-8")
    typer.echo(
        f"{output}: {len(created)} rows; {num_skipped} rows of the table skipped, whose answers were not the JSON asked for"
    )
    return num_skipped


@app.command("intent-emotion")
def create_intent_emotion(
    table: Table, endpoint: Endpoint, model: Model, output: Output, limit: Limit = None, batch_size: BatchSize = 8
) -> None:
    """Create triplets by emotion and by intent of utterances (columns text and label, the intent)."""
    rows = read_rows(str(table))[:limit]
    values = [{"TEXT": row["text"], "INTENT": row["label"], "source": f"{table.name} {i}"} for i, row in enumerate(rows)]
    client = ChatEndpoint(endpoint, model, MAX_ANSWER_TOKENS)
    create(client, "intent_emotion", values, EMOTIONS, lambda _row, answers: make_triplets(answers), output, batch_size)


@app.command("instruct-stsb")
def create_instruct_stsb(
    table: Table, endpoint: Endpoint, model: Model, output: Output, limit: Limit = None, batch_size: BatchSize = 8
) -> None:
    """Create a question that tells two sentences apart (score 0) and one that does not (score 1), per pair of sentences."""
    columns = ("sentence1", "sentence2")
    rows = read_rows(str(table))[:limit]
    values = [
        {**{column.upper(): row[column] for column in columns}, "source": f"{table.name} {i}"} for i, row in enumerate(rows)
    ]

    def make_rows(row: Mapping[str, Any], answers: Answers) -> Rows:
        sentences = {column: row[column.upper()] for column in columns}
        return [{**sentences, "instruction": answer["question"], "score": score} for score, answer in enumerate(answers)]

    client = ChatEndpoint(endpoint, model, MAX_ANSWER_TOKENS)
    create(client, "instruct_stsb", values, ("question",), make_rows, output, batch_size)


if __name__ == "__main__":
    try:
        app()
    except InbedderError as error:
        raise SystemExit(f"error: {error}") from error
