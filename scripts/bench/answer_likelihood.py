"""The likelihood of given answers, such as the names of categories, to a question about each text.

    L(y | x) = (log p(y | x) - c * mean over f of log p(y | f)) / tokens of y

x is a text, y an answer with the end token, f a text without content, and c ``CALIBRATION_SHARE``. A mean per token compares
answers of different lengths. The second term removes part of the model's preference for an answer whatever the text (Zhao et al.
2021, "Calibrate Before Use"; Holtzman et al. 2021, "Surface Form Competition"). L depends neither on the order of the answers nor
on the other answers.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from typing import Any

import numpy as np
import torch
from torch import Tensor

from inbedder import InBedder
from inbedder.backbones.causal import CausalBackbone
from inbedder.backbones.kv_cache import KVCache, read_texts
from inbedder.prompting.batching import TOKEN_BUDGET, pad, split_into_batches
from inbedder.prompting.tokenization import PromptTokens

CONTENT_FREE_TEXTS = ("", "N/A", "[MASK]")
"""Texts without content (Zhao et al. 2021)."""
CALIBRATION_SHARE = 0.5
"""Share of an answer's log-likelihood under texts without content that is subtracted; 1 removes the preference entirely."""
MAX_LOGITS, BATCH_SIZE = 2**25, 8
"""Maximum number of logits that are held at once, and of texts in a batch."""


@torch.inference_mode()
def score_answers(backbone: CausalBackbone, prompts: Sequence[PromptTokens], answers: Sequence[Sequence[int]]) -> Tensor:
    """Compute the log-likelihood of given answers after each prompt. Each prompt is read once for all answers.

    Args:
        backbone: A causal LM that reads no padding and whose cache keeps all positions.
        prompts: n tokenized prompts.
        answers: Token ids of k answers, at least one each; an end token counts like any other.

    Returns:
        Sum of the log-probabilities of each answer's tokens, float32, shape (n, k).
    """
    texts = read_texts(backbone, prompts, KVCache(0))
    inputs = backbone.make_inputs(texts.following_ids, "left", texts.mask)
    output = backbone.model(**inputs, past_key_values=texts.past_key_values, use_cache=True)
    prompt_mask, first_log_probs = inputs["attention_mask"].bool().cpu(), output.logits[:, -1].float().log_softmax(-1)
    log_likelihoods: Tensor = first_log_probs[:, [ids[0] for ids in answers]]
    longer = [number for number, ids in enumerate(answers) if len(ids) > 1]
    longest = max(map(len, answers))
    rows_per_pass = min(MAX_LOGITS // (longest * first_log_probs.shape[1]), TOKEN_BUDGET // (prompt_mask.shape[1] + longest))
    group_size = max(1, rows_per_pass // len(prompts))
    for start in range(0, len(longer), group_size):
        group = longer[start : start + group_size]
        cache = deepcopy(output.past_key_values)
        cache.batch_repeat_interleave(len(group))
        ids, mask = pad([np.asarray(answers[number], dtype=np.int32) for number in group], backbone.pad_id)
        targets, is_target = (tensor[:, 1:].repeat(len(prompts), 1).to(backbone.model.device) for tensor in (ids, mask))
        read_ids = [np.asarray(answers[number][:-1], dtype=np.int32) for number in group] * len(prompts)
        step_inputs = backbone.make_inputs(read_ids, "right", prompt_mask.repeat_interleave(len(group), 0))
        logits = backbone.model(**step_inputs, past_key_values=cache, use_cache=True).logits.float()
        log_probs = logits.gather(2, targets.unsqueeze(2)).squeeze(2) - logits.logsumexp(2)
        log_likelihoods[:, group] += log_probs.masked_fill(~is_target, 0.0).sum(1).view(len(prompts), -1)
    return log_likelihoods


def compute_answer_likelihoods(model: InBedder, texts: Sequence[str], question: str, answers: Sequence[str]) -> Any:
    """Compute the calibrated likelihood of answers.

    Args:
        model: A causal LM for which ``score_answers`` is exact.
        texts: n texts.
        question: The question.
        answers: k non-empty answers.

    Returns:
        L, float32, shape (n, k).
    """
    assert isinstance(model.backbone, CausalBackbone)
    answer_ids = tokenize_answers(model, question, answers)
    all_texts = [*texts, *CONTENT_FREE_TEXTS]
    prompts = model.tokenizer(all_texts, [question] * len(all_texts))
    log_likelihoods = np.empty((len(all_texts), len(answers)), dtype=np.float32)
    for rows in split_into_batches([len(prompt.ids) for prompt in prompts], BATCH_SIZE):
        log_likelihoods[rows] = score_answers(model.backbone, [prompts[row] for row in rows], answer_ids).cpu().numpy()
    lengths = np.array([len(ids) for ids in answer_ids], dtype=np.float32)
    return (log_likelihoods[: len(texts)] - CALIBRATION_SHARE * log_likelihoods[len(texts) :].mean(axis=0)) / lengths


def tokenize_answers(model: InBedder, question: str, answers: Sequence[str]) -> list[tuple[int, ...]]:
    """Tokenize answers as they follow the question, each with the end token if the tokenizer has one."""
    prefix = "" if model.template.render("", question).string[-1:].isspace() else " "
    texts, questions = [""] * len(answers), [question] * len(answers)
    pairs = model.tokenizer.with_answers(texts, questions, [prefix + answer for answer in answers])
    end_id = model.tokenizer.tokenizer.eos_token_id
    return [(*pair.answer_ids, *(() if end_id is None else (int(end_id),))) for pair in pairs]
