"""The routes that use a model."""

from __future__ import annotations

import base64
import json
import uuid
from typing import Any

import numpy as np
from fastapi import APIRouter, Request, Response

from inbedder.cache.store import entry_key
from inbedder.prompting.templates import read_prompts
from inbedder.server.http_errors import RefusalError
from inbedder.server.model_service import Instruction, ServedModel
from inbedder.server.schemas import (
    Answers,
    AnswersRequest,
    CohereEmbeddings,
    CohereRequest,
    Embeddings,
    EmbeddingsRequest,
    Problem,
    Ranking,
    RerankRequest,
    TextDocument,
)
from inbedder.vectors import Vectors, similarity

PROBLEMS: dict[int | str, dict[str, Any]] = {
    status: {"model": Problem, "description": description}
    for status, description in {
        400: "The body is not JSON, or the model has no vectors of that length.",
        401: "The API key is missing or wrong.",
        404: "There is no such model.",
        408: "The body did not arrive in time.",
        413: "The body is too long.",
        422: "A field is missing, unknown, or out of bounds.",
        429: "Too many requests wait; Retry-After says when to try again.",
        500: "The model failed.",
        503: "The server is ending.",
    }.items()
}
router = APIRouter(responses=PROBLEMS)


def served(request: Request, name: str | None) -> ServedModel:
    """Find the model that a request names, the first where it names none; refuse an unknown name."""
    models: dict[str, ServedModel] = request.app.state.models
    if name is None:
        return next(iter(models.values()))
    if name not in models:
        raise RefusalError(404, "There is no model of that name. GET /v1/models lists those that there are.", field="model")
    return models[name]


@router.post("/v1/embeddings", response_model=Embeddings)
async def embeddings(fields: EmbeddingsRequest, request: Request) -> Response:
    """Embed texts under an instruction, in OpenAI's shape."""
    return _sent(await served(request, fields.model).work(request, _embeddings, fields))


@router.post("/v2/embed", response_model=CohereEmbeddings)
async def embed(fields: CohereRequest, request: Request) -> Response:
    """Embed texts, in Cohere's shape; input_type chooses the prompt of queries or documents where no instruction is given."""
    return _sent(await served(request, fields.model).work(request, _cohere, fields))


@router.post("/v1/rerank", response_model=Ranking)
async def rerank(fields: RerankRequest, request: Request) -> Response:
    """Order documents by the cosine similarity of their answers to the query's."""
    return _sent(await served(request, fields.model).work(request, _rerank, fields))


@router.post("/v1/answers", response_model=Answers)
async def answers(fields: AnswersRequest, request: Request) -> Response:
    """The answers that the vectors stand for."""
    return _sent(await served(request, fields.model).work(request, _answers, fields))


def _sent(body: bytes) -> Response:
    return Response(body, media_type="application/json")


def as_json(value: Any) -> bytes:
    """A value as JSON, in which NaN has no place."""
    return json.dumps(value, allow_nan=False, ensure_ascii=False, separators=(",", ":")).encode()


def _embeddings(model: ServedModel, fields: EmbeddingsRequest) -> bytes:
    texts, instruction = _texts(model, fields.input), _instruction(model, fields)
    vectors, tokens = model.vectors(texts, instruction, truncate=fields.truncate, normalized=fields.normalized)
    vectors = model.shortened(vectors, fields.dimensions, normalized=fields.normalized)
    columns: dict[str, list[Any]] = {"embedding": _encoded(vectors, fields.encoding_format or "float")}
    if model.embedder.store is not None:
        columns["id"] = [entry_key(*pair).hex() for pair in zip(texts, model.check(texts, instruction), strict=True)]
    rows = zip(*columns.values(), strict=True)
    data = [{"object": "embedding", "index": i, **dict(zip(columns, row, strict=True))} for i, row in enumerate(rows)]
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    return as_json({"object": "list", "model": model.name, "data": data, "usage": usage})


def _encoded(vectors: Vectors, encoding: str) -> list[Any]:
    if encoding == "base64":
        return [base64.b64encode(row.tobytes()).decode() for row in vectors.astype("<f4")]
    rows: list[Any] = vectors.tolist()
    return rows


def _texts(model: ServedModel, given: str | list[str] | list[int] | list[list[int]]) -> list[str]:
    """The texts of an OpenAI input; token ids are the model's own."""
    if isinstance(given, str):
        return [given]
    if not given or isinstance(given[0], str):
        return [text for text in given if isinstance(text, str)]
    rows = [given] if isinstance(given[0], int) else given
    tokenizer = model.embedder.backbone.tokenizer
    size = len(tokenizer)
    texts = []
    for row in rows:
        ids = np.asarray(row, dtype=object)
        if any(not 0 <= number < size for number in ids):
            raise RefusalError(422, f"A token id is outside of the model's vocabulary of {size:,} tokens.", field="input")
        if len(ids) > model.settings.max_characters:
            raise RefusalError(422, f"A text has more than {model.settings.max_characters:,} token ids. Split it.", field="input")
        texts.append(tokenizer.decode(ids.tolist(), skip_special_tokens=True, clean_up_tokenization_spaces=False))
    return texts


def _instruction(model: ServedModel, fields: EmbeddingsRequest) -> Instruction:
    given = [value for value in (fields.instruction, fields.prompt, fields.prompt_name) if value is not None]
    if len(given) > 1:
        raise RefusalError(422, "Send one of instruction, prompt and prompt_name.", field="instruction")
    if fields.prompt_name is None:
        return given[0] if given else None
    if fields.prompt_name in ("query", "document"):
        return _side(model, fields.prompt_name)
    name = fields.prompt_name.removeprefix("@")
    if name not in read_prompts("instructions"):
        raise RefusalError(422, "There is no instruction of that name. Write the question itself.", field="prompt_name")
    return f"@{name}"


def _side(model: ServedModel, side: str) -> str | None:
    defaults = model.embedder.defaults
    return defaults.query if side == "query" else defaults.document


def _cohere(model: ServedModel, fields: CohereRequest) -> bytes:
    sides = {"search_query": "query", "search_document": "document"}
    instruction: Instruction = fields.instruction
    if instruction is None and fields.input_type in sides:
        instruction = _side(model, sides[fields.input_type])
    vectors, tokens = model.vectors(fields.texts, instruction, truncate=fields.truncate)
    vectors = model.shortened(vectors, fields.output_dimension)
    by_type = {encoding: _encoded(vectors, encoding) for encoding in fields.embedding_types or ["float"]}
    meta = {"api_version": {"version": "2"}, "billed_units": {"input_tokens": tokens}}
    return as_json({"id": str(uuid.uuid4()), "embeddings": by_type, "meta": meta})


def _rerank(model: ServedModel, fields: RerankRequest) -> bytes:
    documents = [document.text if isinstance(document, TextDocument) else document for document in fields.documents]
    query_asked, documents_asked = fields.instruction, fields.instruction
    if fields.instruction is None:
        query_asked, documents_asked = _side(model, "query"), _side(model, "document")
    query, query_tokens = model.vectors([fields.query], query_asked)
    vectors, tokens = model.vectors(documents, documents_asked)
    scores = similarity(query, vectors)[0]
    results: list[dict[str, Any]] = []
    for index in np.argsort(-scores, kind="stable")[: fields.top_n].tolist():
        result: dict[str, Any] = {"index": index, "relevance_score": float(scores[index])}
        results.append({**result, "document": {"text": documents[index]}} if fields.return_documents else result)
    total = query_tokens + tokens
    usage = {"prompt_tokens": total, "total_tokens": total}
    return as_json({"id": str(uuid.uuid4()), "model": model.name, "results": results, "usage": usage})


def _answers(model: ServedModel, fields: AnswersRequest) -> bytes:
    texts = [fields.input] if isinstance(fields.input, str) else fields.input
    if not model.embedder.backbone.answers:
        raise RefusalError(400, "This model embeds and does not answer.", field="model")
    if fields.instruction is None:
        raise RefusalError(422, 'Send an instruction, such as "@generic".', field="instruction")
    reader, tokens = model.prepared(texts, fields.instruction)
    drawn: dict[str, Any] = {"n": fields.n, "temperature": fields.temperature, "top_p": fields.top_p, "seed": fields.seed}
    found = reader.answer(texts, fields.instruction, batch_size=model.settings.batch_size, show_progress_bar=False, **drawn)
    lists = found if fields.n > 1 else [[answer] for answer in found]
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    data = [{"index": index, "answers": of_text} for index, of_text in enumerate(lists)]
    return as_json({"object": "list", "model": model.name, "data": data, "usage": usage})
