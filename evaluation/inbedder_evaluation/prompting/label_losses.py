"""Labels of in-context questions by their losses, as MetaICL and the INSTRUCTOR authors' code choose them, and ROUGE-L.

Every part of a prompt is tokenized on its own. The loss of a label is the mean cross-entropy of its tokens after the prompt, and
the label of the smallest loss is the answer.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import torch

from inbedder.backbones.causal import CausalBackbone
from inbedder.embedder import InBedder

MAX_PASS_TOKENS = 1024
"""Length above which a prompt with its label is cut at its start."""
MAX_QUESTION_TOKENS = 254
"""Length above which a question with its longest label is cut at its end."""
SEPARATOR, LABEL_START = "\n\n\n", "\n"
"""Before an example or a question, and before a label."""
MIN_STEMMED_LENGTH = 4


def count_tokens(model: InBedder, texts: Sequence[str]) -> list[int]:
    """Count the tokens of texts, without special tokens."""
    return [len(ids) for ids in _tokenize(model, texts)]


def compute_label_losses(
    model: InBedder, examples: Sequence[tuple[str, str]], question: str, labels: Sequence[str], batch_size: int = 4
) -> list[float]:
    """Compute the loss of each label after examples and a question.

    Args:
        model: A causal LM.
        examples: Questions and their labels, in the order of the prompt.
        question: The question.
        labels: The labels to compare.
        batch_size: Number of labels in one pass.

    Returns:
        A mean cross-entropy per label.
    """
    starts = [f"{SEPARATOR if number else ''}{text}" for number, (text, _) in enumerate(examples)]
    parts = [part for start, (_, label) in zip(starts, examples, strict=True) for part in (start, LABEL_START + label)]
    context = [token for ids in _tokenize(model, parts) for token in ids]
    label_rows = _tokenize(model, [LABEL_START + label for label in labels])
    (question_ids,) = _tokenize(model, [SEPARATOR + question])
    prompt = context + question_ids[: MAX_QUESTION_TOKENS - max(map(len, label_rows))]
    rows = [prompt[max(0, len(prompt) + len(label) - MAX_PASS_TOKENS) :] + label for label in label_rows]
    return [
        loss
        for start in range(0, len(rows), batch_size)
        for loss in _compute_losses(model, rows[start : start + batch_size], label_rows[start : start + batch_size])
    ]


def _tokenize(model: InBedder, texts: Sequence[str]) -> list[list[int]]:
    return list(model.tokenizer.tokenizer(list(texts), add_special_tokens=False)["input_ids"]) if texts else []


@torch.inference_mode()
def _compute_losses(model: InBedder, rows: Sequence[Sequence[int]], labels: Sequence[Sequence[int]]) -> list[float]:
    backbone = model.backbone
    assert isinstance(backbone, CausalBackbone)
    inputs = backbone.make_inputs([np.asarray(row, dtype=np.int32) for row in rows], "right")
    logits = backbone.model(**inputs).logits
    losses = []
    for row_logits, row, label in zip(logits, rows, labels, strict=True):
        predicted = row_logits[len(row) - len(label) - 1 : len(row) - 1].float()
        targets = torch.tensor(label, device=predicted.device)
        losses.append(float(torch.nn.functional.cross_entropy(predicted, targets)))
    return losses


def rouge_l(prediction: str, reference: str) -> float:
    """Compute ROUGE-L with Porter's stemmer: F1 of the longest common subsequence of words.

    Args:
        prediction: A text.
        reference: The right text.

    Returns:
        0 to 1; 0 when a text has no word.
    """
    first, second = _stem_words(prediction), _stem_words(reference)
    lengths = [0] * (len(second) + 1)
    for word in first:
        previous = 0
        for column, second_word in enumerate(second, 1):
            previous, lengths[column] = (
                lengths[column],
                previous + 1 if word == second_word else max(lengths[column], lengths[column - 1]),
            )
    return 2 * lengths[-1] / (len(first) + len(second)) if first and second else 0.0


def _stem_words(text: str) -> list[str]:
    import snowballstemmer

    stemmer = snowballstemmer.stemmer("porter")
    words = re.findall("[a-z0-9]+", text.lower())
    return [stemmer.stemWord(word) if len(word) >= MIN_STEMMED_LENGTH else word for word in words]
