"""The route that groups texts, or cached vectors by their ids."""

from __future__ import annotations

import dataclasses
import re

import numpy as np
from fastapi import APIRouter, Request, Response

from inbedder.grouping.cluster_options import ClusterOptions
from inbedder.grouping.clustering import cluster
from inbedder.grouping.describe.explain import compute_mean_differences
from inbedder.grouping.partition.partition import group
from inbedder.server.http_errors import RefusalError
from inbedder.server.model_service import ServedModel
from inbedder.server.request_body import BoundedRoute
from inbedder.server.routes import PROBLEMS, find_model, to_json
from inbedder.server.schemas import ClustersRequest, Groupings
from inbedder.vectors.vectors import normalize_vectors

router = APIRouter(route_class=BoundedRoute, responses=PROBLEMS)


@router.post("/v1/clusters", response_model=Groupings)
async def clusters(fields: ClustersRequest, request: Request) -> Response:
    """Group texts by their answers, once per instruction."""
    body = await find_model(request, fields.model).run(request, _build_groupings, fields)
    return Response(body, media_type="application/json")


def _build_groupings(model: ServedModel, fields: ClustersRequest) -> bytes:
    if (fields.texts is None) == (fields.ids is None):
        raise RefusalError(422, "Send texts or ids.", field="texts")
    count = len(fields.texts or fields.ids or [])
    if not 2 <= count <= model.settings.max_cluster_items:
        raise RefusalError(422, f"{count:,} texts. Send from 2 to {model.settings.max_cluster_items:,}.", field="texts")
    options = ClusterOptions(**{option.name: getattr(fields, option.name) for option in dataclasses.fields(ClusterOptions)})
    options.check_count(count)
    if fields.ids is not None:
        if fields.instructions is not None:
            raise RefusalError(422, "Ids already imply an instruction. Leave out instructions.", field="instructions")
        if options != ClusterOptions(k=options.k, seed=options.seed):
            raise RefusalError(422, "Ids take only k and seed. Send texts.", field="ids")
        data = [_group_cached_vectors(model, options, fields.ids)]
    else:
        if options.apart_from is not None:
            model.prepare_prompts(fields.texts or [], options.apart_from)  # checks its length
        instructions = _list_instructions(model, fields)
        data = [_group_texts(model, fields.texts or [], options, instruction) for instruction in instructions]
    return to_json({"object": "list", "model": model.name, "data": data})


def _list_instructions(model: ServedModel, fields: ClustersRequest) -> list[str | None]:
    instructions = fields.instructions
    if instructions is None:
        return [None]
    limit = model.settings.max_cluster_instructions
    if not 1 <= len(instructions) <= limit:
        raise RefusalError(422, f"{len(instructions)} instructions. Send from 1 to {limit}.", field="instructions")
    return [*instructions]


def _group_texts(model: ServedModel, texts: list[str], options: ClusterOptions, instruction: str | None) -> dict[str, object]:
    vectors, _ = model.embed_texts(texts, instruction, normalized=False, precision="float32")
    result = cluster(
        texts, instruction, model.embedder, embeddings=vectors, show_progress_bar=False, **dataclasses.asdict(options)
    )
    names = {"names": result.names, "keywords": result.keywords}
    return {"instruction": instruction, "labels": result.labels.tolist(), **names}


def _group_cached_vectors(model: ServedModel, options: ClusterOptions, ids: list[str]) -> dict[str, object]:
    """Group cached vectors, and name the groups with the model's answer head, because no texts are stored."""
    if not all(re.fullmatch("[0-9a-f]{32}", key) for key in ids):
        raise RefusalError(422, "An id has 32 hexadecimal digits. Use the ids that /v1/embeddings returned.", field="ids")
    encoding = model.embedder.options.encoding
    if combined := [name for name in ("subtract_instruction", "truncate_dim") if getattr(encoding, name)]:
        message = f"Ids stand for vectors before {' and '.join(combined)}. Send texts, or serve the model without these options."
        raise RefusalError(422, message, field="ids")
    keys = [bytes.fromhex(key) for key in ids]
    embedders = [embedder for embedder in (model.embedder, model.base_encoder) if embedder is not None]
    for embedder in embedders:
        cached = embedder.pipeline.cached_vectors(keys)
        if len(cached) == len(set(keys)):
            vectors = np.stack([cached[key] for key in keys])
            labels = group(normalize_vectors(vectors), options.k, options.seed)
            words = embedder.nearest_words(compute_mean_differences(vectors, labels))
            names = [", ".join(group_words[:3]) or f"group {number + 1}" for number, group_words in enumerate(words)]
            return {"instruction": None, "labels": labels.tolist(), "names": names, "keywords": words}
    raise RefusalError(422, "Some ids are not cached, or they mix vectors with and without an instruction.", field="ids")
