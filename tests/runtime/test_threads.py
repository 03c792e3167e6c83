"""Eight threads that share a model get the vectors and answers of one thread."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from inbedder import InBedder
from inbedder.options import Reencoding
from tests.conftest import INSTRUCTIONS, TEXTS

CASES = [
    *(("opt", pooling) for pooling in ("1st-gen", "avg-gen", "last-gen", "avg-ppt", "avg-all")),
    *(("llama", pooling) for pooling in ("1st-gen", "avg-all")),
    *(("bert", pooling) for pooling in ("avg-gen", "avg-ppt", "avg-all")),
    ("roberta", "avg-gen"),
    *(("t5", pooling) for pooling in ("1st-gen", "avg-gen", "last-gen", "avg-ppt")),
    *(("headless-bert", pooling) for pooling in ("text-mean", "mean", "cls", "last-token")),
]
CALLS = [(text, INSTRUCTIONS[number % 3]) for number in range(4) for text in TEXTS]


def load(make_model, kind, **options):
    backbone = "embedding" if kind == "headless-bert" else None
    return InBedder(make_model(kind), backbone=backbone, max_new_tokens=4, **options)


def map_in_threads(function, items, threads=8):
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(function, items))


@pytest.mark.parametrize("layer", [-1, 1])
@pytest.mark.parametrize(("kind", "pooling"), CASES)
def test_eight_threads_get_the_vectors_of_one(make_model, kind, pooling, layer):
    model = load(make_model, kind).replace(pooling=pooling, layer=layer)
    expected = [model.encode(*call) for call in CALLS]
    vectors = map_in_threads(lambda call: model.encode(*call), CALLS)
    np.testing.assert_array_equal(vectors, expected)


def test_poolings_that_share_weights_do_not_disturb_each_other(make_model):
    model = load(make_model, "opt")
    variants = [
        model.replace(pooling=pooling, layer=layer) for pooling in ("1st-gen", "avg-gen", "avg-all") for layer in (0, 1, -1)
    ]
    calls = [(number % len(variants), call) for number, call in enumerate(CALLS * 2)]
    expected = [variants[number].encode(*call) for number, call in calls]
    vectors = map_in_threads(lambda item: variants[item[0]].encode(*item[1]), calls)
    np.testing.assert_array_equal(vectors, expected)


@pytest.mark.parametrize("kind", ["opt", "llama", "bert"])
def test_many_instructions_at_once_in_eight_threads(make_model, kind):
    model = load(make_model, kind)
    expected = [model.encode_many([text, text[::-1]], INSTRUCTIONS) for text in TEXTS * 2]
    results = map_in_threads(lambda text: model.encode_many([text, text[::-1]], INSTRUCTIONS), TEXTS * 2)
    for vectors, expected_vectors in zip(results, expected, strict=True):
        np.testing.assert_array_equal(vectors, expected_vectors)


@pytest.mark.parametrize("kind", ["opt", "bert", "t5"])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_answers_are_those_of_one_thread(make_model, kind, temperature):
    model = load(make_model, kind)
    expected = [model.answer(*call, temperature=temperature, n=2) for call in CALLS]
    assert map_in_threads(lambda call: model.answer(*call, temperature=temperature, n=2), CALLS) == expected


def test_reencoded_vectors_are_those_of_one_thread(make_model):
    model = load(make_model, "llama").replace(pooling="re-enc", reencoding=Reencoding(n=2))
    expected = [model.encode(*call) for call in CALLS[:8]]
    np.testing.assert_array_equal(map_in_threads(lambda call: model.encode(*call), CALLS[:8]), expected)


@pytest.mark.parametrize("kind", ["opt", "bert"])
def test_results_that_threads_cache_are_right(make_model, tmp_path, kind):
    model = load(make_model, kind, cache=tmp_path / "kept")
    map_in_threads(lambda call: (model.encode(*call), model.answer(*call, temperature=1.0)), CALLS * 2)
    plain = load(make_model, kind)
    np.testing.assert_array_equal([model.encode(*call) for call in CALLS], [plain.encode(*call) for call in CALLS])
    assert [model.answer(*call, temperature=1.0) for call in CALLS] == [plain.answer(*call, temperature=1.0) for call in CALLS]
    assert model.pipeline.store.verify() == []


def test_nearest_words_while_other_threads_encode(make_model):
    model = load(make_model, "bert")
    vectors = model.encode(TEXTS, "What?")
    expected = model.nearest_words(vectors)
    results = map_in_threads(lambda i: model.nearest_words(vectors) if i % 2 else model.encode(TEXTS, "What?"), range(24))
    assert all(words == expected for words in results[1::2])
    for encoded in results[::2]:
        np.testing.assert_array_equal(encoded, vectors)


@pytest.mark.parametrize("kind", ["opt", "bert", "t5"])
def test_no_hook_is_left_on_a_model(make_model, kind):
    model = load(make_model, kind)
    before = [len(module._forward_hooks) + len(module._forward_pre_hooks) for module in model.backbone.model.modules()]
    for pooling in model.backbone.poolings:
        for layer in (0, 1, -1):
            model.replace(pooling=pooling, layer=layer).encode(TEXTS, "What?", filter_words=["cats"])
    after = [len(module._forward_hooks) + len(module._forward_pre_hooks) for module in model.backbone.model.modules()]
    assert after == before
