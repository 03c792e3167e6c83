import numpy as np
import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM

from inbedder import InBedder
from inbedder.options import Sampling
from inbedder_finetune.answering import causal_pass
from inbedder_finetune.answering.causal_pass import CausalPass
from inbedder_finetune.answering.examples import IGNORE_INDEX, Collator
from inbedder_finetune.answering.forward_pass import forward_causal, pool_states
from tests.backbones.test_soft_tokens import compute_soft_states
from tests.conftest import INSTRUCTIONS

FAMILIES = ["llama", "opt", "gpt2", "qwen2"]
TEXTS = ["I love cats", "The lamp inside still works fine.", "I love cats", ""]


def make_batch(tokenizer, texts=TEXTS, side="left"):
    """Make a batch of prompts with answers of different lengths."""
    prompts = tokenizer(texts, INSTRUCTIONS[: len(texts)])
    examples = []
    for number, prompt in enumerate(prompts):
        answer = np.arange(5, 7 + number)
        labels = np.concatenate([np.full(len(prompt.ids), IGNORE_INDEX), answer])
        ids = np.concatenate([prompt.ids, answer])
        examples.append({"input_ids": ids, "labels": labels, "split": prompt.instruction[0]})
    return prompts, Collator(0, side=side)(examples)


def add_adapters(model):
    targets = ["c_attn", "c_fc"] if model.config.model_type == "gpt2" else "all-linear"
    torch.manual_seed(3)
    return get_peft_model(model, LoraConfig(r=4, lora_alpha=8, target_modules=targets, init_lora_weights=False))


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("family", FAMILIES)
def test_soft_states_are_those_of_inference_and_tokens_those_of_one_pass(make_model, family, side):
    inference = InBedder(make_model(family), pooling="soft-gen", max_new_tokens=2)
    inference.backbone.model.double()
    prompts, batch = make_batch(inference.tokenizer, side=side)
    model = AutoModelForCausalLM.from_pretrained(make_model(family)).double().eval()
    output, plain = CausalPass(soft_tokens=2)(model, model, batch), forward_causal(model, model, batch)
    vectors = pool_states(output, "soft-gen")
    for count in (1, 2):
        expected = inference.backbone.embed(prompts, "soft-gen", -1, Sampling(count))
        torch.testing.assert_close(vectors[:, count - 1], expected, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(output.logits, plain.logits, atol=1e-6, rtol=1e-6)
    torch.testing.assert_close(output.states, plain.states, atol=1e-6, rtol=1e-6)
    assert (output.labels.tolist(), output.owner.tolist()) == (plain.labels.tolist(), plain.owner.tolist())


def test_gradients_flow_through_soft_tokens_and_the_prompts_keys(make_model):
    tokenizer = InBedder(make_model("llama")).tokenizer
    model = AutoModelForCausalLM.from_pretrained(make_model("llama")).double().eval()
    prompts, batch = make_batch(tokenizer, TEXTS[:1])
    weight = model.model.layers[0].self_attn.v_proj.weight
    vectors = pool_states(CausalPass(2)(model, model, batch), "soft-gen")
    (gradient,) = torch.autograd.grad(vectors[:, -1].square().sum(), weight)
    with torch.enable_grad():
        states = compute_soft_states(model, prompts[0].ids, 2)
    (expected,) = torch.autograd.grad(states.mean(0).square().sum(), weight)
    torch.testing.assert_close(gradient, expected, atol=1e-3, rtol=1e-3)


@pytest.mark.parametrize("soft_tokens", [0, 2])
@pytest.mark.parametrize("family", FAMILIES)
def test_adapters_of_the_question_read_the_bases_text(make_model, family, soft_tokens):
    tokenizer = InBedder(make_model(family)).tokenizer
    adapted = add_adapters(AutoModelForCausalLM.from_pretrained(make_model(family))).double().eval()
    prompts, batch = make_batch(tokenizer)
    output = CausalPass(soft_tokens, question_adapter=True)(adapted, adapted.get_base_model(), batch)
    for number, prompt in enumerate(prompts):
        ids = torch.cat([torch.tensor(prompt.ids, dtype=torch.long), torch.arange(5, 7 + number)])[None]
        start = prompt.instruction[0]
        with torch.no_grad():
            with adapted.disable_adapter():
                text_cache = adapted(input_ids=ids[:, :start], use_cache=True).past_key_values
            following = adapted(input_ids=ids[:, start:], past_key_values=text_cache, output_hidden_states=True)
        expected = following.hidden_states[-1][0, len(prompt.ids) - start - 1 : -1]
        torch.testing.assert_close(output.states[output.owner == number], expected, atol=1e-5, rtol=1e-5)
        expected_logits = following.logits[0, len(prompt.ids) - start - 1 : -1]
        torch.testing.assert_close(output.logits[output.owner == number], expected_logits, atol=1e-5, rtol=1e-5)


def test_the_base_reads_each_text_once_without_gradients_or_dropout(make_model, monkeypatch):
    model = AutoModelForCausalLM.from_pretrained(make_model("opt"))
    adapted = add_adapters(model)
    base = AutoModelForCausalLM.from_pretrained(make_model("opt")).eval()
    prompts, batch = make_batch(InBedder(make_model("opt")).tokenizer)
    reads = []

    def run_base(adapted, ids, mask, run=causal_pass._run_base):
        reads.append((ids, run(adapted, ids, mask)))
        return reads[0][1]

    monkeypatch.setattr(causal_pass, "_run_base", run_base)
    adapted.train()
    output = CausalPass(question_adapter=True)(adapted, model, batch)
    ((ids, text_cache),) = reads
    assert len(ids) == len(set(TEXTS)) and adapted.training
    keys = text_cache.layers[1].keys
    assert torch.isfinite(keys).all()
    with torch.no_grad():
        text = torch.tensor(prompts[1].ids[: prompts[1].instruction[0]], dtype=torch.long)[None]
        expected = base(input_ids=text, use_cache=True).past_key_values.layers[1].keys
    torch.testing.assert_close(keys[1, :, : text.shape[1]].detach(), expected[0], atol=1e-5, rtol=1e-5)
    output.logits.sum().backward()
    names = {name for name, parameter in adapted.named_parameters() if parameter.grad is not None}
    assert names == {name for name, parameter in adapted.named_parameters() if ".lora_" in name and parameter.requires_grad}


def test_a_prompt_without_a_text_before_its_question_is_read(make_model):
    tokenizer = InBedder(make_model("gpt2")).tokenizer
    adapted = add_adapters(AutoModelForCausalLM.from_pretrained(make_model("gpt2"))).double().eval()
    _, batch = make_batch(tokenizer, TEXTS[:2])
    batch["split"][1] = 0
    output = CausalPass(question_adapter=True)(adapted, adapted.get_base_model(), batch)
    plain = forward_causal(adapted, adapted.get_base_model(), batch)
    torch.testing.assert_close(output.states[output.owner == 1], plain.states[plain.owner == 1], atol=1e-5, rtol=1e-5)
    batch["split"][:] = 0
    output = CausalPass(question_adapter=True)(adapted, adapted.get_base_model(), batch)
    torch.testing.assert_close(output.states, plain.states, atol=1e-5, rtol=1e-5)
