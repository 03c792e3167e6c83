import numpy as np
import pytest
import torch

from inbedder import InBedder
from inbedder.errors import InputError, TemplateError
from tests.conftest import TEXTS

QUESTION = "What animals do they love?"


@pytest.fixture(scope="module")
def model(make_model):
    return InBedder(make_model("bert"))


def test_texts_and_instruction_may_come_under_sentence_transformers_names(model):
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


def test_a_prompt_of_the_models_own_template_stands_for_its_instruction(make_model):
    model = InBedder(make_model("headless-bert"), backbone="embedding", template="e5-instruct")
    np.testing.assert_array_equal(model.encode("a", prompt=f"Instruct: {QUESTION}\nQuery: "), model.encode("a", QUESTION))
    np.testing.assert_array_equal(model.encode("a", prompt_name="query"), model.encode_query("a"))
    np.testing.assert_array_equal(model.encode("a", prompt_name="document"), model.encode_document("a"))
    np.testing.assert_array_equal(model.encode_query("a", prompt=QUESTION), model.encode("a", QUESTION))
    np.testing.assert_array_equal(model.encode_document(sentences="a"), model.encode_document("a"))


def test_vectors_come_as_tensors_where_tensors_are_asked_for(model):
    expected = model.encode(TEXTS, QUESTION)
    tensor = model.encode(TEXTS, QUESTION, convert_to_tensor=True)
    rows = model.encode(TEXTS, QUESTION, convert_to_numpy=False)
    assert isinstance(tensor, torch.Tensor) and tensor.device == model.device
    np.testing.assert_array_equal(tensor.numpy(), expected)
    assert isinstance(rows, list) and len(rows) == len(TEXTS)
    np.testing.assert_array_equal(torch.stack(rows).numpy(), expected)
    assert model.encode("a", convert_to_tensor=True).shape == model.encode("a", convert_to_numpy=False).shape == (32,)


@pytest.mark.parametrize(
    ("keywords", "told"),
    [
        ({"output_value": "token_embeddings"}, "encode has no output_value='token_embeddings'. There is one vector per text."),
        ({"precision": "binary"}, "encode has no precision='binary'."),
        ({"truncate_dim": 8}, r"Cut the vectors: vectors\[:, :truncate_dim\]."),
        ({"pool": {}}, "For several processes see inbedder.distributed."),
        ({"task": "query"}, "encode has no task='query'. Give an instruction."),
        ({"nonsense": 1}, "encode has no keyword 'nonsense'. Known beside texts and instruction: 'batch_size'"),
        ({"device": ["cpu", "cpu"]}, "encode uses one device."),
        ({"prompt": "Why?"}, "Pass only one of instruction, prompt and prompt_name."),
        ({"prompt_name": "topic"}, "Pass only one of instruction, prompt and prompt_name."),
        ({"sentences": ["a"]}, "got them 2 times"),
    ],
)
def test_what_has_no_meaning_here_is_refused_by_name_before_the_model_runs(model, monkeypatch, keywords, told):
    monkeypatch.setattr(model.backbone, "embed", None)
    with pytest.raises(InputError, match=told):
        model.encode(["a"], QUESTION, **keywords)


def test_texts_that_come_under_no_name_are_missed(model):
    with pytest.raises(InputError, match="got them 0 times"):
        model.encode(prompt=QUESTION)
    with pytest.raises(InputError, match="texts must be a list"):
        model.encode(instruction=QUESTION)


def test_values_that_ask_for_what_is_done_anyway_are_taken(model):
    usual = {"output_value": "sentence_embedding", "precision": "float32", "truncate_dim": None, "pool": None, "chunk_size": None}
    np.testing.assert_array_equal(model.encode("a", QUESTION, device="cpu", **usual), model.encode("a", QUESTION))


def test_prompts_of_none_leave_the_checkpoints_own_query_prompt(make_model):
    model = InBedder(make_model("headless-bert"), backbone="embedding", template="e5-instruct")
    own_prompt = model.encode_query("a")
    assert np.abs(own_prompt - model.encode("a", "")).max() > 1e-3
    np.testing.assert_array_equal(model.encode_query("a", prompt=None, prompt_name=None), own_prompt)
    np.testing.assert_array_equal(model.encode_document("a", prompt=None, prompt_name=None), model.encode_document("a"))
