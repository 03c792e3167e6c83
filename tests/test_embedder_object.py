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


def test_its_repr_is_one_line_that_names_the_model_and_how_it_is_read(model):
    assert repr(model) == (
        f"InBedder({model.name!r}, backbone='causal', pooling='1st-gen', layer=-1, device='cpu', dtype='float32')"
    )


def test_its_size_is_told_under_sentence_transformers_name(model):
    assert model.get_sentence_embedding_dimension() == model.encode("a", QUESTION).shape[0] == 32


def test_a_dtype_may_be_numpys(make_model):
    names = ("float16", "float32")
    given = [np.float16, np.float32, np.dtype("float16"), torch.float16]
    assert [InBedder(make_model("opt"), dtype=dtype).precision for dtype in given] == [*names, names[0], names[0]]
    with pytest.raises(ModelError, match=r"Unknown dtype <class 'numpy.int64'>"):
        InBedder(make_model("opt"), dtype=np.int64)


def test_it_moves_with_all_that_shares_its_weights(make_sentence_model):
    model = InBedder(make_sentence_model(dense=True))
    other = model.with_pooling("mean")
    assert model.device == torch.device("cpu") and model.to("cpu") is model
    assert model.to(torch.device("meta")) is model
    assert other.device.type == "meta" and {each.device.type for each in model.backbone.output_layers.parameters()} == {"meta"}


def test_what_cannot_move_says_so(make_model, monkeypatch):
    model = InBedder(make_model("bert"))
    with pytest.raises(ModelError, match=r"There is no device 'nowhere'"):
        model.to("nowhere")
    monkeypatch.setattr(model.backbone, "precision", "int8")
    with pytest.raises(ModelError, match=r"cannot be moved after loading. Load it on the device: InBedder"):
        model.to("meta")
    assert model.device.type == "cpu"


def test_copies_share_the_weights(model):
    for other in (copy(model), deepcopy(model), model.with_pooling("avg-gen"), model.replace(max_length=64)):
        assert type(other) is InBedder and other is not model
        assert other.backbone is model.backbone


def test_a_pickle_holds_no_weights_and_loads_the_model_as_it_was_read(model):
    read = model.with_pooling("avg-gen", 1)
    data = pickle.dumps(read)
    again = pickle.loads(data)
    assert len(data) < 2000
    assert again.backbone is not model.backbone
    assert (again.pooling, again.layer) == ("avg-gen", 1)
    np.testing.assert_array_equal(again.encode(TEXTS, QUESTION), read.encode(TEXTS, QUESTION))


def test_datasets_map_adds_a_column_of_vectors_and_finds_it_again(model, make_model):
    datasets = pytest.importorskip("datasets")
    rows = datasets.Dataset.from_dict({"review": TEXTS, "stars": list(range(len(TEXTS)))})
    mapped = rows.map(model.as_map(QUESTION, column="review", batch_size=2), batched=True, batch_size=3)
    assert mapped.column_names == ["review", "stars", "vector"]
    np.testing.assert_allclose(np.array(mapped["vector"]), model.encode(TEXTS, QUESTION), atol=1e-5)
    one_by_one = rows.map(model.as_map(QUESTION, column="review", to="other"))
    np.testing.assert_allclose(np.array(one_by_one["other"]), model.encode(TEXTS, QUESTION), atol=1e-5)
    marks = [
        datasets.fingerprint.Hasher.hash(InBedder(make_model(family)).as_map(asked))
        for family, asked in [("opt", QUESTION), ("opt", QUESTION), ("opt", "Why?"), ("bert", QUESTION)]
    ]
    assert marks[0] == marks[1] and len(set(marks)) == 3


def test_a_map_over_another_column_names_those_that_there_are(model):
    with pytest.raises(InputError, match=r"There is no column 'text'. Name one with column=...: 'review', 'stars'."):
        model.as_map(QUESTION)({"review": TEXTS, "stars": [1] * len(TEXTS)})
