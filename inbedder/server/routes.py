"""The routes that embed, rerank and answer."""

from __future__ import annotations

import base64
import io
import json
import uuid
from collections.abc import Iterator
from typing import Any

import numpy as np
from fastapi import APIRouter, Request, Response

from inbedder.cache.store import hash_entry
from inbedder.prompting.templates import read_prompts
from inbedder.runtime.cancellation import check_cancelled
from inbedder.server.answer_writer import hold_answer_bytes
from inbedder.server.http_errors import RefusalError
from inbedder.server.model_service import Instruction, ServedModel
from inbedder.server.request_body import BoundedRoute
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
from inbedder.vectors.vectors import Vectors, similarity

PROBLEMS: dict[int | str, dict[str, Any]] = {
    status: {"model": Problem, "description": description}
    for status, description in {
        400: "The body is not JSON, or the model has no vectors of that length.",
        401: "The API key is missing or wrong.",
        403: "A web page of another site sent the request.",
        404: "There is no such model.",
        408: "The body did not arrive in time.",
        413: "The body is too long.",
        421: "The Host header names another machine.",
        422: "A field is missing, unknown, or out of bounds.",
        429: "Too many requests wait; retry after the seconds in Retry-After.",
        431: "The URL and the headers are too long.",
        500: "The model failed.",
        503: "The server is shutting down.",
    }.items()
}
router = APIRouter(route_class=BoundedRoute, responses=PROBLEMS)
NUMBER_BYTES = {"float": 22, "base64": 6}
"""About how many bytes a number of a vector has in an answer."""


def find_model(request: Request, name: str | None) -> ServedModel:
    """Find the model that a request names, by default the first; reject an unknown name."""
    models: dict[str, ServedModel] = request.app.state.models
    if name is None:
        return next(iter(models.values()))
    if name not in models:
        raise RefusalError(404, "There is no model of that name. GET /v1/models lists the models.", field="model")
    return models[name]


@router.post("/v1/embeddings", response_model=Embeddings)
async def embeddings(fields: EmbeddingsRequest, request: Request) -> Response:
    """Embed texts under an instruction, in OpenAI's format."""
    return _to_response(await find_model(request, fields.model).run(request, _embed_openai, fields))


@router.post("/v2/embed", response_model=CohereEmbeddings)
async def embed(fields: CohereRequest, request: Request) -> Response:
    """Embed texts in Cohere's format; without an instruction, input_type selects the prompt of queries or documents."""
    return _to_response(await find_model(request, fields.model).run(request, _embed_cohere, fields))


@router.post("/v1/rerank", response_model=Ranking)
async def rerank(fields: RerankRequest, request: Request) -> Response:
    """Order documents by the cosine similarity of their answers to the query's."""
    return _to_response(await find_model(request, fields.model).run(request, _rerank_documents, fields))


@router.post("/v1/answers", response_model=Answers)
async def answers(fields: AnswersRequest, request: Request) -> Response:
    """Answer an instruction for each text."""
    return _to_response(await find_model(request, fields.model).run(request, _answer_texts, fields))


def _to_response(body: bytes) -> Response:
    return Response(body, media_type="application/json")


def to_json(value: Any) -> bytes:
    """Convert a value, in which arrays become lists, to JSON in UTF-8, row by row: Python's encoder lets no other thread run."""
    buffer = io.BytesIO()
    for piece in _encode_json(value):
        buffer.write(piece.encode())
    return buffer.getvalue()


def check_answer_size(model: ServedModel, size: int) -> None:
    """Reject a request whose answer would have more than ``max_answer_bytes``, or when other answers take the memory."""
    limit = model.settings.max_answer_bytes
    if size > limit:
        raise RefusalError(422, f"The answer would have about {size:,} bytes, more than {limit:,}. Send fewer texts per request.")
    hold_answer_bytes(size)


def check_answering(model: ServedModel, instruction: Instruction) -> None:
    """Reject a request for answers of a model that has none, or without an instruction."""
    if not model.embedder.backbone.answers:
        raise RefusalError(400, "This model embeds but does not answer.", field="model")
    if instruction is None:
        raise RefusalError(422, 'Send an instruction, such as "@generic".', field="instruction")


def _encode_json(value: Any) -> Iterator[str]:
    """Encode a value piece by piece, so that an answer is in memory once."""
    check_cancelled()
    if isinstance(value, dict):
        for index, (name, member) in enumerate(value.items()):
            yield f"{'{' if index == 0 else ','}{json.dumps(name, ensure_ascii=False)}:"
            yield from _encode_json(member)
        yield "}" if value else "{}"
    elif isinstance(value, list) and value and isinstance(value[0], (dict, list, np.ndarray)):
        for index, member in enumerate(value):
            yield "[" if index == 0 else ","
            yield from _encode_json(member)
        yield "]"
    else:
        members = value.tolist() if isinstance(value, np.ndarray) else value
        yield json.dumps(members, allow_nan=False, ensure_ascii=False, separators=(",", ":"))


def _embed_openai(model: ServedModel, fields: EmbeddingsRequest) -> bytes:
    texts, instruction = _list_texts(model, fields.input), _choose_instruction(model, fields)
    options: dict[str, Any] = {"truncate": fields.truncate, "normalized": fields.normalized}
    options |= {"dimensions": fields.dimensions, "precision": fields.precision}
    number_bytes = NUMBER_BYTES[fields.encoding_format or "float"]
    check_answer_size(model, len(texts) * number_bytes * _count_numbers(model, instruction, fields.dimensions))
    if fields.return_answers:
        check_answering(model, instruction)
    vectors, answers, tokens = model.read_texts(texts, instruction, return_answers=fields.return_answers, **options)
    columns: dict[str, list[Any]] = {"embedding": _format_vectors(vectors, fields.encoding_format or "float")}
    if model.embedder.pipeline.store is not None:
        columns["id"] = [hash_entry(*pair).hex() for pair in zip(texts, model.check(texts, instruction), strict=True)]
    if answers is not None:
        columns["answer"] = answers
    rows = zip(*columns.values(), strict=True)
    data = [{"object": "embedding", "index": i, **dict(zip(columns, row, strict=True))} for i, row in enumerate(rows)]
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    return to_json({"object": "list", "model": model.name, "data": data, "usage": usage})


def _count_numbers(model: ServedModel, instruction: Instruction, dimensions: int | None) -> int:
    """Count the numbers of each vector of a request."""
    dimension = model.select_encoder(instruction).dimension
    return dimension if dimensions is None else min(dimensions, dimension)


def _format_vectors(vectors: Vectors, encoding: str) -> list[Any]:
    if encoding == "base64":
        return [base64.b64encode(row.tobytes()).decode() for row in vectors.astype(vectors.dtype.newbyteorder("<"))]
    return list(vectors)


def _list_texts(model: ServedModel, inputs: str | list[str] | list[int] | list[list[int]]) -> list[str]:
    """List the texts of an OpenAI input, decoding token ids with the model's tokenizer."""
    if isinstance(inputs, str):
        return [inputs]
    if not inputs or isinstance(inputs[0], str):
        return [text for text in inputs if isinstance(text, str)]
    rows = [inputs] if isinstance(inputs[0], int) else inputs
    tokenizer = model.embedder.backbone.tokenizer
    size = len(tokenizer)
    if any(not 0 <= number < size for row in rows for number in row):
        raise RefusalError(422, f"A token id is outside the model's vocabulary of {size:,} tokens.", field="input")
    texts: list[str] = tokenizer.backend_tokenizer.decode_batch(rows, skip_special_tokens=True)  # other threads run meanwhile
    return texts


def _choose_instruction(model: ServedModel, fields: EmbeddingsRequest) -> Instruction:
    values: list[Instruction] = [fields.instruction, fields.prompt, fields.prompt_name]
    instructions = [value for value in values if value is not None]
    if len(instructions) > 1:
        raise RefusalError(422, "Send only one of instruction, prompt and prompt_name.", field="instruction")
    if fields.prompt_name is None:
        return model.skip_blank(instructions[0]) if instructions else None
    if fields.prompt_name in ("query", "document"):
        return _get_side_instruction(model, fields.prompt_name)
    name = fields.prompt_name.removeprefix("@")
    if name not in read_prompts("instructions"):
        raise RefusalError(422, "There is no instruction of that name. Write the question itself.", field="prompt_name")
    return f"@{name}"


def _get_side_instruction(model: ServedModel, side: str) -> str | None:
    defaults = model.embedder.pipeline.defaults
    return defaults.query if side == "query" else defaults.document


def _embed_cohere(model: ServedModel, fields: CohereRequest) -> bytes:
    sides = {"search_query": "query", "search_document": "document"}
    instruction = model.skip_blank(fields.instruction)
    if instruction is None and fields.input_type in sides:
        instruction = _get_side_instruction(model, sides[fields.input_type])
    options: dict[str, Any] = {"truncate": fields.truncate, "dimensions": fields.output_dimension}
    options["precision"] = "float32"  # embedding_types has no other
    number_bytes = sum(NUMBER_BYTES[encoding] for encoding in set(fields.embedding_types or ["float"]))
    check_answer_size(model, len(fields.texts) * number_bytes * _count_numbers(model, instruction, fields.output_dimension))
    vectors, tokens = model.embed_texts(fields.texts, instruction, **options)
    by_type = {encoding: _format_vectors(vectors, encoding) for encoding in fields.embedding_types or ["float"]}
    meta = {"api_version": {"version": "2"}, "billed_units": {"input_tokens": tokens}}
    return to_json({"id": str(uuid.uuid4()), "embeddings": by_type, "meta": meta})


def _rerank_documents(model: ServedModel, fields: RerankRequest) -> bytes:
    documents = [document.text if isinstance(document, TextDocument) else document for document in fields.documents]
    query_instruction = document_instruction = model.skip_blank(fields.instruction)
    if query_instruction is None:
        query_instruction, document_instruction = _get_side_instruction(model, "query"), _get_side_instruction(model, "document")
    query, query_tokens = model.embed_texts([fields.query], query_instruction, precision="float32")
    vectors, tokens = model.embed_texts(documents, document_instruction, precision="float32")
    scores = similarity(query, vectors)[0]
    results: list[dict[str, Any]] = []
    for index in np.argsort(-scores, kind="stable")[: fields.top_n].tolist():
        result: dict[str, Any] = {"index": index, "relevance_score": float(scores[index])}
        results.append({**result, "document": {"text": documents[index]}} if fields.return_documents else result)
    total = query_tokens + tokens
    usage = {"prompt_tokens": total, "total_tokens": total}
    return to_json({"id": str(uuid.uuid4()), "model": model.name, "results": results, "usage": usage})


def _answer_texts(model: ServedModel, fields: AnswersRequest) -> bytes:
    texts = [fields.input] if isinstance(fields.input, str) else fields.input
    instruction = model.skip_blank(fields.instruction)
    check_answering(model, instruction)
    embedder, tokens = model.prepare_prompts(texts, instruction)
    sampling: dict[str, Any] = {"n": fields.n, "temperature": fields.temperature, "top_p": fields.top_p, "seed": fields.seed}
    options = {"batch_size": model.settings.batch_size, "show_progress_bar": False, **sampling}
    options["min_confidence"] = fields.min_confidence
    answers = embedder.answer(texts, instruction, **options)
    lists = answers if fields.n > 1 else [[answer] for answer in answers]
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    data = [{"index": index, "answers": text_answers} for index, text_answers in enumerate(lists)]
    return to_json({"object": "list", "model": model.name, "data": data, "usage": usage})
