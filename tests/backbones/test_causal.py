import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from inbedder import InBedder
from inbedder.backbones.transformer import get_pad_id
from tests.conftest import CAUSAL, INSTRUCTIONS, TEXTS, assert_close

POOLINGS = ["1st-gen", "avg-gen", "last-gen", "avg-ppt", "avg-all"]
QUESTIONS = [INSTRUCTIONS[i % len(INSTRUCTIONS)] for i in range(len(TEXTS))]


@pytest.mark.parametrize("family", CAUSAL)
@pytest.mark.parametrize("pooling", POOLINGS)
def test_a_batch_gives_what_single_texts_give_and_order_follows_the_input(make_model, family, pooling):
    model = InBedder(make_model(family), pooling=pooling, layer=1)
    batch = model.encode(TEXTS, QUESTIONS)
    singles = np.stack([model.encode(text, instruction) for text, instruction in zip(TEXTS, QUESTIONS, strict=True)])
    backwards = model.encode(TEXTS[::-1], QUESTIONS[::-1])[::-1]
    assert_close(batch, singles)
    assert_close(batch, backwards)


@pytest.mark.parametrize("family", CAUSAL)
@pytest.mark.parametrize("pooling", ["1st-gen", "avg-ppt"])
def test_left_and_right_padding_give_the_same_vectors(make_model, family, pooling):
    model = InBedder(make_model(family), pooling=pooling)
    left_padded = model.encode(TEXTS, QUESTIONS)
    model.backbone.padding_side = "right"
    assert_close(left_padded, model.encode(TEXTS, QUESTIONS))


@pytest.mark.parametrize("family", CAUSAL)
@pytest.mark.parametrize("layer", [0, 1, 2])
def test_1st_gen_is_transformers_hidden_state_at_the_last_position(make_model, family, layer):
    folder = make_model(family)
    model = AutoModelForCausalLM.from_pretrained(folder).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    inputs = tokenizer("### Input:\nI love cats\n\n### Instruction:\nWhy?\n\n### Response:", return_tensors="pt")
    with torch.inference_mode():
        states = model(**inputs, output_hidden_states=True).hidden_states[layer]
    vector = InBedder(folder, layer=layer).encode("I love cats", "Why?")
    assert np.abs(states[0, -1].numpy() - vector).max() < 1e-5


def test_1st_gen_is_one_pass_per_batch_without_logits_or_other_layers(make_model):
    model = InBedder(make_model("opt"))
    body, head = model.backbone.body, model.backbone.model.get_output_embeddings()
    calls, heads, requested_states = [], [], []
    body.register_forward_pre_hook(lambda *_args, **_kwargs: calls.append(1))
    body.register_forward_pre_hook(
        lambda _m, _a, kwargs: requested_states.append(kwargs.get("output_hidden_states")), with_kwargs=True
    )
    head.register_forward_pre_hook(lambda *_: heads.append(1))
    model.encode([f"{text} {i}" for text in TEXTS for i in range(3)], "What?", batch_size=7)
    assert (len(calls), len(heads), set(requested_states)) == (3, 0, {None})


@pytest.mark.parametrize("pooling", ["avg-gen", "last-gen", "avg-all"])
def test_an_answer_of_one_token_works(make_model, pooling):
    vectors = InBedder(make_model("llama"), pooling=pooling, max_new_tokens=1).encode(TEXTS, "What?")
    assert np.isfinite(vectors).all()
    if pooling != "avg-all":
        first = InBedder(make_model("llama"), pooling="1st-gen").encode(TEXTS, "What?")
        assert np.abs(vectors - first).max() < 1e-5


def test_decoding_stops_when_every_row_has_ended(make_model, monkeypatch):
    model = InBedder(make_model("opt"), pooling="avg-gen", max_new_tokens=30)
    steps = []
    model.backbone.body.register_forward_hook(lambda *_: steps.append(1))
    every = list(range(1000))
    monkeypatch.setattr(model.backbone, "_list_stop_ids", lambda: every)
    model.encode(TEXTS, "What?")
    assert len(steps) == 2


def test_filter_words_leave_out_the_states_that_predict_them(make_model, monkeypatch):
    model = InBedder(make_model("gpt2"), pooling="avg-gen", max_new_tokens=4)
    plain = model.encode(TEXTS[:3], "What?")
    monkeypatch.setattr(model.tokenizer, "find_token_ids", lambda words: list(range(1000)) if words else [])
    nothing_left = model.encode(TEXTS[:3], "What?", filter_words=["every word"])
    model = model.replace(max_new_tokens=2)
    assert np.abs(nothing_left - model.encode(TEXTS[:3], "What?")).max() < 1e-5
    assert np.abs(nothing_left - plain).max() > 1e-3


def test_greedy_answers_repeat_and_sampled_answers_follow_their_seed(make_model):
    model = InBedder(make_model("llama"), max_new_tokens=5)
    assert model.answer(TEXTS, "What?") == model.answer(TEXTS, "What?")
    sampled_answers = model.answer(TEXTS[:2], "What?", n=3, temperature=1.0, seed=1)
    assert [len(one) for one in sampled_answers] == [3, 3]
    assert sampled_answers == model.answer(TEXTS[:2], "What?", n=3, temperature=1.0, seed=1)
    assert sampled_answers != model.answer(TEXTS[:2], "What?", n=3, temperature=1.0, seed=2)


def test_the_answer_head_reads_vectors_of_the_last_layer(make_model):
    model = InBedder(make_model("opt"))
    words = model.nearest_words(model.encode(TEXTS, "What?"), top=4)
    assert len(words) == len(TEXTS)
    assert InBedder(make_model("opt"), layer=1).nearest_words(model.encode(TEXTS, "What?")) == [[]] * len(TEXTS)


@pytest.mark.parametrize("pooling", ["1st-gen", "avg-gen"])
def test_vectors_are_as_wide_as_the_layer(make_model, pooling):
    model = InBedder(make_model("narrow-opt"), pooling=pooling)
    assert model.encode(TEXTS, "What?").shape == (len(TEXTS), 16) == (len(TEXTS), model.dimension)
    assert model.encode([], "What?").shape == (0, 16)
    assert InBedder(make_model("narrow-opt"), pooling=pooling, layer=1).encode(TEXTS, "What?").shape[1] == 32


def test_a_tokenizer_without_padding_or_end_token_works(make_model):
    model = InBedder(make_model("llama"), pooling="avg-gen")
    expected = model.encode(TEXTS, "What?")
    model.backbone.tokenizer.eos_token = None
    assert get_pad_id(model.backbone.tokenizer) == 0
    model.backbone.pad_id = 0
    assert_close(model.encode(TEXTS, "What?"), expected)


def test_special_tokens_beyond_the_head_do_not_matter(make_model):
    model = InBedder(make_model("opt"))
    model.backbone.tokenizer.add_special_tokens({"additional_special_tokens": [f"<extra_{i}>" for i in range(20)]})
    assert len(model.nearest_words(model.encode(TEXTS, "What?"))) == len(TEXTS)


def test_equal_texts_get_equal_sampled_answers_and_many_answers_differ(make_model):
    model = InBedder(make_model("llama"), max_new_tokens=4)
    assert len(set(model.answer(["same text"] * 16, "What?", temperature=1.0, batch_size=1))) == 1
    assert len(set(model.answer("same text", "What?", temperature=1.0, n=16)[0])) > 1
