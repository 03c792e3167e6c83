import numpy as np
import pytest
import torch

from inbedder.prompting.templates import get_template
from inbedder.prompting.tokenization import PromptTokenizer
from inbedder_finetune.answering.answering_recipe import parse_recipe
from inbedder_finetune.answering.examples import (
    IGNORE_INDEX,
    Collator,
    _truncate_answer,
    make_causal_examples,
    make_masked_examples,
)
from inbedder_finetune.answering.plan import resolve_plan
from inbedder_finetune.answering.trainable_families import make_examples
from inbedder_finetune.answering.training_row import Row
from tests.conftest import TOKENIZERS

ROWS = [
    Row("I love cats", "What animals do they love?", "cats", "f"),
    Row("The delivery was late", "What product is it?", "box crushed lamp inside still works fine", "f"),
    Row("long " * 500, "Do they love animals?", "</s> <mask>", "f"),
]


def answer_format(**settings):
    return resolve_plan(parse_recipe({"model": "m", "data": {"sources": ["a"]}, "max_length": 96, **settings})).answer_format


@pytest.mark.parametrize("masks", [1, 3, 5])
def test_the_training_prompt_is_the_inference_prompt(masks):
    tokenizer = TOKENIZERS["roberta"]()
    examples = make_masked_examples(tokenizer, ROWS, answer_format(mask_length=masks))
    prompts = PromptTokenizer(tokenizer, get_template(), 96, masks)([r.text for r in ROWS], [r.instruction for r in ROWS])
    for example, prompt in zip(examples, prompts, strict=True):
        assert np.array_equal(example["input_ids"], prompt.ids)


def test_fixed_masks_hold_the_first_answer_tokens_then_the_end():
    tokenizer = TOKENIZERS["wordpiece"]()
    short, long, _ = make_masked_examples(tokenizer, ROWS, answer_format(mask_length=3))
    cats = tokenizer("cats", add_special_tokens=False)["input_ids"]
    assert short["labels"].tolist() == (cats + [tokenizer.sep_token_id] * 3)[:3]
    encoded = tokenizer(ROWS[1].answer, add_special_tokens=False)
    truncated = _truncate_answer(encoded["input_ids"], encoded.word_ids(), 3)
    assert long["labels"].tolist() == truncated + [tokenizer.sep_token_id] * (3 - len(truncated))


@pytest.mark.parametrize(
    ("words", "expected"),
    [([0, 1, 2, 3], 3), ([0, 0, 1, 1], 2), ([0, 1, 1, 1, 1], 1), ([0, 0, 0, 0], 3), ([0, 0, 1], 3), ([0], 1)],
)
def test_answers_are_truncated_between_words(words, expected):
    assert _truncate_answer(list(range(len(words))), words, 3) == list(range(expected))


def test_as_many_masks_as_the_answer_has_tokens():
    tokenizer = TOKENIZERS["roberta"]()
    for example, row in zip(make_masked_examples(tokenizer, ROWS, answer_format(mask_length="answer")), ROWS, strict=True):
        expected = tokenizer(row.answer, add_special_tokens=False, split_special_tokens=True)["input_ids"][:40]
        assert example["labels"].tolist() == expected
        assert (example["input_ids"] == tokenizer.mask_token_id).sum() == len(expected)
        assert example["input_ids"][-1] == tokenizer.eos_token_id
        assert len(example["input_ids"]) <= 96


def test_causal_labels_are_the_answer_and_the_end():
    tokenizer = TOKENIZERS["byte-level"]()
    examples = make_causal_examples(tokenizer, ROWS, answer_format(max_answer_tokens=30))
    for example, row in zip(examples, ROWS, strict=True):
        answer = tokenizer(row.answer, add_special_tokens=False, split_special_tokens=True)["input_ids"][:30]
        (prompt,) = PromptTokenizer(tokenizer, get_template(), 96 - len(answer) - 1)([row.text], [row.instruction])
        size = len(prompt.ids)
        assert np.array_equal(example["input_ids"][:size], prompt.ids)
        assert set(example["labels"][:size].tolist()) == {IGNORE_INDEX}
        assert example["labels"][size:].tolist() == [*answer, tokenizer.eos_token_id] == example["input_ids"][size:].tolist()


@pytest.mark.parametrize("name", ["byte-level", "llama-like"])
@pytest.mark.parametrize("prefix", ["", " "])
def test_a_decoder_reads_prompt_and_answer_as_one_string(name, prefix):
    tokenizer = TOKENIZERS[name]()
    for example, row in zip(
        make_causal_examples(tokenizer, ROWS[:2], answer_format(max_length=200, answer_prefix=prefix)), ROWS, strict=False
    ):
        joined = get_template().render(row.text, row.instruction).string + prefix + row.answer
        assert example["input_ids"].tolist() == [*tokenizer(joined)["input_ids"], tokenizer.eos_token_id]
        answer_ids = example["labels"][example["labels"] != IGNORE_INDEX]
        assert tokenizer.decode(answer_ids, skip_special_tokens=True).strip() == row.answer


def test_a_token_across_the_border_belongs_to_the_answer():
    tokenizer = TOKENIZERS["byte-level"]()
    (example,) = make_causal_examples(tokenizer, ROWS[:1], answer_format(template="{input} {instruction} ", answer_prefix=""))
    assert example["input_ids"].tolist()[:-1] == tokenizer("I love cats What animals do they love? cats")["input_ids"]
    assert tokenizer.decode(example["labels"][example["labels"] != IGNORE_INDEX], skip_special_tokens=True) == " cats"


@pytest.mark.parametrize("name", ["roberta", "wordpiece", "xlm-r-like"])
def test_masks_replace_the_answers_tokens_of_the_joined_string(name):
    tokenizer = TOKENIZERS[name]()
    for example, row in zip(
        make_masked_examples(tokenizer, ROWS[:2], answer_format(max_length=300, mask_length="answer")), ROWS, strict=False
    ):
        joined = get_template().render(row.text, row.instruction).string + row.answer
        ids = example["input_ids"].copy()
        ids[ids == tokenizer.mask_token_id] = example["labels"]
        assert ids.tolist() == tokenizer(joined)["input_ids"]


@pytest.mark.parametrize(
    ("make_examples", "name", "settings"),
    [
        (make_causal_examples, "byte-level", {}),
        (make_causal_examples, "llama-like", {"answer_prefix": " "}),
        (make_masked_examples, "roberta", {"mask_length": "answer"}),
    ],
)
def test_a_long_text_leaves_room_for_its_own_answer_only(make_examples, name, settings):
    tokenizer = TOKENIZERS[name]()
    rows = [Row("a " * 500, "Why?", answer, "f") for answer in ("", "b", "c d e f g", " ".join("hijklmnop"))]
    examples = make_examples(tokenizer, rows, answer_format(max_answer_tokens=20, **settings))
    counts = [int((example["labels"] != IGNORE_INDEX).sum()) for example in examples]
    assert counts[0] == 1 <= counts[1] < counts[2] < counts[3] <= 20
    for example, row, count in zip(examples, rows, counts, strict=True):
        (prompt,) = PromptTokenizer(tokenizer, get_template(), 96 - count)([row.text], [row.instruction])
        assert 95 <= len(prompt.ids) + count == len(example["input_ids"]) <= 96


def test_an_alpaca_row_without_input_has_no_input_block():
    tokenizer = TOKENIZERS["byte-level"]()
    (example,) = make_causal_examples(tokenizer, [Row("", "Name cats", "cats", "f")], answer_format(template="alpaca-short"))
    prompt = tokenizer.decode(example["input_ids"], skip_special_tokens=True)
    assert prompt == "### Instruction:\nName cats\n\n### Response:cats"


def test_collation_pads_on_the_right_and_ignores_padding():
    batch = Collator(9, {"answer": torch.arange(10).reshape(5, 2).half()})(
        [
            {"input_ids": np.array([1, 2]), "labels": np.array([5]), "answer_index": 0},
            {"input_ids": np.array([3]), "labels": np.array([6, 7]), "answer_index": 4},
        ]
    )
    assert batch["input_ids"].tolist() == [[1, 2], [3, 9]]
    assert batch["attention_mask"].tolist() == [[1, 1], [1, 0]]
    assert batch["labels"].tolist() == [[5, IGNORE_INDEX], [6, 7]]
    assert batch["answer_index"].tolist() == [0, 4]
    assert batch["answer"].tolist() == [[0, 1], [8, 9]]
    assert batch["answer"].dtype == torch.float32


def test_encoder_decoder_labels_are_the_answer_and_the_end():
    tokenizer = TOKENIZERS["t5-like"]()
    examples = make_examples("seq2seq", tokenizer, ROWS, answer_format(max_answer_tokens=30))
    prompts = PromptTokenizer(tokenizer, get_template(), 96)([r.text for r in ROWS], [r.instruction for r in ROWS])
    for example, prompt, row in zip(examples, prompts, ROWS, strict=True):
        answer = tokenizer(row.answer, add_special_tokens=False, split_special_tokens=True)["input_ids"][:30]
        assert np.array_equal(example["input_ids"], prompt.ids)
        assert example["labels"].tolist() == [*answer, tokenizer.eos_token_id]


def test_long_examples_lose_text_and_are_marked():
    for kind, name in (("causal", "byte-level"), ("masked", "roberta"), ("seq2seq", "t5-like")):
        tokenizer = TOKENIZERS[name]()
        examples = make_examples(kind, tokenizer, ROWS, answer_format(max_answer_tokens=10))
        assert [example["is_cut"] for example in examples] == [False, False, True]
        assert "Do they love animals?" in tokenizer.decode(examples[2]["input_ids"])
