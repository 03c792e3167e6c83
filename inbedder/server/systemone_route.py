"""The route of typed decisions, System One's ``POST /v1/systemone``: yes or no, a choice, a score, or an open question.

Questions with options are read together, with their options; an open one takes a pass of its own. Options are categories: the
best one has the highest cosine with the text's answer, so their order does not matter. A noul without descriptions of both
outcomes is a statement, compared with the text without a question, because vectors of "yes" and "no" say nothing about the text
(``docs/how-to/typed-decisions.md``).
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np
from fastapi import APIRouter, Request, Response

from inbedder.classification.category_result import NOT_SURE
from inbedder.classification.decisions import (
    compute_confidences,
    compute_option_probabilities,
    compute_statement_probabilities,
)
from inbedder.grouping.grouped_texts import LEFT_OUT
from inbedder.server.http_errors import RefusalError
from inbedder.server.model_service import ServedModel
from inbedder.server.request_body import BoundedRoute
from inbedder.server.routes import PROBLEMS, check_answer_size, check_answering, find_model, to_json
from inbedder.server.systemone_schemas import (
    Choice,
    Noul,
    NoulCriteria,
    Open,
    Question,
    Score,
    SystemOneAnswers,
    SystemOneRequest,
)
from inbedder.vectors.vectors import Vectors, similarity

router = APIRouter(route_class=BoundedRoute, responses=PROBLEMS)
NO_ANSWER = "no answer"
"""Name of the option that counts empty answers."""
OPTION_BYTES, ANSWER_BYTES = 60, 300
"""Approximate size of an option in an answer without its name, and of an answer without its options, in bytes."""


@router.post("/v1/systemone", response_model=SystemOneAnswers)
async def systemone(fields: SystemOneRequest, request: Request) -> Response:
    """Decide questions about a text: yes or no, a choice, a score, or open ones without options."""
    body = await find_model(request, fields.model).run(request, _answer_questions, fields)
    return Response(body, media_type="application/json")


@dataclass(frozen=True)
class _Options:
    """The options of a question, each with the text that says what it means."""

    instruction: str | None
    """The question whose answers they are; None compares texts without a question."""
    names: list[str]
    meanings: list[str]

    def compute_probabilities(self, cosines: Vectors) -> Vectors:
        """Compute the probability of each option from its cosine with the text; a single one is a statement."""
        if len(self.meanings) > 1:
            options: Vectors = compute_option_probabilities(cosines[None])[0]
            return options
        holds = compute_statement_probabilities(cosines)
        return np.concatenate([holds, 1 - holds] if self.names[0] == "yes" else [1 - holds, holds])


def _answer_questions(model: ServedModel, fields: SystemOneRequest) -> bytes:
    if not fields.state and not isinstance(fields.state, str):
        raise RefusalError(422, "The state is empty. Send a text, or JSON with one.", field="state")
    state = render_content(fields.state)
    options = {name: _list_options(model, name, question) for name, question in fields.questions.items()}
    open_questions = {name: question for name, question in fields.questions.items() if isinstance(question, Open)}
    sizes = [len(json.dumps(meaning)) + OPTION_BYTES for each in options.values() for meaning in each.names + each.meanings]
    sizes += [OPTION_BYTES * question.samples for question in open_questions.values()]
    check_answer_size(model, sum(sizes) + ANSWER_BYTES * len(fields.questions))
    vectors, tokens = _embed_pairs(model, state, [each for name, each in options.items() if name not in open_questions])
    answers: dict[str, dict[str, Any]] = {}
    for name, question in fields.questions.items():
        if isinstance(question, Open):
            answers[name], new_tokens = _discover_options(model, state, options[name].instruction, question.samples)
            tokens += new_tokens
        else:
            instruction = options[name].instruction
            rows = np.stack([vectors[meaning, instruction] for meaning in options[name].meanings])
            cosines = similarity(vectors[state, instruction][None], rows)[0]
            answers[name] = _format_answer(question, options[name], options[name].compute_probabilities(cosines))
            if not isinstance(question, Noul) and fields.min_score is not None and cosines.max() < fields.min_score:
                answers[name]["cannot_tell"] = LEFT_OUT
        if fields.min_confidence is not None and answers[name]["confidence"] < fields.min_confidence:
            answers[name]["cannot_tell"] = answers[name]["cannot_tell"] or NOT_SURE
    return to_json({"model": model.name, "answers": answers, "usage": {"input_tokens": tokens, "output_tokens": 0}})


def render_content(content: Any) -> str:
    r"""Render JSON as lines of text: "name: value" per field, and a member of a list per line.

    Args:
        content: Text, or JSON that holds it.

    Returns:
        The lines.

    Raises:
        RefusalError: If the content holds an image.

    Example:
        >>> from inbedder.server.systemone_route import render_content
        >>> render_content([{"role": "user", "content": "It came late."}, {"stars": 1}])
        'user: It came late.\nstars: 1'
    """
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "\n".join(render_content(member) for member in content)
    if not isinstance(content, dict):
        return "" if content is None else json.dumps(content)
    if content.get("type") in ("image", "image_url"):
        raise RefusalError(422, "The models of this server read text. Leave out images.", field="state")
    if {"role", "content"} <= set(content):
        return f"{content['role']}: {render_content(content['content'])}"
    if content.get("type") == "text" and "text" in content:
        return render_content(content["text"])
    return "\n".join(f"{name}: {render_content(value)}" for name, value in content.items())


def _list_options(model: ServedModel, name: str, question: Question) -> _Options:
    """List the options of a question; an open one has none."""
    instruction: Any = model.skip_blank(None if question.instructions is None else render_content(question.instructions))
    if isinstance(question, Open):
        check_answering(model, instruction)
        return _Options(instruction, [], [])
    if isinstance(question, Choice):
        meanings = [render_content(text) or label for label, text in question.criteria.items()]
        return _Options(instruction, list(question.criteria), meanings)
    if isinstance(question, Score):
        levels = [render_content(level) for level in question.criteria]
        return _Options(instruction, [str(level) for level in range(len(levels))], levels)
    criteria = question.criteria or NoulCriteria()
    outcomes = {"yes": criteria.true, "no": criteria.false}
    described = {outcome: render_content(text) for outcome, text in outcomes.items() if text is not None}
    if not described and instruction is None:
        raise RefusalError(422, f"Question {name[:60]!a} has neither instructions nor criteria.", field="questions")
    described = described or {"yes": instruction}
    return _Options(instruction if len(described) == 2 else None, list(described), list(described.values()))


def _embed_pairs(model: ServedModel, state: str, options: list[_Options]) -> tuple[dict[tuple[str, str | None], Vectors], int]:
    """Embed the state and the options under the questions, each pair once; return the vectors by pair, and the tokens."""
    pairs = dict.fromkeys((text, each.instruction) for each in options for text in (state, *each.meanings))
    vectors: dict[tuple[str, str | None], Vectors] = {}
    tokens = 0
    for has_question in (True, False):
        group = [pair for pair in pairs if (pair[1] is not None) == has_question]
        if group:
            texts, instructions = [text for text, _ in group], [instruction or "" for _, instruction in group]
            rows, new_tokens = model.embed_texts(texts, instructions if has_question else None, precision="float32")
            vectors.update(zip(group, rows, strict=True))
            tokens += new_tokens
    return vectors, tokens


def _format_answer(question: Noul | Choice | Score, options: _Options, probabilities: Vectors) -> dict[str, Any]:
    """Format the answer to a question in System One's shape; ``cannot_tell`` is inbedder's own field."""
    answer = {"type": question.type, "confidence": float(compute_confidences(probabilities[None])[0]), "cannot_tell": None}
    if isinstance(question, Noul):
        return {**answer, "noul": float(probabilities[0])}
    by_name = dict(zip(options.names, probabilities.tolist(), strict=True))
    if isinstance(question, Choice):
        return {**answer, "choice": options.names[int(probabilities.argmax())], "probabilities": by_name}
    mean_level = float(probabilities @ np.arange(len(probabilities)))
    return {
        **answer,
        "score": mean_level,
        "legend": dict(zip(options.names, options.meanings, strict=True)),
        "probabilities": by_name,
    }


def _discover_options(model: ServedModel, state: str, instruction: str | None, samples: int) -> tuple[dict[str, Any], int]:
    """Sample answers, and return the share of each, the commonest first, and the number of tokens."""
    embedder, tokens = model.prepare_prompts([state], instruction)
    answers = embedder.answer([state], instruction, n=samples, temperature=1.0, show_progress_bar=False)
    counts = Counter(answer or NO_ANSWER for answer in (answers[0] if samples > 1 else answers))
    shares = {answer: count / samples for answer, count in counts.most_common()}
    best = next(iter(shares))
    return {"type": "open", "confidence": shares[best], "cannot_tell": None, "answer": best, "options": shares}, tokens
