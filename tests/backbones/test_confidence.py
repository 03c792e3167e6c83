import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoModelForMaskedLM, AutoModelForSeq2SeqLM

from inbedder import InBedder
from inbedder.backbones import sampling
from inbedder.backbones.confidence import ScoredAnswer, measure_confidences
from inbedder.backbones.masked import MaskedBackbone
from inbedder.backbones.sampling import sample_tokens
from inbedder.options import Sampling
from tests.conftest import TEXTS

GREEDY, SAMPLED = Sampling(4), Sampling(4, 3, 1.5, 0.8, 5)
GENERATING = {"opt": AutoModelForCausalLM, "llama": AutoModelForCausalLM, "t5": AutoModelForSeq2SeqLM}


def compute_mean_probability(log_probs):
    return float(np.exp(np.mean(log_probs)))


def compute_logits(reference, prompt, answer):
    """Compute plain logits of the next token after an answer."""
    ids = torch.tensor([prompt])
    if reference.config.is_encoder_decoder:
        return reference(input_ids=ids, decoder_input_ids=torch.tensor([[0, *answer]])).logits[0, -1]
    return reference(input_ids=torch.tensor([[*prompt, *answer]])).logits[0, -1]


@torch.inference_mode()
def score_plainly(reference, prompt, answer):
    """Compute the logarithm of the plain probability of each token of an answer."""
    logits = [compute_logits(reference, prompt, answer[:step]) for step in range(len(answer))]
    return [float(row.log_softmax(-1)[token]) for row, token in zip(logits, answer, strict=True)]


@torch.inference_mode()
def answer_plainly(reference, prompt, count):
    """Choose the likeliest tokens one after the other."""
    answer = []
    while len(answer) < count:
        answer.append(int(compute_logits(reference, prompt, answer).argmax()))
    return answer


@pytest.mark.parametrize("family", GENERATING)
def test_confidence_is_the_mean_probability_of_generated_tokens(make_model, family):
    model = InBedder(make_model(family))
    reference = GENERATING[family].from_pretrained(make_model(family)).eval()
    prompt = model.tokenizer([TEXTS[0]], ["What?"])[0]
    tokens = answer_plainly(reference, prompt.ids.tolist(), 4)
    log_probs = score_plainly(reference, prompt.ids.tolist(), tokens)
    for stop in (*tokens, None):
        model.backbone.model.generation_config.eos_token_id = [-1 if stop is None else stop]
        count = 4 if stop is None else tokens.index(stop) + 1
        ((answer,),) = model.backbone.answer([prompt], GREEDY)
        assert answer.text == model.backbone.tokenizer.decode(tokens[:count], skip_special_tokens=True)
        assert answer.confidence == pytest.approx(compute_mean_probability(log_probs[:count]), rel=1e-4)


@pytest.mark.parametrize("family", GENERATING)
def test_a_sampled_answer_has_its_probability_at_temperature_one(make_model, family, monkeypatch):
    model = InBedder(make_model(family))
    reference = GENERATING[family].from_pretrained(make_model(family)).eval()
    model.backbone.model.generation_config.eos_token_id = [-1]
    prompt, steps = model.tokenizer([TEXTS[0]], ["What?"])[0], []
    monkeypatch.setattr(sampling, "sample_tokens", lambda *arguments: steps.append(sample_tokens(*arguments)) or steps[-1])
    (answers,) = model.backbone.answer([prompt], SAMPLED)
    for answer, tokens in zip(answers, torch.stack(steps, 1).tolist(), strict=True):
        log_probs = score_plainly(reference, prompt.ids.tolist(), tokens)
        assert answer.confidence == pytest.approx(compute_mean_probability(log_probs), rel=1e-4)


@pytest.mark.parametrize("family", ["bert", "roberta"])
@pytest.mark.parametrize("is_constrained", [True, False])
@pytest.mark.parametrize("settings", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
def test_confidence_of_a_masked_model_is_that_of_its_masks(make_model, family, is_constrained, settings, monkeypatch):
    name = "_fill_masks" if is_constrained else "_fill_masks_independently"
    fill, filled = getattr(MaskedBackbone, name), []
    monkeypatch.setattr(MaskedBackbone, name, lambda *arguments: filled.append(fill(*arguments)) or filled[-1])
    model = InBedder(make_model(family), mask_length=4, constrained_decoding=is_constrained)
    prompt = model.tokenizer([TEXTS[0]], ["What?"])[0]
    (answers,) = model.backbone.answer([prompt], settings)
    with torch.inference_mode():
        reference = AutoModelForMaskedLM.from_pretrained(make_model(family)).eval()
        logits = reference(torch.from_numpy(prompt.ids).long()[None]).logits[0, prompt.response : prompt.response + 4]
    log_probs = logits.log_softmax(-1)
    for answer, tokens in zip(answers, filled[0][0].tolist(), strict=True):
        has_end = is_constrained and model.backbone.end in tokens
        count = tokens.index(model.backbone.end) + 1 if has_end else 4
        expected = compute_mean_probability([float(log_probs[mask, tokens[mask]]) for mask in range(count)])
        assert answer.confidence == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("family", ["opt", "llama", "t5", "bert", "roberta", "xlm-roberta"])
@pytest.mark.parametrize("settings", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
def test_confidences_do_not_depend_on_the_batch(make_model, family, settings):
    model = InBedder(make_model(family))
    prompts = model.tokenizer(TEXTS, ["What?"] * len(TEXTS))
    batch = [answer for row in model.backbone.answer(prompts, settings) for answer in row]
    singles = [answer for prompt in prompts for answer in model.backbone.answer([prompt], settings)[0]]
    assert [answer.text for answer in batch] == [answer.text for answer in singles]
    assert [answer.confidence for answer in batch] == pytest.approx([answer.confidence for answer in singles], rel=1e-4)
    assert all(0 < answer.confidence < 1 for answer in batch)


def test_the_end_token_counts_and_nothing_that_follows_it():
    log_probs = torch.tensor([[0.5, 0.125, 0.9, 0.9], [0.5, 0.25, 0.5, 1.0], [0.25, 0.1, 0.1, 0.1]]).log()
    tokens = torch.tensor([[7, 2, 0, 2], [7, 8, 9, 0], [3, 3, 3, 3]])
    confidences = measure_confidences(log_probs, tokens, [2, 3])
    torch.testing.assert_close(confidences, torch.tensor([0.25, 0.5, 0.25]))
    torch.testing.assert_close(measure_confidences(log_probs[1], tokens[1], []), torch.tensor(0.5))
    assert measure_confidences(torch.tensor([-1.0, -torch.inf]), torch.tensor([2, 0]), [2]) == pytest.approx(np.exp(-1))


@pytest.mark.parametrize(
    ("answer", "threshold", "text"),
    [
        (ScoredAnswer("cats", 0.3), 0.3, "cats"),
        (ScoredAnswer("cats", 0.3), 0.31, ""),
        (ScoredAnswer("cats", 0.0), 0, "cats"),
        (ScoredAnswer("None.", 1.0), 0, "None."),
        (ScoredAnswer("None.", 1.0), 0.01, ""),
        (ScoredAnswer("none of them", 1.0), 0.01, "none of them"),
        (ScoredAnswer("", 1.0), 0.01, ""),
    ],
    ids=str,
)
def test_an_unsure_answer_and_the_answer_none_are_empty(answer, threshold, text):
    assert answer.select_text(threshold) == text
