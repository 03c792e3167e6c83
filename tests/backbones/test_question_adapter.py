import json
import shutil

import numpy as np
import pytest
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import AutoModelForCausalLM

from inbedder import InBedder
from inbedder.backbones import kv_cache, question_adapter
from inbedder.errors import ModelError
from inbedder.options import Sampling
from tests.conftest import INSTRUCTIONS, TEXTS, assert_close

FAMILIES = ["llama", "opt", "gpt2", "qwen2"]
QUESTIONS = [INSTRUCTIONS[i % len(INSTRUCTIONS)] for i in range(len(TEXTS))]


@pytest.fixture(scope="module")
def make_adapter(make_model, tmp_path_factory):
    """Write a random adapter of a tiny model; a seed gives another adapter of the same base."""

    def make(family, seed=0, **settings):
        torch.manual_seed(seed)
        targets = ["c_attn", "c_fc"] if family == "gpt2" else "all-linear"
        model = AutoModelForCausalLM.from_pretrained(make_model(family))
        adapted = get_peft_model(model, LoraConfig(r=4, lora_alpha=8, target_modules=targets, init_lora_weights=False))
        folder = tmp_path_factory.mktemp(family)
        adapted.save_pretrained(folder)
        settings = {"base": make_model(family), "question_adapter": True, **settings}
        (folder / "inbedder.json").write_text(json.dumps(settings))
        return folder

    return make


def load_double(folder, **options):
    """Load a model in float64: random weights amplify the rounding of soft tokens."""
    model = InBedder(folder, **options)
    for part in (model.backbone.model, model.backbone.text_model):
        part.double()
    return model


def continue_plainly(adapted, ids, start):
    """Read a text with the adapter off and the rest with it; return the states of the rest and all keys and values."""
    row = torch.tensor(ids, dtype=torch.long)[None]
    with torch.no_grad():
        with adapted.disable_adapter():
            text_cache = adapted(input_ids=row[:, :start], use_cache=True).past_key_values
        output = adapted(input_ids=row[:, start:], past_key_values=text_cache, use_cache=True, output_hidden_states=True)
    return output.hidden_states, text_cache


@pytest.mark.parametrize("family", FAMILIES)
def test_vectors_are_those_of_a_base_pass_and_an_adapted_pass(make_model, make_adapter, family):
    folder = make_adapter(family)
    model = InBedder(folder)
    adapted = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(make_model(family)), folder).eval()
    for prompt, text, question in zip(model.tokenizer(TEXTS, QUESTIONS), TEXTS, QUESTIONS, strict=True):
        states, _ = continue_plainly(adapted, prompt.ids, prompt.instruction[0])
        assert_close(model.encode(text, question), states[-1][0, -1].numpy())
        assert_close(model.replace(pooling="1st-gen", layer=1).encode(text, question), states[1][0, -1].numpy())


@pytest.mark.parametrize("pooling", ["1st-gen", "avg-gen", "last-gen", "soft-gen"])
@pytest.mark.parametrize("family", FAMILIES)
def test_a_batch_gives_what_single_texts_give(make_adapter, family, pooling):
    model = load_double(make_adapter(family), pooling=pooling)
    singles = np.stack([model.encode(text, question) for text, question in zip(TEXTS, QUESTIONS, strict=True)])
    assert_close(model.encode(TEXTS, QUESTIONS), singles)


@pytest.mark.parametrize("pooling", ["1st-gen", "soft-gen"])
def test_shared_and_cached_texts_give_the_same_vectors(make_adapter, pooling):
    folder = make_adapter("llama")
    plain, caching = (load_double(folder, pooling=pooling, text_memory=size) for size in (None, "10M"))
    separate = np.stack([plain.encode(TEXTS, question) for question in INSTRUCTIONS])
    assert_close(plain.encode_many(TEXTS, INSTRUCTIONS), separate)
    assert_close(np.stack([caching.encode(TEXTS, question) for question in INSTRUCTIONS]), separate)


def test_a_texts_keys_and_values_are_those_of_the_base(make_model, make_adapter):
    model = InBedder(make_adapter("llama"), text_memory="10M")
    prompt = model.tokenizer(TEXTS[:1], QUESTIONS[:1])[0]
    model.encode(TEXTS[0], QUESTIONS[0])
    (cached,) = model.pipeline.runner.kv_cache._key_values.values()
    base = AutoModelForCausalLM.from_pretrained(make_model("llama")).eval()
    with torch.no_grad():
        ids = torch.tensor(prompt.ids[: prompt.instruction[0]], dtype=torch.long)[None]
        text_cache = base(input_ids=ids, use_cache=True).past_key_values
    for (keys, values), layer in zip(cached, text_cache.layers, strict=True):
        torch.testing.assert_close(keys, layer.keys[0], atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(values, layer.values[0], atol=1e-5, rtol=1e-5)


def test_vectors_and_answers_read_a_text_once(make_adapter, monkeypatch):
    model, compute, reads = InBedder(make_adapter("llama")), kv_cache._compute_key_values, []
    monkeypatch.setattr(kv_cache, "_compute_key_values", lambda backbone, rows: reads.extend(rows) or compute(backbone, rows))
    model.encode_many(TEXTS, INSTRUCTIONS)
    model.encode(TEXTS, "What?")
    answers = model.answer(TEXTS, "What?")
    assert reads and len({row.tobytes() for row in reads}) == len(reads)
    model.pipeline.runner.kv_cache = None
    assert answers == model.answer(TEXTS, "What?")


def test_two_adapters_of_one_base_share_cached_texts(make_adapter):
    first, second = (InBedder(make_adapter("llama", seed), text_memory="10M") for seed in (0, 1))
    expected = second.replace(text_memory=None).encode(TEXTS, "What?")
    first.encode(TEXTS, "What?")
    second.pipeline.runner.kv_cache = first.pipeline.runner.kv_cache
    second.backbone.text_model = None  # reading a text would now give the adapted model's states
    assert_close(second.encode(TEXTS, "What?"), expected)
    assert np.abs(expected - first.encode(TEXTS, "What?")).max() > 1e-2


def test_answers_continue_the_bases_text(make_model, make_adapter):
    folder = make_adapter("llama", max_new_tokens=4)
    model = InBedder(folder)
    adapted = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(make_model("llama")), folder).eval()
    answers = model.answer(TEXTS, QUESTIONS)
    tokenizer = model.backbone.tokenizer
    for prompt, answer in zip(model.tokenizer(TEXTS, QUESTIONS), answers, strict=True):
        ids = prompt.ids.tolist()
        while len(ids) < len(prompt.ids) + 4 and (len(ids) == len(prompt.ids) or ids[-1] != tokenizer.eos_token_id):
            hidden_states, _ = continue_plainly(adapted, ids, prompt.instruction[0])
            ids.append(int(adapted.get_base_model().lm_head(hidden_states[-1][0, -1]).argmax()))
        assert answer == tokenizer.decode(ids[len(prompt.ids) :], skip_special_tokens=True).strip()
    assert any(answers)
    sampling = Sampling(4, 3, 1.0, 0.9, 1)
    prompts = model.tokenizer(TEXTS, QUESTIONS)
    batch, single = model.backbone.answer(prompts, sampling)[2], model.backbone.answer(prompts[2:3], sampling)[0]
    assert [answer.text for answer in batch] == [answer.text for answer in single]
    assert [answer.confidence for answer in batch] == pytest.approx([answer.confidence for answer in single], rel=1e-4)


def test_only_adapted_weights_are_held_twice(make_adapter):
    backbone = InBedder(make_adapter("llama")).backbone
    adapted = dict(backbone.model.named_parameters())
    copies = {name for name, parameter in backbone.text_model.named_parameters() if parameter is not adapted[name]}
    assert copies == {name for name in adapted if "_proj" in name}
    assert backbone.text_model.get_input_embeddings().weight is backbone.model.get_input_embeddings().weight


def test_the_flag_changes_vectors_and_their_spec(make_adapter, tmp_path):
    folder = make_adapter("llama")
    everywhere = shutil.copytree(folder, tmp_path / "everywhere")
    settings = json.loads((folder / "inbedder.json").read_text())
    (everywhere / "inbedder.json").write_text(json.dumps(settings | {"question_adapter": False}))
    first, second = InBedder(folder), InBedder(everywhere)
    assert np.abs(first.encode(TEXTS, "What?") - second.encode(TEXTS, "What?")).max() > 1e-2
    assert first.spec.files != second.spec.files


def test_an_export_holds_the_adapter_and_names_its_base(make_adapter, tmp_path):
    from sentence_transformers import SentenceTransformer

    model = InBedder(make_adapter("llama"))
    model.save_sentence_transformer(tmp_path / "out")
    exported = SentenceTransformer(str(tmp_path / "out"), device="cpu", trust_remote_code=True)
    assert_close(exported.encode(["I love cats"], prompt="Why?"), model.encode(["I love cats"], "Why?"))


def test_poolings_of_the_text_are_refused(make_adapter):
    with pytest.raises(ModelError, match="A causal LM with an adapter of the question has no pooling 'avg-ppt'"):
        InBedder(make_adapter("opt"), pooling="avg-ppt")


def test_a_model_that_cannot_read_texts_apart_is_refused(make_model, make_adapter, tmp_path, monkeypatch):
    folder = shutil.copytree(make_model("llama"), tmp_path / "full")
    (folder / "inbedder.json").write_text(json.dumps({"question_adapter": True}))
    with pytest.raises(ModelError, match="must be a folder of its own"):
        InBedder(folder)
    monkeypatch.setattr(question_adapter, "has_full_cache", lambda _model: False)
    with pytest.raises(ModelError, match="llama models cannot read the text without it"):
        InBedder(make_adapter("llama"))
