import numpy as np
import pytest
import torch

from inbedder.errors import RecipeError
from inbedder.prompting.templates import get_template
from inbedder.prompting.tokenization import PromptTokenizer
from inbedder_finetune.contrastive.contrastive_losses import MISSING_TEXT
from inbedder_finetune.contrastive.contrastive_recipe import ContrastiveRecipe, PairData
from inbedder_finetune.contrastive.instructed_texts import (
    UNPOOLED_MASK,
    InstructedCollator,
    check_instructions,
    make_prompt_tokenizer,
    tokenize_texts,
)
from inbedder_finetune.contrastive.pairs import InstructedText
from inbedder_finetune.contrastive.train_contrastive import load_encoder
from tests.conftest import TEXTS, TOKENIZERS, assert_close

INSTRUCTIONS = ["Represent the animal: ", "Was braucht der Kunde? ", "x", "Zażółć: "]
NON_EMPTY_TEXTS = [text for text in TEXTS if text]


def list_pooled_tokens(tokenizer, one, max_length=200):
    inputs = tokenize_texts(make_prompt_tokenizer(tokenizer, max_length), [one])
    is_pooled = (inputs["attention_mask"] * (1 - inputs[UNPOOLED_MASK]))[0].bool()
    return tokenizer.convert_ids_to_tokens(inputs["input_ids"][0][is_pooled].tolist())


@pytest.mark.parametrize("name", ["roberta", "wordpiece", "t5-like", "xlm-r-like"])
def test_only_the_text_is_pooled_under_any_instruction(name):
    tokenizer = TOKENIZERS[name]()
    for text in NON_EMPTY_TEXTS:
        first = list_pooled_tokens(tokenizer, InstructedText("Represent the animal: ", text))
        assert first == list_pooled_tokens(tokenizer, InstructedText("Was braucht der Kunde, 😀? ", text))
        assert first[-1] in tokenizer.all_special_tokens
        assert not set(first[:-1]) & {"[CLS]", "<s>"} or "<s>" in text


def test_without_an_instruction_everything_is_pooled():
    tokenizer = TOKENIZERS["wordpiece"]()
    assert list_pooled_tokens(tokenizer, InstructedText("", "I love cats")) == ["[CLS]", "i", "love", "cats", "[SEP]"]


def test_a_token_across_the_border_holds_text_and_is_pooled():
    tokenizer = TOKENIZERS["wordpiece"]()
    assert list_pooled_tokens(tokenizer, InstructedText("I lo", "ve cats")) == ["love", "cats", "[SEP]"]


def test_the_text_is_truncated_and_never_the_instruction():
    tokenizer = TOKENIZERS["wordpiece"]()
    assert list_pooled_tokens(tokenizer, InstructedText("I love ", "cats " * 50), max_length=6) == ["cats", "cats", "[SEP]"]


def test_vectors_with_mixed_instructions_equal_sentence_transformers(make_model):
    recipe = ContrastiveRecipe(PairData(()), model=make_model("headless-bert"), max_length=128)
    model = load_encoder(recipe).eval()
    rows = [
        InstructedText(instruction, text)
        for instruction in INSTRUCTIONS
        for text in ("I love cats", NON_EMPTY_TEXTS[2], NON_EMPTY_TEXTS[3])
    ]
    with torch.no_grad():
        mixed = model(tokenize_texts(make_prompt_tokenizer(model.tokenizer, 128), rows))["sentence_embedding"].numpy()
    prompts = [get_template("instructor").format_question(one.instruction) for one in rows]  # as training and inference word them
    expected = np.concatenate([model.encode([one.text], prompt=prompt) for one, prompt in zip(rows, prompts, strict=True)])
    assert_close(mixed, expected, 1e-6)


def test_a_batch_has_inputs_for_query_positive_and_each_negative():
    first = {"query": ["I: ", "cats"], "positive": ["J: ", "cats"], "negatives": [["", "a"], ["", "b"]], "anchor": True}
    second = {"query": ["I: ", "b"], "positive": ["J: ", "dogs"], "negatives": [["", "a"]], "anchor": False}
    batch = InstructedCollator(TOKENIZERS["wordpiece"](), 16)([first, second])
    assert [key for key in batch if key.endswith("input_ids")] == [
        "query_input_ids",
        "positive_input_ids",
        "negative_0_input_ids",
        "negative_1_input_ids",
    ]
    assert batch["label"].tolist() == [[1, 0, 0, 1, 2], [0, 2, 3, 1, MISSING_TEXT]]
    length = batch["positive_input_ids"].shape[1]
    assert batch["negative_1_input_ids"][1, :length].tolist() == batch["positive_input_ids"][1].tolist()  # repeated


def test_an_instruction_that_fills_the_input_is_refused():
    with pytest.raises(RecipeError, match="fills max_length=5 and leaves no tokens for a text: 'I love cats'"):
        check_instructions(make_prompt_tokenizer(TOKENIZERS["wordpiece"](), 5), ["", "I love cats"])


@pytest.mark.parametrize("name", ["roberta", "wordpiece", "xlm-r-like"])
def test_training_reads_what_inference_reads(name):
    tokenizer = TOKENIZERS[name]()
    rows = [
        InstructedText("I: ", f"a {tokenizer.sep_token} b"),
        InstructedText(f"{tokenizer.mask_token}: ", "lone \ud83d surrogate"),
    ]
    inference = PromptTokenizer(tokenizer, get_template("instructor"), 64)
    prompts = inference([one.text for one in rows], [one.instruction for one in rows])
    inputs = tokenize_texts(make_prompt_tokenizer(tokenizer, 64), rows)
    for ids, attention, prompt in zip(inputs["input_ids"], inputs["attention_mask"], prompts, strict=True):
        assert ids[attention.bool()].tolist() == prompt.ids.tolist()
    assert (inputs["input_ids"] == tokenizer.mask_token_id).sum() == 0
