import math

import pytest
import torch
import torch.nn.functional as F

from inbedder_finetune.contrastive.contrastive_losses import MISSING_TEXT, compute_loss

TEMPERATURE = 0.05
DENOMINATORS = ("batch", "hard-negatives", "negatives")


def make_embeddings(rows=4, columns=3):
    return list(torch.randn(columns, rows, 6, generator=torch.Generator().manual_seed(0)))


def make_labels(texts, anchors=None):
    return torch.tensor([[1 if anchors is None else anchors[i], *row] for i, row in enumerate(texts)])


DISTINCT = [[3 * i, 3 * i + 1, 3 * i + 2] for i in range(4)]


def compute_expected_loss(embeddings, denominator, excluded=(), excluded_queries=()):
    """Compute the equations of ``contrastive_losses`` term by term; a text is (row, column)."""
    rows, columns = len(embeddings[0]), len(embeddings)

    def score(first, second):
        vectors = [F.normalize(embeddings[column][row].double(), dim=0) for row, column in (first, second)]
        return math.exp(float(vectors[0] @ vectors[1]) / TEMPERATURE)

    total = 0.0
    for i in range(rows):
        own_score = score((i, 0), (i, 1))
        negatives = [(j, column) for j in range(rows) for column in range(2, columns)]
        positives = {"batch": [(j, 1) for j in range(rows)], "hard-negatives": [(i, 1)], "negatives": []}[denominator]
        total -= math.log(own_score / sum(score((i, 0), text) for text in positives + negatives if (i, text) not in excluded))
        if denominator != "negatives":
            total -= math.log(own_score / sum(score((j, 0), (i, 1)) for j in range(rows) if (i, j) not in excluded_queries))
    return total / rows


@pytest.mark.parametrize("denominator", DENOMINATORS)
def test_the_loss_equals_its_equation(denominator):
    embeddings = make_embeddings()
    loss = compute_loss(embeddings, make_labels(DISTINCT), TEMPERATURE, denominator)
    assert loss.item() == pytest.approx(compute_expected_loss(embeddings, denominator), rel=1e-5)


def test_the_authors_loss_equals_their_two_cross_entropies():
    queries, positives, negatives = (F.normalize(one, dim=1) for one in make_embeddings(rows=8))
    scores = torch.cat([(queries * positives).sum(dim=1, keepdim=True), queries @ negatives.T], dim=1) / TEMPERATURE
    expected = F.cross_entropy(scores, torch.zeros(8, dtype=torch.long))
    expected += F.cross_entropy(positives @ queries.T / TEMPERATURE, torch.arange(8))
    labels = make_labels([[3 * i, 3 * i + 1, 3 * i + 2] for i in range(8)])
    values = [compute_loss([queries, positives, negatives], labels, TEMPERATURE, name).item() for name in DENOMINATORS]
    assert values[1] == pytest.approx(expected.item(), rel=1e-5)
    assert values == pytest.approx([30.4435, 28.8723, 13.5985], abs=1e-3)


@pytest.mark.parametrize("denominator", DENOMINATORS)
def test_texts_that_answer_a_query_are_no_negatives_of_it(denominator):
    texts = [[0, 1, 2], [3, 1, 4], [0, 5, 1], [6, 7, 0]]
    # Rows 0 and 1 share the positive 1, rows 0 and 2 the query 0; the negative of row 2 is 1, that of row 3 is 0.
    excluded = {
        *((0, text) for text in [(1, 1), (2, 1), (2, 2), (3, 2)]),
        *((1, text) for text in [(0, 1), (2, 2)]),
        *((2, text) for text in [(0, 1), (1, 1), (2, 2), (3, 2)]),
    }
    excluded_queries = {(0, 1), (0, 2), (1, 0), (1, 2), (2, 0)}
    embeddings = make_embeddings()
    loss = compute_loss(embeddings, make_labels(texts), TEMPERATURE, denominator)
    assert loss.item() == pytest.approx(compute_expected_loss(embeddings, denominator, excluded, excluded_queries), rel=1e-5)


def test_a_missing_negative_is_in_no_denominator():
    embeddings = make_embeddings()
    texts = [row if i else [0, 1, MISSING_TEXT] for i, row in enumerate(DISTINCT)]
    expected = compute_expected_loss(embeddings, "batch", {(i, (0, 2)) for i in range(4)})
    assert compute_loss(embeddings, make_labels(texts), TEMPERATURE).item() == pytest.approx(expected, rel=1e-5)


def test_a_row_that_is_no_anchor_is_only_a_negative():
    embeddings = make_embeddings()
    losses = [
        compute_loss(embeddings, make_labels(DISTINCT, [int(i == row) for i in range(4)]), TEMPERATURE).item() for row in range(4)
    ]
    assert sum(losses) == pytest.approx(compute_loss(embeddings, make_labels(DISTINCT), TEMPERATURE).item())
    assert min(losses) > 0
    assert compute_loss(embeddings, make_labels(DISTINCT, [0, 0, 0, 0]), TEMPERATURE).item() == 0


def test_a_row_without_any_negative_trains_nothing():
    embeddings = [one.requires_grad_() for one in make_embeddings()]
    loss = compute_loss(embeddings, make_labels([[0, 1, 1]] * 4), TEMPERATURE, "negatives")
    loss.backward()
    assert loss.item() == 0
    assert all(one.grad.abs().max() == 0 for one in embeddings)
