import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from inbedder.errors import InputError
from inbedder.vectors.pooling import keep_last_true, mask_generated, mask_positions, masked_mean, parse_pooling

HIDDEN = ["1st-gen", "avg-gen", "last-gen", "avg-ppt", "avg-all"]
LEFT = torch.tensor([[0, 0, 1, 1, 1], [1, 1, 1, 1, 1]]).bool()
RIGHT = torch.tensor([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]]).bool()
GENERATED = torch.tensor([[True, False], [True, True]])
STATES = torch.arange(14.0).view(2, 7, 1)


@pytest.mark.parametrize(
    ("pooling", "first", "second"),
    [
        ("1st-gen", 4.0, 11.0),
        ("avg-gen", (4 + 5) / 2, (11 + 12 + 13) / 3),
        ("last-gen", 5.0, 13.0),
        ("avg-ppt", (2 + 3) / 2, (7 + 8 + 9 + 10) / 4),
        ("avg-all", (2 + 3 + 4 + 5) / 4, (7 + 8 + 9 + 10 + 11 + 12 + 13) / 7),
    ],
)
def test_each_pooling_averages_its_positions(pooling, first, second):
    pooled = masked_mean(STATES, mask_positions(pooling, LEFT, GENERATED))
    assert pooled.flatten().tolist() == pytest.approx([first, second])


@pytest.mark.parametrize("pooling", HIDDEN)
def test_left_and_right_padding_pool_the_same_states(pooling):
    pooled = masked_mean(STATES, mask_positions(pooling, LEFT, GENERATED))
    shifted = STATES.clone()
    shifted[0, :5] = STATES[0, :5].roll(-2, 0)
    assert torch.equal(pooled, masked_mean(shifted, mask_positions(pooling, RIGHT, GENERATED)))


@pytest.mark.parametrize(("pooling", "expected"), [("avg-gen", 4.0), ("last-gen", 4.0), ("avg-all", 3.0)])
def test_one_generated_token_leaves_the_last_prompt_position(pooling, expected):
    keep = mask_positions(pooling, LEFT, GENERATED[:, :0])
    assert masked_mean(STATES[:, :5], keep)[0].item() == expected


def test_positions_that_predict_special_tokens_are_left_out_but_never_all():
    predicted = torch.tensor([[2, 5, 2, 7], [5, 2, 2, 2], [9, 9, 9, 9]])
    keep = mask_generated(predicted, torch.tensor([2]))
    assert keep.tolist() == [[True, False, True], [True, False, False], [True, True, True]]
    assert mask_generated(predicted[:, :1], torch.tensor([2])).shape == (3, 0)


@given(st.lists(st.lists(st.booleans(), min_size=6, max_size=6), min_size=1, max_size=5))
def test_keep_last_true_keeps_the_last_true(rows):
    mask = keep_last_true(torch.tensor(rows))
    for row, mask_row in zip(rows, mask.tolist(), strict=True):
        expected = [False] * 6
        if any(row):
            expected[5 - row[::-1].index(True)] = True
        assert mask_row == expected


@given(st.integers(1, 6), st.integers(0, 5), st.sampled_from(HIDDEN))
def test_padding_never_reaches_a_vector(length, padding, pooling):
    prompt = torch.tensor([[False] * padding + [True] * length])
    states = torch.where(prompt, 1.0, float("nan")).unsqueeze(-1)
    generated = torch.ones((1, 2), dtype=torch.bool)
    states = torch.cat([states, torch.ones(1, 2, 1)], 1)
    assert masked_mean(states, mask_positions(pooling, prompt, generated)).item() == 1.0


def test_means_are_computed_in_float32():
    states = torch.full((1, 1000, 1), 1.001, dtype=torch.bfloat16)
    pooled = masked_mean(states, torch.ones(1, 1000, dtype=torch.bool))
    assert pooled.dtype == torch.float32
    assert pooled.item() == pytest.approx(states[0, 0, 0].item())


@pytest.mark.parametrize(
    ("name", "pooling", "layer"),
    [
        ("1st-gen", "1st-gen", None),
        ("fst_gen_layer_32", "1st-gen", 32),
        ("last_ppt_layer_32", "1st-gen", 32),
        ("avg_ppt_layer_0", "avg-ppt", 0),
        ("re_encode", "re-enc", None),
    ],
)
def test_the_authors_names_are_parsed(name, pooling, layer):
    assert parse_pooling(name) == (pooling, layer)


@pytest.mark.parametrize("name", ["mean", "fst_gen_layer_x", "bad_name_layer_3"])
def test_an_unknown_pooling_lists_the_known_ones(name):
    with pytest.raises(InputError, match="Choose one of: 1st-gen"):
        parse_pooling(name)
