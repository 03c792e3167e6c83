import numpy as np
import pytest
import torch

from inbedder import InBedder
from scripts.bench import answer_likelihood
from scripts.bench.answer_likelihood import (
    CALIBRATION_SHARE,
    CONTENT_FREE_TEXTS,
    compute_answer_likelihoods,
    score_answers,
    tokenize_answers,
)
from tests.conftest import TEXTS

QUESTION, ANSWERS = "What is it about?", ["cats", "late parcels", "the weather of today"]
IDS = ((7,), (5, 9, 3), (5, 2), (11, 4, 4, 8))


@pytest.fixture(params=["opt", "gpt2", "llama", "qwen2"])
def model(make_model, request):
    return InBedder(make_model(request.param), dtype="float32")


@pytest.fixture
def prompts(model):
    return model.tokenizer(TEXTS, [QUESTION] * len(TEXTS))


def _compute_in_one_pass(backbone, prompt, answer):
    """Sum the log-probabilities of an answer's tokens in one pass over prompt and answer."""
    ids = torch.tensor([[*prompt.ids.tolist(), *answer]])
    with torch.inference_mode():
        log_probs = backbone.model(input_ids=ids).logits[0].float().log_softmax(-1)
    start = len(prompt.ids) - 1
    return sum(log_probs[start + place, token].item() for place, token in enumerate(answer))


def test_scores_are_sums_over_the_tokens_of_prompt_and_answer(model, prompts):
    expected = [[_compute_in_one_pass(model.backbone, prompt, answer) for answer in IDS] for prompt in prompts]
    np.testing.assert_allclose(score_answers(model.backbone, prompts, IDS), expected, atol=1e-4)


def test_scores_depend_neither_on_the_batch_nor_on_other_answers(model, prompts, monkeypatch):
    scores = score_answers(model.backbone, prompts, IDS).numpy()
    reordered = score_answers(model.backbone, prompts[::-1], IDS[::-1]).numpy()
    np.testing.assert_allclose(reordered[::-1, ::-1], scores, atol=1e-4)
    monkeypatch.setattr(answer_likelihood, "MAX_LOGITS", 1)
    singles = [score_answers(model.backbone, [prompt], IDS).numpy()[0] for prompt in prompts]
    np.testing.assert_allclose(singles, scores, atol=1e-4)


def test_the_likelihood_without_content_is_subtracted_per_token(model):
    ids = tokenize_answers(model, QUESTION, ANSWERS)
    assert {answer_ids[-1] for answer_ids in ids} == {model.tokenizer.tokenizer.eos_token_id}
    texts = [*TEXTS, *CONTENT_FREE_TEXTS]
    sums = score_answers(model.backbone, model.tokenizer(texts, [QUESTION] * len(texts)), ids).numpy()
    lengths = [len(answer_ids) for answer_ids in ids]
    expected = (sums[: len(TEXTS)] - CALIBRATION_SHARE * sums[len(TEXTS) :].mean(axis=0)) / lengths
    np.testing.assert_allclose(compute_answer_likelihoods(model, TEXTS, QUESTION, ANSWERS), expected, atol=1e-4)
