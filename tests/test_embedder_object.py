import pickle
from copy import copy, deepcopy

import numpy as np
import pytest
import torch

from inbedder import InBedder
from inbedder.errors import InputError, ModelError
from tests.conftest import TEXTS

QUESTION = "What animals do they love?"


@pytest.fixture(scope="module")
def model(make_model):
    return InBedder(make_model("opt"))


def test_its_repr_is_one_line_with_model_and_options(model):
    assert repr(model) == (
        f"InBedder({model.name!r}, backbone='causal', pooling='1st-gen', layer=-1, device='cpu', dtype='float32')"
    )


def test_its_dimension_has_the_name_of_sentence_transformers(model):
    assert (
        model.get_sentence_embedding_dimension() == model.get_embedding_dimension() == model.encode("a", QUESTION).shape[0] == 32
    )


def test_max_seq_length_is_the_maximum_prompt_length(make_model):
    model, text = InBedder(make_model("opt")), "It was late. " * 20
    model.max_seq_length = 24
    assert model.max_seq_length == model.options.encoding.max_length == 24
    np.testing.assert_array_equal(model.encode(text, QUESTION), model.replace(max_length=24).encode(text, QUESTION))
    with pytest.raises(InputError, match="max_length must be"):
        model.max_seq_length = 0
    assert model.max_seq_length == 24


def test_a_dtype_of_numpy_is_accepted(make_model):
    names = ("float16", "float32")
    dtypes = [np.float16, np.float32, np.dtype("float16"), torch.float16]
    assert [InBedder(make_model("opt"), dtype=dtype).compute_dtype for dtype in dtypes] == [*names, names[0], names[0]]
    with pytest.raises(InputError, match=r"Unknown dtype <class 'numpy.int64'>"):
        InBedder(make_model("opt"), dtype=np.int64)


def test_moving_it_moves_all_models_that_share_its_weights(make_sentence_model):
    model = InBedder(make_sentence_model(dense=True))
    variant = model.replace(pooling="mean")
    assert model.device == torch.device("cpu") and model.to("cpu") is model
    assert model.to(torch.device("meta")) is model
    assert variant.device.type == "meta" and {
        parameter.device.type for parameter in model.backbone.output_layers.parameters()
    } == {"meta"}


def test_a_model_that_cannot_move_is_reported(make_model, monkeypatch):
    model = InBedder(make_model("bert"))
    with pytest.raises(ModelError, match=r"There is no device 'nowhere'"):
        model.to("nowhere")
    monkeypatch.setattr(model.backbone, "compute_dtype", "int8")
    with pytest.raises(ModelError, match=r"cannot be moved after loading. Load it on the device: InBedder"):
        model.to("meta")
    assert model.device.type == "cpu"


def test_copies_share_the_weights(model):
    for variant in (copy(model), deepcopy(model), model.replace(pooling="avg-gen"), model.replace(max_length=64)):
        assert type(variant) is InBedder and variant is not model
        assert variant.backbone is model.backbone


def test_a_pickle_contains_options_and_no_weights(model):
    variant = model.replace(pooling="avg-gen", layer=1)
    data = pickle.dumps(variant)
    unpickled = pickle.loads(data)
    assert len(data) < 2000
    assert unpickled.backbone is not model.backbone
    assert (unpickled.pooling, unpickled.layer) == ("avg-gen", 1)
    np.testing.assert_array_equal(unpickled.encode(TEXTS, QUESTION), variant.encode(TEXTS, QUESTION))


def test_datasets_map_adds_and_caches_a_column_of_vectors(model, make_model):
    datasets = pytest.importorskip("datasets")
    rows = datasets.Dataset.from_dict({"review": TEXTS, "stars": list(range(len(TEXTS)))})
    mapped = rows.map(model.as_map(QUESTION, column="review", batch_size=2), batched=True, batch_size=3)
    assert mapped.column_names == ["review", "stars", "vector"]
    np.testing.assert_allclose(np.array(mapped["vector"]), model.encode(TEXTS, QUESTION), atol=1e-5)
    unbatched = rows.map(model.as_map(QUESTION, column="review", to="other"))
    np.testing.assert_allclose(np.array(unbatched["other"]), model.encode(TEXTS, QUESTION), atol=1e-5)
    hashes = [
        datasets.fingerprint.Hasher.hash(InBedder(make_model(family)).as_map(question))
        for family, question in [("opt", QUESTION), ("opt", QUESTION), ("opt", "Why?"), ("bert", QUESTION)]
    ]
    assert hashes[0] == hashes[1] and len(set(hashes)) == 3


def test_a_map_over_a_missing_column_lists_the_columns(model):
    with pytest.raises(InputError, match=r"There is no column 'text'. Choose one with column=...: 'review', 'stars'."):
        model.as_map(QUESTION)({"review": TEXTS, "stars": [1] * len(TEXTS)})
