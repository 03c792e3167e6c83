import subprocess
import sys
from dataclasses import fields
from inspect import signature

import pytest

from inbedder import InBedder
from inbedder.backbones.families import FAMILIES
from inbedder.encoding.sentence_transformers_kwargs import DEFAULT_KWARGS, SUPPORTED_KWARGS
from inbedder.option_types import ArrayKwargs, BackboneName, ChangeableKwargs, ModelKwargs, PoolingName, PrecisionName
from inbedder.options import EncodingOptions, ModelOptions
from inbedder.vectors.pooling import POOLINGS
from inbedder.vectors.precision import PRECISIONS

SCRIPT = """
from collections.abc import Sequence

import numpy as np
from torch import Tensor
from typing_extensions import assert_type

from inbedder import Grouping, InBedder, cluster, compare_wordings, crosstab
from inbedder.encoding.guided import GuidedVectors
from inbedder.vectors.vectors import Vector, VectorRows, Vectors

QUESTION = "What is it about?"
model = InBedder("mini", backbone="masked", pooling="avg-gen", dtype="float32", max_length=256, cache="cache")
short = model.replace(pooling="1st-gen", layer=-2, truncate_dim=64, normalize_embeddings=True, precision="int8")
texts = ["The phone broke.", "I love it."]

# encode: one text, several texts, a tensor, and arguments that are only known when the program runs
assert_type(model.encode(texts[0], QUESTION), np.ndarray[tuple[int], np.dtype[np.float32]])
assert_type(model.encode(texts[0], QUESTION, batch_size=8), Vector)
assert_type(model.encode(texts, QUESTION), np.ndarray[tuple[int, int], np.dtype[np.float32]])
assert_type(model.encode(tuple(texts), [QUESTION, "@topic"], precision="int8", truncate_dim=64), VectorRows)
assert_type(model.encode(texts, convert_to_tensor=True), Tensor)
assert_type(model.encode(texts[0], QUESTION, convert_to_tensor=True, normalize_embeddings=True), Tensor)
assert_type(model.encode(texts, prompt_name="topic", convert_to_tensor=False), VectorRows)
assert_type(model.encode(texts, convert_to_numpy=False), Tensor | list[Tensor])
assert_type(model.encode(sentences=texts), Vectors)
assert_type(model.encode_many(texts, [QUESTION, "Why?"], precision="float32"), Vectors)
assert_type(model.encode_query(texts[0], truncate_dim=64), Vectors)
assert_type(model.encode_document(texts, precision="ubinary"), Vectors)
assert_type(model.encode_document(texts, convert_to_tensor=True), Tensor)
guided = model.encode_guided(texts, QUESTION, sample=100, normalize_embeddings=True, truncate_dim=64, precision="int8")
assert_type(guided, GuidedVectors)
assert_type(guided.cosine, float | None)


def embed(rows: Sequence[str]) -> Vectors:
    vectors = short.encode(rows, QUESTION)
    print(vectors.shape[1], np.linalg.norm(vectors, axis=1))
    return vectors


# answer: one answer per text, or several
assert_type(model.answer(texts, QUESTION), list[str])
assert_type(model.answer(texts[0], QUESTION, n=1, min_confidence=0.5), list[str])
assert_type(model.answer(texts, QUESTION, n=3, temperature=1.0, top_p=0.9, seed=1), list[list[str]])
print([answer.upper() for answer in model.answer(texts, QUESTION)])
assert_type(model.nearest_words(embed(texts), top=3), list[list[str]])
assert_type(model.dimension, int)

result = cluster(texts, QUESTION, model, k=2, method="agglomerative", namer="words", apart_from="Is it good?")
result.save("groups")
print(result.names, crosstab(result, {"stars": [1, 5]}), compare_wordings(texts, ["Topic?", "What topic?"], model))
print(Grouping.load("groups").assign(texts).labels, model.similarity(embed(texts), model.encode(texts, QUESTION)))
"""
MISTAKES = {
    "max_length=256": ("max_lenght=256", 'Unexpected keyword argument "max_lenght"'),
    'method="agg': ('methods="agg', 'Unexpected keyword argument "methods"'),
    'backbone="masked"': ('backbone="mask"', 'Argument "backbone"'),
    'precision="ubinary"': ('precission="ubinary"', "No overload variant"),
    'precision="float32"': ('precision="float"', 'Argument "precision"'),
    "sample=100": ("samples=100", 'Unexpected keyword argument "samples"'),
    "top_p=0.9": ("topp=0.9", "No overload variant"),
    "batch_size=8": ("batchsize=8", 'Unexpected keyword argument "batchsize"'),
}
"""By part of the script: a mistake in its place, and what the checker reports."""


def test_every_option_has_a_type():
    names = {option.name for option in (*fields(ModelOptions), *fields(EncodingOptions))}
    assert {*ModelKwargs.__annotations__, *ChangeableKwargs.__annotations__} == names - {"model"}
    assert set(PoolingName.__args__) == POOLINGS.keys()
    assert set(PrecisionName.__args__) == PRECISIONS.keys()
    assert {name.partition(":")[0] for name in BackboneName.__args__} >= FAMILIES.keys()


def test_every_keyword_of_encode_has_a_type():
    own_names = {name for name in signature(InBedder.encode).parameters if name not in ("self", "texts", "instruction", "kwargs")}
    assert {*ArrayKwargs.__annotations__} == own_names | {*SUPPORTED_KWARGS, *DEFAULT_KWARGS}


@pytest.mark.slow
def test_a_users_script_passes_strict_mypy_and_a_misspelt_option_does_not(tmp_path):
    script = tmp_path / "script.py"
    check = [sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent", "--ignore-missing-imports", str(script)]
    script.write_text(SCRIPT)
    process = subprocess.run(check, cwd=tmp_path, capture_output=True, text=True)
    assert process.returncode == 0, process.stdout
    for part, (mistake, _) in MISTAKES.items():
        assert part in SCRIPT
        script.write_text(script.read_text().replace(part, mistake))
    process = subprocess.run(check, cwd=tmp_path, capture_output=True, text=True)
    for _, report in MISTAKES.values():
        assert report in process.stdout, process.stdout
