import numpy as np
import pytest
import torch
from scipy.stats import chisquare

from inbedder import InBedder
from inbedder.backbones import sampling
from inbedder.backbones.sampling import make_prompt_seed, sample_tokens, sample_uniform_numbers
from inbedder.errors import InputError
from inbedder.options import Sampling
from tests.conftest import TEXTS, assert_close

KINDS = ["llama", "opt", "bert", "t5"]


@pytest.mark.parametrize("kind", KINDS)
def test_sampled_answers_depend_on_neither_batch_nor_other_texts(make_model, kind):
    model = InBedder(make_model(kind), max_new_tokens=4)
    sampled_answers = model.answer(TEXTS, "What?", temperature=1.0, n=3, seed=5)
    assert model.answer(TEXTS, "What?", temperature=1.0, n=3, seed=5, batch_size=1) == sampled_answers
    assert model.answer(TEXTS[::-1], "What?", temperature=1.0, n=3, seed=5, batch_size=2)[::-1] == sampled_answers
    assert model.answer(TEXTS, "What?", temperature=1.0, n=3, seed=6) != sampled_answers


@pytest.mark.parametrize("kind", KINDS)
def test_sampling_leaves_the_global_random_state_alone(make_model, kind):
    model = InBedder(make_model(kind), max_new_tokens=4)
    torch.manual_seed(3)
    before = torch.get_rng_state()
    sampled_answers = model.answer(TEXTS, "What?", temperature=1.0, n=2)
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(4)
    assert model.answer(TEXTS, "What?", temperature=1.0, n=2) == sampled_answers


@pytest.mark.parametrize("kind", ["llama", "opt", "t5"])
def test_states_of_a_sampled_answer_belong_to_its_tokens(make_model, kind, monkeypatch):
    model = InBedder(make_model(kind), max_new_tokens=4)
    sampled_tokens = []
    monkeypatch.setattr(
        sampling, "sample_tokens", lambda *arguments: sampled_tokens.append(sample_tokens(*arguments)) or sampled_tokens[-1]
    )
    model.replace(pooling="avg-gen", temperature=1.0, top_p=0.9, seed=5).encode(TEXTS[0], "What?")
    tokens = torch.cat(sampled_tokens)
    sampled_tokens.clear()
    model.answer(TEXTS[0], "What?", temperature=1.0, top_p=0.9, seed=5)
    assert torch.equal(torch.cat(sampled_tokens), tokens)


@pytest.mark.parametrize("pooling", ["avg-gen", "last-gen", "avg-all"])
def test_vectors_of_sampled_answers_follow_the_seed_and_not_the_batch(make_model, pooling):
    model = InBedder(make_model("llama"), max_new_tokens=4)
    sampled_answers = [
        model.replace(pooling=pooling, temperature=0.6, top_p=0.9, seed=seed).encode(TEXTS, "What?") for seed in (0, 0, 1)
    ]
    single = model.replace(pooling=pooling, temperature=0.6, top_p=0.9).encode(TEXTS, "What?", batch_size=1)
    assert np.array_equal(sampled_answers[0], sampled_answers[1]) and np.abs(sampled_answers[0] - sampled_answers[2]).max() > 1e-3
    assert_close(single, sampled_answers[0])
    greedy = model.replace(pooling=pooling, temperature=0.6, top_p=1e-6).encode(TEXTS, "What?")
    assert_close(greedy, model.replace(pooling=pooling).encode(TEXTS, "What?"))


def test_sampled_and_greedy_vectors_are_kept_apart_in_a_cache(make_model, tmp_path):
    model = InBedder(make_model("llama"), pooling="avg-gen", cache=tmp_path)
    greedy = model.encode(TEXTS, "What?")
    sampled_answers = model.replace(pooling="avg-gen", temperature=1.0).encode(TEXTS, "What?")
    assert np.abs(greedy - sampled_answers).max() > 1e-3
    assert np.array_equal(model.replace(pooling="avg-gen", temperature=1.0).encode(TEXTS, "What?"), sampled_answers)
    assert np.array_equal(model.encode(TEXTS, "What?"), greedy)


@pytest.mark.parametrize(("kind", "pooling"), [("opt", "1st-gen"), ("opt", "avg-ppt"), ("bert", "avg-gen"), ("opt", "re-enc")])
def test_nothing_is_sampled_where_the_pooling_reads_no_decoded_answer(make_model, kind, pooling):
    with pytest.raises(InputError, match="reads no decoded answer"):
        InBedder(make_model(kind)).replace(pooling=pooling, temperature=0.6)


def test_tokens_are_sampled_as_often_as_their_probabilities_say():
    scores = torch.tensor([2.0, 0.0, 1.0, -1.0])
    numbers = (torch.arange(4000) + 0.5) / 4000
    sampling = Sampling(temperature=0.7)
    counts = sample_tokens(scores.expand(4000, -1), sampling, numbers).bincount(minlength=4)
    expected = (scores / 0.7).softmax(0) * 4000
    assert chisquare(counts.numpy(), expected.double().numpy() / float(expected.double().sum()) * 4000).pvalue > 0.999


def test_nothing_outside_the_nucleus_is_sampled():
    scores = torch.tensor([[3.0, 2.0, 1.0, 0.0]])
    numbers = torch.tensor([0.0, 0.5, 0.999999, np.nextafter(np.float32(1), np.float32(0))])
    sampled_answers = sample_tokens(scores.expand(4, -1), Sampling(temperature=1.0, top_p=0.7), numbers)
    assert sampled_answers.tolist() == [0, 0, 1, 1]
    assert sample_tokens(scores.expand(4, -1), Sampling(temperature=1.0, top_p=0.01), numbers).tolist() == [0, 0, 0, 0]


def test_numbers_of_a_prompt_are_its_own(make_model):
    model = InBedder(make_model("opt"))
    prompts = model.tokenizer(["a", "b"], ["What?", "What?"])
    both, single = sample_uniform_numbers(prompts, Sampling(n=2), 3), sample_uniform_numbers(prompts[1:], Sampling(n=2), 3)
    assert both.shape == (4, 3)
    assert torch.equal(both[2:], single)
    assert len(set(both.flatten().tolist())) == 12


def test_every_change_of_seed_or_tokens_makes_another_stream():
    assert len({make_prompt_seed(*pair) for pair in [(0, [1, 2]), (1, [1, 2]), (0, [12]), (0, [1, 2, 0]), (-1, [1, 2])]}) == 5


@pytest.mark.parametrize("sampling", [Sampling(1, 1, 5e-324), Sampling(1, 1, 1e-40), Sampling(1, 1, 1.0, 5e-324)])
def test_the_smallest_temperature_and_nucleus_take_the_likeliest_token(sampling):
    scores = torch.tensor([[1.0, 3.0, 2.0], [0.0, -1.0, -torch.inf]])
    assert sample_tokens(scores, sampling, torch.tensor([0.999, 0.0])).tolist() == [1, 0]
