import hashlib
import os
import subprocess
import sys
from importlib import import_module
from importlib.resources import files

import numpy as np
import pytest

from inbedder import Grouping, InBedder, cluster
from inbedder.encoding.guided import GuidedVectors
from inbedder.errors import InbedderError
from inbedder.grouping.prepare.exact import round_vectors
from inbedder.grouping.report.page import render_report
from inbedder.vectors.vectors import normalize_vectors
from tests.conftest import blobs, with_answers

TEXTS = [f"{thing} number {number}" for number in range(8) for thing in ("parcel", "refund", "card")] + ["Card", "card"] * 5
WITH_NORMALIZED_VECTORS = [
    *(f"partition.{name}" for name in ("partition", "number_of_groups", "outline", "group_distances", "group_shares")),
    *("describe.explain", "names.naming", "report.maps"),
]


def test_noise_of_float64_does_not_change_rounded_vectors():
    vectors = blobs([500, 500])
    noise = 1e-14 * np.random.default_rng(0).normal(size=vectors.shape)
    rounded = round_vectors(vectors)
    assert np.array_equal(rounded, round_vectors(3 * (vectors.astype(np.float64) + noise)))
    assert np.abs(rounded - normalize_vectors(vectors)).max() < 1 / 2000 and (rounded * 1024 % 1 == 0).all()


@pytest.mark.parametrize("family", ["bert", "opt", "late"])
def test_batches_do_not_change_a_byte_of_an_exact_page(make_model, late_adapter, family):
    model = InBedder(late_adapter if family == "late" else make_model(family), dtype="float64")
    results = [cluster(TEXTS, "What is it?", model, exact=True, batch_size=size) for size in (1, 7, 256)]
    assert results[0] == results[1] == results[2]
    assert len({render_report([result]) for result in results}) == 1
    assert results[0].embeddings.dtype == np.float64


def test_other_last_bits_in_every_step_do_not_change_a_byte_of_a_page(make_model, monkeypatch):
    model = InBedder(make_model("opt"), dtype="float64")
    vectors = np.repeat(blobs([8, 8, 8, 8], seed=1), 2, axis=0)  # each twice, so that distances are equal
    texts = [f"text {number} about {number % 7}" for number in range(len(vectors))]
    random = np.random.default_rng(0)
    noise = 0.0

    def add_noise(array):
        return array * (1 + noise * random.normal(size=array.shape))

    for name in WITH_NORMALIZED_VECTORS:
        monkeypatch.setattr(
            import_module(f"inbedder.grouping.{name}"), "normalize_vectors", lambda array: add_noise(normalize_vectors(array))
        )

    def encode(rows, *_, **__):
        return add_noise(vectors.astype(np.float64)[: len(rows)])

    monkeypatch.setattr(model, "encode", with_answers(model, encode))

    def group(**options):
        result = cluster(texts, "Which?", model, **options)
        return result.rows(top=3), result.names, render_report([result])

    exact, default = group(exact=True), group()
    noise = 1e-15
    assert all(group(exact=True) == exact for _ in range(2))
    noise = 1e-7  # of float32
    assert group() != default


def test_saved_exact_groups_assign_texts_with_the_same_model(make_model, tmp_path):
    model = InBedder(make_model("bert"), dtype="float64")
    result = cluster(TEXTS, "What is it?", model, k=3, exact=True)
    result.save(tmp_path / "groups")
    grouping = Grouping.load(tmp_path / "groups")
    assert grouping.model.compute_dtype == "float64" and grouping.provenance.options.exact
    assert np.array_equal(grouping.assign(TEXTS).labels, result.labels)


def test_exact_needs_a_model_in_float64_and_k_means(make_model):
    name = str(make_model("bert"))
    assert cluster(TEXTS, "What?", name, k=2, exact=True).provenance.spec.compute_dtype == "float64"
    with pytest.raises(InbedderError, match="exact needs a model in float64, and this one computes in float32"):
        cluster(TEXTS, "What?", InBedder(name, dtype="float32"), exact=True)
    with pytest.raises(InbedderError, match="exact groups by k-means, not by hdbscan"):
        cluster(TEXTS, "What?", name, method="hdbscan", exact=True)
    guided = np.zeros((len(TEXTS), 4), dtype=np.float32).view(GuidedVectors)
    guided.sample = np.arange(4)
    with pytest.raises(InbedderError, match="exact reads every text"):
        cluster(TEXTS, "What?", InBedder(name, dtype="float64"), exact=True, embeddings=guided)


@pytest.mark.slow
def test_threads_batches_and_instruction_sets_do_not_change_exact_files(tmp_path):
    lines = (files("inbedder") / "demo_texts" / "bank_questions.csv").read_text(encoding="utf-8").splitlines(keepends=True)
    (tmp_path / "texts.csv").write_text("".join(lines[:121]), encoding="utf-8")
    questions = ["-i", "What does the customer need?", "-i", "How does the customer feel?"]
    variants = [
        ("32", {"OMP_NUM_THREADS": "1"}),
        ("7", {"OMP_NUM_THREADS": "8"}),
        ("256", {"ATEN_CPU_CAPABILITY": "default", "ONEDNN_MAX_CPU_ISA": "SSE41", "OPENBLAS_CORETYPE": "Nehalem"}),
    ]
    digests = set()
    for batch_size, variables in variants:
        outputs = [tmp_path / "report.html", tmp_path / "groups.csv"]
        command = [sys.executable, "-m", "inbedder", "cluster", str(tmp_path / "texts.csv"), *questions, "--exact"]
        command += ["--batch-size", batch_size, "-o", str(outputs[0]), "-o", str(outputs[1])]
        subprocess.run(command, check=True, capture_output=True, env=os.environ | variables)
        digests.add(tuple(hashlib.sha256(path.read_bytes()).hexdigest() for path in outputs))
    assert len(digests) == 1
