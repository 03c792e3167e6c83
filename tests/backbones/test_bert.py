import subprocess
import sys

import pytest
import torch
from transformers import AutoConfig, BertForMaskedLM

from inbedder import InBedder
from inbedder.backbones import bert
from inbedder.backbones.revision import hash_settings
from inbedder.models.bundled import find_installed_base
from tests.conftest import INSTRUCTIONS, TEXTS, assert_close

BASE = find_installed_base()
STARTED = """
import sys
from inbedder import InBedder
model = InBedder("mini")
model.answer(["I love cats"], "What do they love?", n=2, temperature=1.0)
model.encode(["I love cats"], "What do they love?")
model.encode(["I love cats"])
print([name for name in ("transformers", "torch._dynamo", "sympy", "httpx2", "httpx") if name in sys.modules])
"""
needs_base = pytest.mark.skipif(BASE is None, reason="needs inbedder[mini]")


@pytest.mark.parametrize("kind", ["bert", pytest.param("mini", marks=needs_base)])
def test_states_and_logits_are_those_of_transformers(make_model, kind):
    folder = str(BASE if kind == "mini" else make_model(kind))
    model, report = bert.BertForMaskedLM.from_pretrained(folder, dtype=torch.float32)
    reference, info = BertForMaskedLM.from_pretrained(folder, output_loading_info=True, dtype=torch.float32)
    with torch.no_grad():
        for name in report["missing_keys"]:  # the head, which the base of mini lacks
            model.get_parameter(name).copy_(reference.get_parameter(name))
    assert {key for key in report["missing_keys"] if key.endswith(".weight")} == {
        key for key in info["missing_keys"] if key.endswith(".weight")
    }
    ids = torch.randint(5, 100, (3, 12), generator=torch.Generator().manual_seed(0))
    mask = torch.arange(12) < torch.tensor([[12], [7], [1]])
    inputs = {"input_ids": ids, "attention_mask": mask.long(), "token_type_ids": ids % 2}
    with torch.inference_mode():
        expected = reference.eval()(**inputs, output_hidden_states=True)
        states, logits = model.base_model(**inputs)[0], model(**inputs).logits
    torch.testing.assert_close(states[mask], expected.hidden_states[-1][mask], atol=1e-6, rtol=1e-6)
    torch.testing.assert_close(logits[mask], expected.logits[mask], atol=5e-6, rtol=1e-6)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_model_is_that_of_transformers(late_adapter, monkeypatch, dtype):
    expected = InBedder(late_adapter, dtype=dtype)
    monkeypatch.setattr(bert, "is_bundled_base", lambda _folder: True)
    model = InBedder(late_adapter, dtype=dtype)
    assert isinstance(model.backbone.model, bert.BertForMaskedLM)
    assert hash_settings(model.backbone) == hash_settings(expected.backbone)
    for pooling in ("avg-gen", "avg-ppt", "avg-all"):
        vectors, expected_vectors = (one.replace(pooling=pooling).encode(TEXTS, INSTRUCTIONS[0]) for one in (model, expected))
        assert_close(vectors, expected_vectors, 1e-6)
    assert model.answer(TEXTS, INSTRUCTIONS[0]) == expected.answer(TEXTS, INSTRUCTIONS[0])
    sampling = {"n": 3, "temperature": 1.0, "seed": 5}
    assert model.answer(TEXTS, INSTRUCTIONS[0], **sampling) == expected.answer(TEXTS, INSTRUCTIONS[0], **sampling)


@pytest.mark.parametrize("kind", ["headless-bert", "bert"])
def test_a_base_encoder_is_that_of_transformers(make_model, monkeypatch, kind):
    folder = make_model(kind)
    expected = InBedder(folder, backbone="embedding", dtype="float32")
    monkeypatch.setattr(bert, "is_bundled_base", lambda _folder: True)
    model = InBedder(folder, backbone="embedding", dtype="float32")
    assert isinstance(model.backbone.model, bert.BertModel)
    assert hash_settings(model.backbone) == hash_settings(expected.backbone)
    assert model.backbone.position_limit == expected.backbone.position_limit
    for options in ({"pooling": "text-mean"}, {"pooling": "cls", "layer": 1}, {"pooling": "two-layers"}):
        assert_close(model.replace(**options).encode(TEXTS), expected.replace(**options).encode(TEXTS), 1e-6)


@needs_base
def test_mini_embeds_and_answers_without_importing_transformers():
    process = subprocess.run([sys.executable, "-c", STARTED], capture_output=True, text=True, check=False)
    assert process.stdout == "[]\n", process.stderr


@needs_base
def test_the_configuration_is_that_of_transformers():
    config, expected = bert.BertConfig(BASE / "config.json").to_dict(), AutoConfig.from_pretrained(BASE).to_dict()
    ignored = {"_name_or_path", "transformers_version", "dtype"}
    assert {key: config[key] for key in config.keys() - ignored} == {key: expected[key] for key in expected.keys() - ignored}
