import json
import shutil

import numpy as np
import pytest
import torch
import transformers
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from inbedder import InBedder
from inbedder.backbones import hub
from inbedder.backbones.soft_tokens import run_soft_tokens
from inbedder.errors import InputError, ModelError
from tests.conftest import CAUSAL, INSTRUCTIONS, SMALL_SIZES, TEXTS, assert_close

QUESTIONS = [INSTRUCTIONS[i % len(INSTRUCTIONS)] for i in range(len(TEXTS))]


def load_double(folder, **options):
    """Load a model in float64: random weights amplify the rounding of every soft token."""
    model = InBedder(folder, pooling="soft-gen", **options)
    model.backbone.model.double()
    return model


def compute_soft_states(model, ids, count, layer=-1):
    """Read each soft token in a pass over the whole sequence, without a cache."""
    embeddings = model.get_input_embeddings()
    inputs, states = embeddings(torch.tensor(ids, dtype=torch.long)[None]), []
    for _ in range(count):
        weights = model(inputs_embeds=inputs).logits[:, -1].softmax(-1)
        soft_token = weights @ embeddings(torch.arange(weights.shape[1]))
        inputs = torch.cat([inputs, soft_token[:, None]], 1)
        states.append(model(inputs_embeds=inputs, output_hidden_states=True).hidden_states[layer][0, -1])
    return torch.stack(states)


@pytest.mark.parametrize("family", [*CAUSAL, "narrow-opt"])
@pytest.mark.parametrize(("count", "layer"), [(3, -1), (2, 1)])
def test_soft_gen_is_the_mean_of_the_states_of_whole_passes(make_model, family, count, layer):
    folder = make_model(family)
    model = load_double(folder, max_new_tokens=count, layer=layer)
    reference = AutoModelForCausalLM.from_pretrained(folder).eval().double()
    ids = model.tokenizer(TEXTS[:1], QUESTIONS[:1])[0].ids
    with torch.no_grad():
        expected = compute_soft_states(reference, ids, count, layer).mean(0)
    assert_close(model.encode(TEXTS[0], QUESTIONS[0]), expected.numpy())
    assert np.abs(model.encode(TEXTS[0], QUESTIONS[0]) - model.replace(max_new_tokens=1).encode(TEXTS[0], QUESTIONS[0])).max() > 0


@pytest.mark.parametrize("family", CAUSAL)
def test_a_batch_gives_the_soft_vectors_of_single_texts(make_model, family):
    model = load_double(make_model(family))
    singles = np.stack([model.encode(text, instruction) for text, instruction in zip(TEXTS, QUESTIONS, strict=True)])
    assert_close(model.encode(TEXTS, QUESTIONS), singles)


@pytest.mark.parametrize("family", ["opt", "gpt2", "llama"])
def test_shared_and_cached_texts_give_the_same_soft_vectors(make_model, family):
    plain, caching = (load_double(make_model(family), text_memory=size) for size in (None, "10M"))
    separate = np.stack([plain.encode(TEXTS, instruction) for instruction in INSTRUCTIONS])
    assert_close(plain.encode_many(TEXTS, INSTRUCTIONS), separate)
    assert_close(np.stack([caching.encode(TEXTS, instruction) for instruction in INSTRUCTIONS]), separate)


def test_an_embedding_that_scales_its_tokens_scales_soft_ones():
    config = transformers.Gemma3TextConfig(**SMALL_SIZES, vocab_size=50, num_key_value_heads=2, head_dim=8)
    torch.manual_seed(1)
    model = transformers.Gemma3ForCausalLM(config).eval()
    states = []
    model.model.register_forward_hook(lambda _module, _args, output: states.append(output[0]))
    ids = torch.tensor([[3, 4, 5]])
    with torch.no_grad():
        output = model(input_ids=ids, use_cache=True)
        mask = torch.ones_like(ids)
        run_soft_tokens(model, model, output.logits[:, -1], output.past_key_values, mask, 2, takes_positions=True)
        fed = torch.cat(states[1:], 1)[0]
        torch.testing.assert_close(fed, compute_soft_states(model, [3, 4, 5], 2), atol=1e-4, rtol=1e-4)


def test_a_model_trained_with_soft_gen_is_read_so_by_default(make_model, tmp_path):
    folder = shutil.copytree(make_model("llama"), tmp_path / "soft")
    (folder / "inbedder.json").write_text(json.dumps({"pooling": "soft-gen", "max_new_tokens": 2}))
    model = InBedder(folder)
    assert (model.pooling, model.options.encoding.max_new_tokens) == ("soft-gen", 2)
    expected = InBedder(make_model("llama"), pooling="soft-gen", max_new_tokens=2).encode(TEXTS, "What?")
    assert np.array_equal(model.encode(TEXTS, "What?"), expected)
    assert model.replace(pooling="1st-gen").pooling == "1st-gen"


@pytest.mark.parametrize("family", ["mistral", "qwen2"])
def test_gircse_loads_by_its_name_as_its_authors_read_it(make_model, tmp_path, fill_cache, monkeypatch, family):
    torch.manual_seed(3)
    base, folder = make_model(family), tmp_path / "adapter"
    config = LoraConfig(r=16, lora_alpha=64, init_lora_weights=False, target_modules=["q_proj", "k_proj", "v_proj", "up_proj"])
    get_peft_model(AutoModelForCausalLM.from_pretrained(base), config).save_pretrained(folder)
    reference, tensors = AutoModelForCausalLM.from_pretrained(base).eval(), load_file(folder / "adapter_model.safetensors")
    for name in (name.removesuffix(".lora_A.weight") for name in tensors if "lora_A" in name):
        delta = 64 / 16 * (tensors[f"{name}.lora_B.weight"] @ tensors[f"{name}.lora_A.weight"])
        reference.get_submodule(name.removeprefix("base_model.model.")).weight.data += delta
    fill_cache(folder)
    assert set(hub.PUBLISHED_SETTINGS) == {"Roytsai27/GIRCSE-Mistral7B", "Roytsai27/GIRCSE-QWEN7B"}
    monkeypatch.setitem(hub.PUBLISHED_SETTINGS, "someone/model", hub.PUBLISHED_SETTINGS["Roytsai27/GIRCSE-QWEN7B"])
    model = InBedder("someone/model")
    assert (model.pooling, model.options.encoding.max_new_tokens) == ("soft-gen", 5)
    model.backbone.model.double()
    reference.double()
    text, tokenizer = TEXTS[3], AutoTokenizer.from_pretrained(base)
    for instruction, prompt in {"Find it": f"Instruct: Find it\nQuery:{text}", None: text}.items():
        with torch.no_grad():
            states = compute_soft_states(reference, tokenizer(prompt, add_special_tokens=False)["input_ids"], 5)
        assert_close(model.replace(max_new_tokens=1).encode(text, instruction), states[0].numpy())
        assert_close(model.encode(text, instruction), states.mean(0).numpy(), 1e-2)  # random weights amplify rounding
    assert np.array_equal(model.encode_document(TEXTS), model.encode(TEXTS))
    assert np.isfinite(model.encode("")).all()


@pytest.mark.parametrize("family", ["bert", "t5", "headless-bert"])
def test_other_families_refuse_soft_gen(make_model, family):
    with pytest.raises(ModelError, match="has no pooling 'soft-gen'"):
        InBedder(make_model(family), pooling="soft-gen", backbone="embedding" if family == "headless-bert" else None)


def test_soft_gen_has_no_sampling_temperature(make_model):
    with pytest.raises(InputError, match="'soft-gen' of a causal model reads no decoded answer"):
        InBedder(make_model("opt"), pooling="soft-gen", temperature=0.5)
