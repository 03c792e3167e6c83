import itertools
from copy import copy
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import AutoModelForMaskedLM, AutoTokenizer, BertConfig, BertForMaskedLM, PreTrainedTokenizerFast

from inbedder import InBedder
from inbedder.backbones.masked import _split_marks, with_float32_head
from inbedder.errors import InputError, ModelError
from inbedder.options import Sampling
from tests.conftest import INSTRUCTIONS, MASKED, SMALL_SIZES, TEXTS, assert_close, wordpiece_tokenizer

QUESTIONS = [INSTRUCTIONS[i % len(INSTRUCTIONS)] for i in range(len(TEXTS))]


@pytest.mark.parametrize("family", MASKED)
@pytest.mark.parametrize("pooling", ["avg-gen", "avg-ppt", "avg-all"])
def test_a_batch_gives_what_single_texts_give(make_model, family, pooling):
    model = InBedder(make_model(family), pooling=pooling)
    batch = model.encode(TEXTS, QUESTIONS)
    singles = np.stack([model.encode(text, instruction) for text, instruction in zip(TEXTS, QUESTIONS, strict=True)])
    assert_close(batch, singles)


@pytest.mark.parametrize("family", MASKED)
@pytest.mark.parametrize("layer", [0, 1, 2])
def test_avg_gen_is_the_mean_of_transformers_states_at_the_masks(make_model, family, layer):
    folder = make_model(family)
    model = AutoModelForMaskedLM.from_pretrained(folder).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    prompt = "### Input:\nI love cats\n\n### Instruction:\nWhy?\n\n### Response:" + tokenizer.mask_token * 4
    inputs = tokenizer(prompt, return_tensors="pt")
    with torch.inference_mode():
        states = model(**inputs, output_hidden_states=True).hidden_states[layer]
    expected = states[inputs["input_ids"] == tokenizer.mask_token_id].mean(0)
    vector = InBedder(folder, layer=layer, mask_length=4).encode("I love cats", "Why?")
    assert np.abs(expected.numpy() - vector).max() < 1e-5


@pytest.mark.parametrize("family", MASKED)
def test_answers_are_the_likeliest_allowed_tokens_of_full_logits(make_model, family):
    folder = make_model(family)
    model = AutoModelForMaskedLM.from_pretrained(folder).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    prompt = "### Input:\nI love cats\n\n### Instruction:\nWhy?\n\n### Response:" + tokenizer.mask_token * 3
    inputs = tokenizer(prompt, return_tensors="pt")
    with torch.inference_mode():
        rows = model(**inputs).logits[inputs["input_ids"] == tokenizer.mask_token_id].tolist()
    end = tokenizer.eos_token_id if tokenizer.eos_token_id is not None else tokenizer.sep_token_id
    names = {number: token for token, number in tokenizer.get_vocab().items()}
    ids, answer_ids = inputs["input_ids"][0].tolist(), []
    follow = set(itertools.pairwise(ids))

    def stem(name):
        return name.rstrip("s")[:5]

    def split(one):
        name = names.get(one, "")
        if family == "xlm-roberta":
            return name.lstrip("▁").lower(), name[:1].isalpha()
        return (name, name.startswith("##") and len(name) > 2) if family == "bert" else ("", False)

    def may_stand(one):
        name, is_piece = split(one)
        if one in tokenizer.all_special_ids:
            return one == end and bool(answer_ids)
        if is_piece:
            return bool(answer_ids) and (answer_ids[-1], one) in follow
        heard = [stem(name) for name, is_piece in map(split, answer_ids) if not is_piece]
        is_new = one not in answer_ids and (not stem(name) or stem(name) not in heard)
        return is_new and (one in ids or not (len(name) == 1 and name.isascii() and name.isalpha()))

    for row in rows:
        best = max(filter(may_stand, range(len(row))), key=lambda one: row[one])
        if best == end:
            break
        answer_ids.append(best)
    assert InBedder(folder).answer(["I love cats"] * 2, "Why?") == [tokenizer.decode(answer_ids).strip()] * 2


class FixedLogits:
    """A masked LM with fixed logits at its masks."""

    def __init__(self, make_model, masks, prompt=()):
        self.backbone = InBedder(make_model("bert"), mask_length=len(masks)).backbone
        ids = self.backbone.tokenizer.get_vocab()
        self.prompt = torch.tensor([[ids["[CLS]"], *(ids[token] for token in prompt)]])
        self.logits = torch.full((1, len(masks), self.backbone.model.config.vocab_size), -9.0)
        for mask, scores in enumerate(masks):
            for token, score in scores.items():
                self.logits[0, mask, ids[token]] = score

    def answer(self, **sampling):
        numbers = torch.full((1, self.logits.shape[1]), 0.5)
        ids = self.backbone._fill_masks(self.logits, self.prompt, Sampling(**sampling), numbers)[0, 0]
        return self.backbone.tokenizer.convert_ids_to_tokens(ids.tolist())


def test_a_word_is_not_said_twice_and_nothing_follows_the_end(make_model):
    head = FixedLogits(make_model, [{"cats": 3}, {"cats": 3, "love": 2}, {"[SEP]": 4, "dogs": 3}, {"dogs": 5}])
    assert head.answer() == ["cats", "love", "[SEP]", "[SEP]"]


@pytest.mark.parametrize("family", MASKED)
def test_words_are_scored_in_float32_by_a_model_in_sixteen_bits(make_model, family):
    model = InBedder(str(make_model(family)), dtype="bfloat16").backbone.model
    ids = torch.tensor([[5, 6, 7, 8]])
    with torch.no_grad():
        scores, rounded = with_float32_head(model)(input_ids=ids).logits, model(input_ids=ids).logits
    assert scores.dtype == torch.float32
    torch.testing.assert_close(scores.bfloat16(), rounded, atol=1e-2, rtol=2e-2)
    assert (scores != scores.bfloat16().float()).any()
    plain = InBedder(str(make_model(family)), dtype="float32").backbone.model
    assert with_float32_head(plain) is plain


def test_plain_decoding_fills_each_mask_on_its_own(make_model):
    masks = [{"[SEP]": 9, "cats": 3}, {"cats": 3}, {"cats": 3, "dogs": 2}, {"##s": 4, "dogs": 3}]
    head = FixedLogits(make_model, masks)
    ids = head.backbone._fill_masks_independently(head.logits, Sampling(n=2), torch.zeros(2, 4))
    assert [head.backbone.tokenizer.convert_ids_to_tokens(answer) for answer in ids[0].tolist()] == [
        ["[SEP]", "cats", "cats", "##s"]
    ] * 2
    sampling = Sampling(n=2, temperature=1.0)
    ids = head.backbone._fill_masks_independently(head.logits, sampling, torch.tensor([[0.5] * 4, [0.0, 0.0, 0.9, 0.9]]))
    answers = [head.backbone.tokenizer.convert_ids_to_tokens(answer) for answer in ids[0].tolist()]
    assert answers == [["[SEP]", "cats", "cats", "##s"], ["[SEP]", "cats", "dogs", "dogs"]]


def test_plain_decoding_is_for_masked_models(make_model):
    with pytest.raises(InputError, match=r"constrained_decoding is for masked LMs, and .* is a causal model"):
        InBedder(make_model("opt"), constrained_decoding=False)


def test_answers_of_both_decodings_share_a_cache(make_model, tmp_path):
    texts = ["I love cats", "I love dogs and cats", "The delivery was late."]
    plain = InBedder(make_model("roberta"), constrained_decoding=False, cache=tmp_path)
    constrained = plain.replace(constrained_decoding=True)
    answers = [model.answer(texts, "Why?") for model in (plain, constrained)]
    assert answers[0] != answers[1]
    assert answers == [model.answer(texts, "Why?") for model in (plain, constrained)]


def test_an_answer_begins_with_a_word_and_says_no_padding(make_model):
    head = FixedLogits(make_model, [{"[SEP]": 9, "##s": 8, "[PAD]": 7, "dogs": 1}, {"[PAD]": 9, "[MASK]": 8, "love": 1}])
    assert head.answer() == ["dogs", "love"]


def test_a_piece_is_said_only_behind_what_it_follows_in_the_prompt(make_model):
    masks = [{"love": 3}, {"##s": 3, "dogs": 2}, {"##s": 3, "cats": 2}]
    assert FixedLogits(make_model, masks).answer() == ["love", "dogs", "cats"]
    assert FixedLogits(make_model, masks, ["love", "##s"]).answer() == ["love", "##s", "cats"]


def test_a_letter_is_said_only_where_the_prompt_has_it(make_model):
    masks = [{"e": 3, "cats": 2}, {"e": 3, "dogs": 2}]
    assert FixedLogits(make_model, masks).answer() == ["cats", "dogs"]
    assert FixedLogits(make_model, masks, ["e"]).answer() == ["e", "dogs"]


def test_words_of_one_stem_are_one_word(make_model):
    head = FixedLogits(make_model, [{"delivery": 3}, {"delive": 3, "works": 2}, {"work": 3, "lamp": 2}])
    assert head.answer() == ["delivery", "works", "lamp"]


WORDS = ["cats", "love", "why", "кот", "собака", "猫", "ねこ", "ネコ", "แมว", "catкот", "12", "!", "№"]
"""Words in five scripts, one in two, and three tokens without a letter."""


@pytest.fixture
def multilingual(tmp_path):
    """A random masked LM whose vocabulary has words in several scripts."""
    specials = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    backend = Tokenizer(models.WordPiece({word: number for number, word in enumerate(specials + WORDS)}, unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    backend.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    names = dict(zip(("pad_token", "unk_token", "cls_token", "sep_token", "mask_token"), specials, strict=True))
    PreTrainedTokenizerFast(tokenizer_object=backend, **names).save_pretrained(tmp_path)
    torch.manual_seed(7)
    config = BertConfig(**SMALL_SIZES, vocab_size=len(specials) + len(WORDS) + 2)
    BertForMaskedLM(config).save_pretrained(tmp_path)
    return InBedder(tmp_path, mask_length=2, template="кот {input} {instruction}")


@pytest.mark.parametrize(
    ("text", "question", "foreign"),
    [
        ("cats", "why", ["кот", "собака", "猫", "ねこ", "ネコ", "แมว", "catкот"]),
        ("собака", "why", ["猫", "ねこ", "ネコ", "แมว"]),
        ("猫", "猫 ねこ !", ["cats", "love", "why", "кот", "собака", "แมว", "catкот"]),
        ("12 !", "why", ["кот", "собака", "猫", "ねこ", "ネコ", "แมว", "catкот"]),
        ("12 !", "12", []),
    ],
)
def test_answers_are_in_a_script_of_text_or_question(multilingual, text, question, foreign, monkeypatch):
    backbone = multilingual.backbone
    prompts = multilingual.tokenizer([text, "cats"], [question, "why"])
    is_foreign = backbone._find_foreign_tokens(prompts)
    assert is_foreign.shape == (2, len(WORDS) + 7)
    assert backbone.tokenizer.convert_ids_to_tokens(is_foreign[0].nonzero().flatten().tolist()) == foreign
    allowed = [word for word in WORDS if word not in foreign]
    for word in WORDS:
        ids = torch.from_numpy(np.stack([prompts[0].ids])).long()
        logits = torch.zeros(1, 2, len(WORDS) + 7)
        logits[..., backbone.tokenizer.convert_tokens_to_ids([word, allowed[0]])] = torch.tensor([9.0, 5.0])
        monkeypatch.setattr(backbone, "_score_masks", lambda _prompts, logits=logits, ids=ids: (None, logits.clone(), ids))
        ((answer,),) = backbone.answer(prompts[:1], Sampling())
        assert answer.text.split()[0] == (word if word in allowed else allowed[0])
        plain = copy(backbone)
        plain.constrained_decoding = False
        assert plain.answer(prompts[:1], Sampling())[0][0].text.split()[0] == word


def test_the_end_token_has_no_script(multilingual, monkeypatch):
    backbone, prompts = multilingual.backbone, multilingual.tokenizer(["猫"], ["ねこ"])
    logits = torch.zeros(1, 2, len(WORDS) + 7)
    logits[0, 0, backbone.tokenizer.convert_tokens_to_ids("猫")] = logits[0, 1, backbone.end] = 9.0
    ids = torch.from_numpy(prompts[0].ids).long()[None]
    monkeypatch.setattr(backbone, "_score_masks", lambda _prompts: (None, logits, ids))
    assert backbone.answer(prompts, Sampling())[0][0].text == "猫"


def test_one_pass_a_batch_and_no_head(make_model):
    model = InBedder(make_model("bert"))
    calls, heads = [], []
    model.backbone.body.register_forward_pre_hook(lambda *_: calls.append(1))
    model.backbone.model.cls.register_forward_pre_hook(lambda *_: heads.append(1))
    model.encode([f"{text} {i}" for text in TEXTS for i in range(2)], "What?", batch_size=7)
    assert (len(calls), len(heads)) == (2, 0)


def test_the_last_feed_forward_sees_the_masks_alone(make_model):
    model = InBedder(make_model("roberta"))
    shapes = []
    blocks = model.backbone.body.encoder.layer
    for block in blocks:
        block.intermediate.register_forward_pre_hook(lambda _m, args: shapes.append(args[0].shape[1]))
    model.encode("I love cats", "What?")
    assert (len(shapes), shapes[-1]) == (len(blocks), 3)
    assert min(shapes[:-1]) > 3


def test_the_head_sees_the_masks_alone(make_model):
    model = InBedder(make_model("roberta"))
    shapes = []
    model.backbone.model.lm_head.register_forward_pre_hook(lambda _m, args: shapes.append(args[0].shape))
    model.answer(TEXTS, "What?")
    assert shapes == [(len(TEXTS), 3, 32)]


def test_sampled_answers_follow_their_seed(make_model):
    model = InBedder(make_model("bert"))
    sampled_answers = model.answer(TEXTS[:2], "What?", n=4, temperature=2.0, seed=3)
    assert sampled_answers == model.answer(TEXTS[:2], "What?", n=4, temperature=2.0, seed=3)
    assert sampled_answers != model.answer(TEXTS[:2], "What?", n=4, temperature=2.0, seed=4)
    tiny_nucleus = model.answer(TEXTS[:2], "What?", n=2, temperature=1.0, top_p=1e-6)
    assert tiny_nucleus == model.answer(TEXTS[:2], "What?", n=2)


def test_filter_words_leave_out_masks_that_predict_them(make_model, monkeypatch):
    model = InBedder(make_model("bert"))
    prompt = model.tokenizer(["I love cats"], ["Why?"])
    captured = {}

    def keep_head_input(_module, args):
        captured["states"] = args[0][0]

    model.backbone.model.cls.register_forward_pre_hook(keep_head_input)
    model.backbone.model.cls.register_forward_hook(lambda _m, _a, logits: captured.update(predicted=logits[0].argmax(-1)))
    model.backbone.answer(prompt, model.options.encoding.sampling)
    unwanted = int(captured["predicted"][0])
    is_kept = captured["predicted"] != unwanted
    expected = captured["states"][is_kept if is_kept.any() else slice(None)].mean(0)
    monkeypatch.setattr(model.tokenizer, "find_token_ids", lambda _words: [unwanted])
    assert np.abs(expected.numpy() - model.encode("I love cats", "Why?", filter_words=["it"])).max() < 1e-5


@pytest.mark.parametrize("family", MASKED)
def test_mask_tokens_written_in_a_text_are_not_pooled(make_model, family):
    model = InBedder(make_model(family))
    mask, mask_id = model.tokenizer.tokenizer.mask_token, model.tokenizer.tokenizer.mask_token_id
    text, instruction = f"a {mask} b", f"What {mask}?"
    passed: list[torch.Tensor] = []
    model.backbone.body.embeddings.register_forward_pre_hook(
        lambda _module, _args, kwargs: passed.append(kwargs["input_ids"]), with_kwargs=True
    )
    vector = model.encode(text, instruction)
    (ids,) = passed
    answer_masks = torch.arange(ids.shape[1] - 4, ids.shape[1] - 1)  # three masks, then the end
    assert (ids[0] == mask_id).nonzero().flatten().tolist() == answer_masks.tolist()
    reference = AutoModelForMaskedLM.from_pretrained(make_model(family)).eval()
    with torch.inference_mode():
        states = reference(input_ids=ids, output_hidden_states=True).hidden_states[-1]
    assert np.abs(states[0, answer_masks].mean(0).numpy() - vector).max() < 1e-5
    plain_ids = model.tokenizer.tokenizer(text, add_special_tokens=False)["input_ids"]
    assert mask_id in plain_ids  # the tokenizer itself would have made it a mask


@pytest.fixture
def folder_without_end(make_model, tmp_path):
    """Save a masked LM whose tokenizer has neither an end token nor a separator."""
    model = AutoModelForMaskedLM.from_pretrained(make_model("bert"))
    model.resize_token_embeddings(len(wordpiece_tokenizer()), mean_resizing=False)
    model.save_pretrained(tmp_path)
    backend = wordpiece_tokenizer().backend_tokenizer
    backend.post_processor = processors.TemplateProcessing(single="[CLS] $A", special_tokens=[("[CLS]", 2)])
    special = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "mask_token": "[MASK]"}
    PreTrainedTokenizerFast(tokenizer_object=backend, **special).save_pretrained(tmp_path)
    return tmp_path


def test_without_an_end_token_answers_fill_every_mask_with_words(folder_without_end):
    model = InBedder(folder_without_end)
    assert model.backbone.end is None
    filled = model.answer(TEXTS, "What?")
    assert all(len(answer.split()) == 3 for answer in filled)
    assert len({answer.split()[0] for answer in filled}) > 1


def test_without_an_end_token_prompts_are_pooled_whole(folder_without_end):
    model = InBedder(folder_without_end, pooling="avg-ppt", mask_length=1)
    average = InBedder(folder_without_end, pooling="avg-all", mask_length=1).encode("I love cats", "Why?")
    mask = InBedder(folder_without_end, pooling="avg-gen", mask_length=1).encode("I love cats", "Why?")
    count = len(model.tokenizer(["I love cats"], ["Why?"])[0].ids)
    assert np.abs(model.encode("I love cats", "Why?") - (average * count - mask) / (count - 1)).max() < 1e-5


def test_a_model_without_trained_head_embeds_but_does_not_answer(make_model):
    model, second_model = (InBedder(make_model("headless-bert"), backbone="masked") for _ in range(2))
    assert np.array_equal(model.encode(TEXTS, "What?"), second_model.encode(TEXTS, "What?"))
    assert model.nearest_words(model.encode(TEXTS, "What?")) == [[]] * len(TEXTS)
    with pytest.raises(ModelError, match="no trained language-model head, so its answers would be random"):
        model.answer(TEXTS, "What?")


def test_roberta_positions_are_not_overrun(make_model):
    model = InBedder(make_model("roberta"), max_length=5000)
    with pytest.warns(UserWarning, match="1 of 1 texts were cut"):
        assert np.isfinite(model.encode("word " * 3000, "What?")).all()


def test_a_masked_lm_needs_a_mask(make_model):
    with pytest.raises(InputError, match="mask_length must be a whole number of at least 1"):
        InBedder(make_model("bert"), mask_length=0)


def test_pieces_lack_sentencepieces_mark_in_scripts_with_spaces():
    tokens = ["<unk>", "▁", "▁cat", "s", "▁Cats", "荷物", "て", "ท", "й", "1", ".", ""]
    tokenizer = SimpleNamespace(backend_tokenizer=Tokenizer(models.Unigram([(token, -1.0) for token in tokens], unk_id=0)))
    names, pieces = _split_marks(tokens, tokenizer)
    assert [token for token, is_piece in zip(tokens, pieces, strict=True) if is_piece] == ["s", "й"]
    assert names[2:5] == ["cat", "s", "cats"]
