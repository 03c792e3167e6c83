import numpy as np
import pytest

from inbedder import InBedder
from inbedder.errors import MissingExtraError, ModelError
from tests.conftest import TEXTS

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def int8(make_model, tmp_path_factory):
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield InBedder(make_model("bert"), backbone="onnx")


def cosines(a, b):
    return (a * b).sum(1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)


@pytest.mark.parametrize("pooling", ["avg-gen", "avg-ppt", "avg-all"])
def test_int8_vectors_are_near_those_of_float32(int8, make_model, pooling):
    exact = InBedder(make_model("bert"), pooling=pooling)
    vectors = int8.replace(pooling=pooling).encode(TEXTS, "What?")
    assert cosines(vectors, exact.encode(TEXTS, "What?")).min() > 0.95
    assert np.abs(vectors - exact.encode(TEXTS, "What?")).max() > 0


def test_batches_differ_from_single_texts_by_rounding_alone(int8):
    single = np.stack([int8.encode(text, "What?") for text in TEXTS])
    assert cosines(int8.encode(TEXTS, "What?"), single).min() > 0.99


def test_answers_other_layers_and_filtered_words_are_those_of_float32(int8, make_model):
    exact = InBedder(make_model("bert"))
    assert int8.answer(TEXTS, "What?") == exact.answer(TEXTS, "What?")
    assert np.allclose(int8.replace(layer=1).encode(TEXTS, "What?"), exact.replace(layer=1).encode(TEXTS, "What?"), atol=1e-5)
    assert np.allclose(
        int8.encode(TEXTS, "What?", filter_words=["cats"]), exact.encode(TEXTS, "What?", filter_words=["cats"]), atol=1e-5
    )


def test_the_graph_is_made_once_and_kept_vectors_tell_precisions_apart(int8, make_model, tmp_path, monkeypatch):
    from inbedder.backbones import onnx

    monkeypatch.setattr(onnx, "_export", None)
    second = InBedder(make_model("bert"), backbone="onnx", cache=tmp_path)
    assert second.compute_dtype == "int8"
    second.encode(["a"], "What?")
    exact = InBedder(make_model("bert"), cache=tmp_path)
    exact.encode(["a"], "What?")
    assert [space["compute_dtype"] for space in exact.pipeline.store.info()] == ["int8", "float32"]


def test_int8_says_what_it_is_for(make_model, monkeypatch):
    with pytest.raises(ModelError, match="cannot be loaded as a masked one"):
        InBedder(make_model("opt"), backbone="onnx")
    from inbedder.backbones import onnx

    monkeypatch.setattr(onnx, "PACKAGES", ("no-such-package",))
    with pytest.raises(MissingExtraError, match=r"no-such-package.*\.\[onnx\]"):
        InBedder(make_model("bert"), backbone="onnx")
