"""The route that classifies texts into the categories of a request."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from fastapi import APIRouter, Request, Response

from inbedder.classification.categories import Category, parse_categories
from inbedder.classification.category_result import Classification
from inbedder.classification.category_scores import choose_categories
from inbedder.classification.classifier import add_examples
from inbedder.errors import InputError
from inbedder.runtime.cancellation import check_cancelled
from inbedder.server.http_errors import RefusalError
from inbedder.server.model_service import ServedModel
from inbedder.server.request_body import BoundedRoute
from inbedder.server.routes import PROBLEMS, check_answer_size, find_model, to_json
from inbedder.server.schemas import Categories, ClassifyRequest
from inbedder.vectors.vectors import similarity

router = APIRouter(route_class=BoundedRoute, responses=PROBLEMS)
SCORE_BYTES = 100
"""Approximate size of a category in an answer without its name, in bytes."""


@router.post("/v1/classify", response_model=Categories)
async def classify(fields: ClassifyRequest, request: Request) -> Response:
    """Classify texts into categories by their answers to an instruction."""
    body = await find_model(request, fields.model).run(request, _classify_texts, fields)
    return Response(body, media_type="application/json")


def _classify_texts(model: ServedModel, fields: ClassifyRequest) -> bytes:
    texts = [fields.input] if isinstance(fields.input, str) else fields.input
    categories = _parse_categories(fields)
    names = [category.name for category in categories]
    longest = max(len(json.dumps(name)) for name in names)
    check_answer_size(model, len(texts) * (min(fields.top_n, len(names)) + 1) * (longest + SCORE_BYTES))
    examples = [text for category in categories for text in category.examples]
    known_texts = [category.meaning for category in categories] + examples
    instruction = model.skip_blank(fields.instruction)
    known_vectors, known_tokens = model.embed_texts(known_texts, instruction)
    vectors, tokens = model.embed_texts(texts, instruction)
    owners = np.repeat(np.arange(len(categories)), [len(category.examples) for category in categories])
    scores = similarity(vectors, add_examples(known_vectors[: len(names)], known_vectors[len(names) :], owners))
    labels = choose_categories(scores, fields.min_score, fields.min_lead)
    result = Classification(
        None, texts, categories, labels, scores, vectors, min_score=fields.min_score, min_lead=fields.min_lead
    )
    probabilities, outcomes = result.probabilities, result.names
    data: list[dict[str, Any]] = []
    for row, order in enumerate(np.argsort(-scores, axis=1, kind="stable")[:, : fields.top_n].tolist()):
        check_cancelled()
        ranking = [
            {"category": names[i], "score": float(scores[row, i]), "probability": float(probabilities[row, i])} for i in order
        ]
        category = names[labels[row]] if labels[row] >= 0 else None
        data.append({"index": row, "category": category, "outcome": outcomes[row], "scores": ranking})
    usage = {"prompt_tokens": known_tokens + tokens, "total_tokens": known_tokens + tokens}
    return to_json({"object": "list", "model": model.name, "data": data, "usage": usage})


def _parse_categories(fields: ClassifyRequest) -> list[Category]:
    """Parse the categories of a request."""
    values = fields.categories
    try:
        categories = [Category(value) if isinstance(value, str) else Category(value.name, value.description) for value in values]
        return parse_categories(categories, fields.examples)
    except InputError as error:
        raise RefusalError(422, str(error), field="categories") from error
