import numpy as np
import pytest
import torch

from inbedder import InBedder
from inbedder.errors import InputError, ModelError, TemplateError
from tests.conftest import TEXTS

QUESTION = "What animals do they love?"


@pytest.fixture(scope="module")
def model(make_model):
    return InBedder(make_model("bert"))


def test_texts_and_instruction_may_use_sentence_transformers_names(model):
    expected = model.encode(TEXTS, QUESTION)
    for call in [
        {"sentences": TEXTS, "prompt": QUESTION},
        {"inputs": TEXTS, "prompt": QUESTION},
        {"texts": TEXTS, "prompt": QUESTION, "convert_to_numpy": True},
        {"sentences": TEXTS, "instruction": QUESTION, "batch_size": 2},
    ]:
        np.testing.assert_allclose(model.encode(**call), expected, atol=1e-5)


def test_a_prompt_name_is_a_named_instruction(model):
    np.testing.assert_array_equal(model.encode("a", prompt_name="topic"), model.encode("a", "@topic"))
    np.testing.assert_array_equal(model.encode("a", prompt_name="@topic"), model.encode("a", "@topic"))
    with pytest.raises(TemplateError, match="Unknown named instruction '@nope'"):
        model.encode("a", prompt_name="nope")


def test_a_rendered_prompt_is_replaced_by_its_instruction(make_model):
    model = InBedder(make_model("headless-bert"), backbone="embedding", template="e5-instruct")
    np.testing.assert_array_equal(model.encode("a", prompt=f"Instruct: {QUESTION}\nQuery: "), model.encode("a", QUESTION))
    np.testing.assert_array_equal(model.encode("a", prompt_name="query"), model.encode_query("a"))
    np.testing.assert_array_equal(model.encode("a", prompt_name="document"), model.encode_document("a"))
    np.testing.assert_array_equal(model.encode_query("a", prompt=QUESTION), model.encode("a", QUESTION))
    np.testing.assert_array_equal(model.encode_document(sentences="a"), model.encode_document("a"))


def test_vectors_are_tensors_on_request(model):
    expected = model.encode(TEXTS, QUESTION)
    tensor = model.encode(TEXTS, QUESTION, convert_to_tensor=True)
    rows = model.encode(TEXTS, QUESTION, convert_to_numpy=False)
    assert isinstance(tensor, torch.Tensor) and tensor.device == model.device
    np.testing.assert_array_equal(tensor.numpy(), expected)
    assert isinstance(rows, list) and len(rows) == len(TEXTS)
    np.testing.assert_array_equal(torch.stack(rows).numpy(), expected)
    assert model.encode("a", convert_to_tensor=True).shape == model.encode("a", convert_to_numpy=False).shape == (32,)


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"output_value": "token_embeddings"}, "encode has no output_value='token_embeddings'. There is one vector per text."),
        ({"precision": "int4"}, "Unknown precision 'int4'."),
        ({"truncate_dim": 0}, "truncate_dim must be a whole number of at least 1, not 0"),
        ({"pool": {}}, r"encode uses all cores without processes. Pass several GPUs as device=\['cuda:0', 'cuda:1'\]"),
        ({"task": "query"}, "encode has no task='query'. Pass an instruction."),
        ({"nonsense": 1}, "encode has no keyword 'nonsense'. It takes texts, instruction and: 'batch_size'"),
        ({"device": ["cpu", 1]}, "device must be a string or None, not 1"),
        ({"prompt": "Why?"}, "Pass only one of instruction, prompt and prompt_name."),
        ({"prompt_name": "topic"}, "Pass only one of instruction, prompt and prompt_name."),
        ({"sentences": ["a"]}, "got them 2 times"),
    ],
)
def test_unsupported_keywords_are_refused_before_the_model_runs(model, monkeypatch, kwargs, message):
    monkeypatch.setattr(model.backbone, "embed", None)
    with pytest.raises(InputError, match=message):
        model.encode(["a"], QUESTION, **kwargs)


def test_missing_texts_are_reported(model):
    with pytest.raises(InputError, match="got them 0 times"):
        model.encode(prompt=QUESTION)
    with pytest.raises(InputError, match="texts must be a list"):
        model.encode(instruction=QUESTION)


def test_keywords_with_the_value_used_anyway_are_accepted(model):
    defaults = {
        "output_value": "sentence_embedding",
        "precision": "float32",
        "truncate_dim": None,
        "pool": None,
        "chunk_size": None,
    }
    np.testing.assert_array_equal(model.encode("a", QUESTION, device="cpu", **defaults), model.encode("a", QUESTION))


def test_prompts_of_none_use_the_checkpoints_query_prompt(make_model):
    model = InBedder(make_model("headless-bert"), backbone="embedding", template="e5-instruct")
    vector = model.encode_query("a")
    assert np.abs(vector - model.encode("a", "")).max() > 1e-3
    np.testing.assert_array_equal(model.encode_query("a", prompt=None, prompt_name=None), vector)
    np.testing.assert_array_equal(model.encode_document("a", prompt=None, prompt_name=None), model.encode_document("a"))


@pytest.mark.parametrize("options", [{}, {"precision": "int8"}, {"normalize_embeddings": True}])
def test_devices_share_the_texts_and_keep_their_order(model, options):
    texts, questions = [*TEXTS, "a"], [QUESTION, "@topic"] * len(TEXTS)
    questions = questions[: len(texts)]
    devices = ["cpu", torch.device("cpu:0")]  # two copies of the weights
    for instruction in (QUESTION, questions, None):
        expected = model.encode(texts, instruction, **options)
        vectors = model.encode(texts, instruction, device=devices, **options)
        assert vectors.dtype == expected.dtype
        np.testing.assert_allclose(vectors.astype(float), expected.astype(float), atol=1 if options.get("precision") else 1e-5)
    assert model.encode(["a"], QUESTION, device=devices).shape == (1, 32)  # fewer texts than devices
    assert model.encode([], QUESTION, device=devices).shape == (0, 32)
    assert model.encode("a", QUESTION, device=devices).shape == (32,)


def test_the_same_device_several_times_is_one_device(model):
    np.testing.assert_array_equal(model.encode(TEXTS, QUESTION, device=["cpu"] * 4), model.encode(TEXTS, QUESTION))
    with pytest.raises(ModelError, match="There is no device 'nowhere'"):
        model.encode(TEXTS, QUESTION, device=["nowhere"])
