import torch

from inbedder_finetune.answering.objectives.answer_tokens import AnswerTokens


def test_answer_tokens_sum_their_cross_entropy():
    logits, labels = torch.randn(5, 7), torch.tensor([0, 6, 2, 2, 1])
    expected = -2 * logits.log_softmax(-1)[torch.arange(5), labels].sum()
    torch.testing.assert_close(AnswerTokens(token_weight=2).compute_loss(logits, labels), expected)
    assert AnswerTokens(token_weight=0).compute_loss(logits, labels) == 0
