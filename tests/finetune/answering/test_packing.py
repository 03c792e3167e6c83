import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from inbedder_finetune.answering.examples import IGNORE_INDEX, Collator
from inbedder_finetune.answering.forward_pass import forward_causal, pool_states
from inbedder_finetune.answering.packing import SHARED_OWNER, PackingCollator, arrange_packs, pack


def example(text, prompt, answer):
    ids = np.array([*prompt, *answer])
    return {"text": text, "input_ids": ids, "labels": np.array([IGNORE_INDEX] * len(prompt) + list(answer))}


EXAMPLES = [
    example(0, [5, 6, 7, 8], [9, 2]),
    example(1, [5, 11, 12], [13, 14, 2]),
    example(0, [5, 6, 7, 10, 12], [11, 2]),
    example(2, [9], [8]),
    example(1, [5, 11, 12], [7, 2]),
]


def test_the_shared_prefix_occurs_once():
    packed = pack([EXAMPLES[0], EXAMPLES[2]], [0, 2])
    assert packed.ids.tolist() == [5, 6, 7, 8, 9, 2, 10, 12, 11, 2]
    assert packed.owner.tolist() == [SHARED_OWNER] * 3 + [0] * 3 + [2] * 4
    assert packed.positions.tolist() == [0, 1, 2, 3, 4, 5, 3, 4, 5, 6]
    assert [one for one in packed.labels.tolist() if one != IGNORE_INDEX] == [9, 2, 11, 2]


def test_states_that_predict_answers_are_not_shared():
    packed = pack([EXAMPLES[1], EXAMPLES[4]], [0, 1])  # equal prompts
    assert packed.owner.tolist() == [SHARED_OWNER] * 2 + [0] * 4 + [1] * 3


def test_rows_are_filled_up_to_the_longest_pack():
    assert arrange_packs([3, 10, 7, 5, 1]) == [[1], [2, 0], [3, 4]]


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("family", ["llama", "opt", "gpt2", "qwen2", "mistral"])
def test_packed_examples_have_the_states_of_separate_passes(make_model, family, attention):
    model = AutoModelForCausalLM.from_pretrained(make_model(family), attn_implementation=attention).eval()
    targets = {"answer": torch.arange(len(EXAMPLES), dtype=torch.float32).unsqueeze(1)}
    examples = [{**one, "answer_index": number} for number, one in enumerate(EXAMPLES)]
    plain, packed = (forward_causal(model, model, kind(0, targets)(examples)) for kind in (Collator, PackingCollator))
    assert packed.labels.tolist() == plain.labels.tolist()
    torch.testing.assert_close(packed.logits, plain.logits, atol=2e-5, rtol=1e-4)
    for pooling in ("1st-gen", "avg-gen"):
        torch.testing.assert_close(pool_states(packed, pooling), pool_states(plain, pooling), atol=2e-5, rtol=1e-4)


@pytest.mark.parametrize("family", ["llama", "opt", "gpt2"])
def test_left_padding_changes_nothing(make_model, family):
    model = AutoModelForCausalLM.from_pretrained(make_model(family)).eval()
    left_padded, right_padded = (forward_causal(model, model, Collator(0, side=side)(EXAMPLES)) for side in ("left", "right"))
    assert left_padded.labels.tolist() == right_padded.labels.tolist()
    torch.testing.assert_close(left_padded.logits, right_padded.logits, atol=2e-5, rtol=1e-4)
