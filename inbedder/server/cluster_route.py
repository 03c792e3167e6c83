"""The route that groups texts, or vectors that the cache keeps."""

from __future__ import annotations

import re

import numpy as np
from fastapi import APIRouter, Request, Response

from inbedder.grouping.clustering import cluster
from inbedder.grouping.explain import compute_mean_differences
from inbedder.grouping.partition import group
from inbedder.server.http_errors import RefusalError
from inbedder.server.model_service import ServedModel
from inbedder.server.routes import PROBLEMS, as_json, served
from inbedder.server.schemas import ClustersRequest, Groupings
from inbedder.vectors import unit

router = APIRouter(responses=PROBLEMS)


@router.post("/v1/clusters", response_model=Groupings)
async def clusters(fields: ClustersRequest, request: Request) -> Response:
    """Group texts by their answers, once per instruction."""
    body = await served(request, fields.model).work(request, _clusters, fields)
    return Response(body, media_type="application/json")


def _clusters(model: ServedModel, fields: ClustersRequest) -> bytes:
    if (fields.texts is None) == (fields.ids is None):
        raise RefusalError(422, "Send texts or ids.", field="texts")
    count = len(fields.texts or fields.ids or [])
    if not 2 <= count <= model.settings.max_cluster_items:
        raise RefusalError(422, f"{count:,} texts. Send from 2 to {model.settings.max_cluster_items:,}.", field="texts")
    if fields.k != "auto" and not 1 <= fields.k <= count:
        raise RefusalError(422, f"k must be 'auto' or a number from 1 to {count}.", field="k")
    if fields.ids is not None:
        if fields.instructions is not None:
            raise RefusalError(422, "Ids stand for texts under an instruction. Leave instructions out.", field="instructions")
        data = [_cached_grouping(model, fields, fields.ids)]
    else:
        data = [_grouping(model, fields, instruction) for instruction in _instructions(model, fields)]
    return as_json({"object": "list", "model": model.name, "data": data})


def _instructions(model: ServedModel, fields: ClustersRequest) -> list[str | None]:
    instructions = fields.instructions
    if instructions is None:
        return [None]
    most = model.settings.max_cluster_instructions
    if not 1 <= len(instructions) <= most:
        raise RefusalError(422, f"{len(instructions)} instructions. Send from 1 to {most}.", field="instructions")
    return [*instructions]


def _grouping(model: ServedModel, fields: ClustersRequest, instruction: str | None) -> dict[str, object]:
    texts = fields.texts or []
    vectors, _ = model.vectors(texts, instruction, normalized=False)
    result = cluster(texts, instruction, model.embedder, fields.k, fields.seed, embeddings=vectors, show_progress_bar=False)
    names = {"names": result.names, "keywords": result.keywords}
    return {"instruction": instruction, "labels": result.labels.tolist(), **names}


def _cached_grouping(model: ServedModel, fields: ClustersRequest, ids: list[str]) -> dict[str, object]:
    """Group cached vectors; the model's answer head names them, since it holds no texts."""
    if not all(re.fullmatch("[0-9a-f]{32}", key) for key in ids):
        raise RefusalError(422, "An id has 32 hexadecimal digits. Take those that /v1/embeddings gave.", field="ids")
    encoding = model.embedder.options.encoding
    if combined := [name for name in ("subtract_instruction", "add_generic") if getattr(encoding, name)]:
        message = f"Ids stand for vectors before {' and '.join(combined)}. Send texts, or serve the model without."
        raise RefusalError(422, message, field="ids")
    keys = [bytes.fromhex(key) for key in ids]
    readers = [reader for reader in (model.embedder, model.base) if reader is not None]
    for reader in readers:
        cached = reader.cached_vectors(keys)
        if len(cached) == len(set(keys)):
            vectors = np.stack([cached[key] for key in keys])
            labels = group(unit(vectors), fields.k, fields.seed)
            words = reader.nearest_words(compute_mean_differences(vectors, labels))
            names = [", ".join(some[:3]) or f"group {number + 1}" for number, some in enumerate(words)]
            return {"instruction": None, "labels": labels.tolist(), "names": names, "keywords": words}
    raise RefusalError(422, "Not all ids are kept, or they are of texts with and without an instruction.", field="ids")
