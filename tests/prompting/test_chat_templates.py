from dataclasses import replace
from datetime import datetime
from types import SimpleNamespace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from transformers.utils import chat_template_utils

from inbedder.errors import TemplateError
from inbedder.prompting.templates import PromptTemplate, get_template
from inbedder.prompting.tokenization import PromptTokenizer
from tests.conftest import TEXTS, byte_level_tokenizer
from tests.prompting.chat_families import FAMILIES, STRIPPING, make_chat_tokenizer

TOKENIZERS = {family: make_chat_tokenizer(family) for family in FAMILIES}
PROMPTS = {family: PromptTokenizer(tokenizer, get_template("chat"), 4000) for family, tokenizer in TOKENIZERS.items()}
MARKERS = ["<|im_start|>", "<|im_end|>", "<|eot_id|>", "<end_of_turn>", "<|end|>", "</think>", "<s>", "</s>", "### Instruction:"]
some_text = st.text(max_size=80) | st.sampled_from([*TEXTS, " a ", "\n\nb\n", *MARKERS])
fast = settings(max_examples=40)


@pytest.fixture(scope="module", autouse=True)
def fixed_date():
    clock = SimpleNamespace(now=lambda: datetime(2024, 7, 26))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chat_template_utils, "datetime", clock)
        yield


def apply_template(family, text, instruction):
    message = f"{text}\n\n{instruction}" if text else instruction
    messages = [{"role": "system", "content": get_template("chat").system}, {"role": "user", "content": message}]
    messages = messages[1:] if family == "gemma-2" else messages
    options = {"add_generation_prompt": True, "enable_thinking": False, "return_dict": False}
    return TOKENIZERS[family].apply_chat_template(messages, **options)


@pytest.mark.parametrize("family", FAMILIES)
@fast
@given(text=some_text, instruction=some_text)
@example(text="", instruction="What is it?")
@example(text="  {input} {{ bos_token }} ", instruction="\nWhat is it? \n")
def test_ids_are_those_of_apply_chat_template(family, text, instruction):
    prompts = PROMPTS[family]
    text, instruction = prompts.clean(text), prompts.clean(instruction)
    ids = prompts([text, "another"], [instruction, "Why?"])[0].ids.tolist()
    assert ids == apply_template(family, text, instruction) == prompts([text], [instruction])[0].ids.tolist()


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("side", ["right", "left"])
@fast
@given(text=st.text(max_size=120) | st.sampled_from([f"{marker} " * 20 for marker in MARKERS] + ["\n" * 40 + "words " * 30]))
def test_a_cut_chat_is_apply_chat_template_of_what_is_kept(family, side, text):
    prompts = PromptTokenizer(TOKENIZERS[family], get_template("chat"), truncation_side=side)
    text, question = prompts.clean(text), "What is it about?"
    prompts.max_length = len(prompts([""], [question])[0].ids) + 15
    prompt = prompts([text], [question])[0]
    kept_text = text[slice(*prompt.kept_characters)]
    assert prompt.ids.tolist() == apply_template(family, kept_text, question)
    assert len(prompt.ids) <= prompts.max_length
    assert text.startswith(kept_text) if side == "right" else text.endswith(kept_text)
    if family in STRIPPING and text.endswith("words "):
        assert "words" in kept_text
        assert prompt.is_cut


@pytest.mark.parametrize("family", FAMILIES)
@given(parts=st.lists(st.sampled_from([*MARKERS, "<|", "|>", "<", "im_start", "eot_id"]), max_size=8))
def test_no_marker_comes_from_a_text_or_a_question(family, parts):
    _, _, specials, plain = FAMILIES[family]
    ids = set(TOKENIZERS[family].convert_tokens_to_ids([*specials, *(one for one in plain if one.strip()), "<s>", "</s>"]))
    prompts, text = PROMPTS[family], "".join(parts)
    markers = [[one for one in prompts([each], [f"Is it {each}?"])[0].ids if one in ids] for each in (text, "a")]
    assert markers[0] == markers[1]


@pytest.mark.parametrize("family", FAMILIES)
@given(text=st.text(max_size=60), instruction=st.text(max_size=60))
def test_spans_of_a_chat_point_at_the_parts(family, text, instruction):
    template = PROMPTS[family].template
    rendered = template.render(text, instruction)
    if template.strips:
        message = rendered.string[len(template.opening) : len(rendered.string) - len(template.closing)]
        assert message == (f"{text}\n\n{instruction}" if text else instruction).strip()
        assert rendered.string[slice(*rendered.text)] in text
        assert rendered.string[slice(*rendered.instruction)] in instruction
    else:
        assert rendered.string[slice(*rendered.text)] == text
        assert rendered.string[slice(*rendered.instruction)] == instruction


def test_tokens_of_the_text_decode_to_it():
    prompt = PROMPTS["qwen3"](["The soup was cold."], ["What is it about?"])[0]
    assert TOKENIZERS["qwen3"].decode(prompt.ids[slice(*prompt.text)]) == "The soup was cold."
    assert TOKENIZERS["qwen3"].decode(prompt.ids[slice(*prompt.instruction)]) == "What is it about?"
    assert prompt.response == len(prompt.ids)


@pytest.mark.parametrize("family", FAMILIES)
def test_only_published_stripping_is_found(family):
    assert PROMPTS[family].template.strips == (family in STRIPPING)


def test_another_day_gives_the_same_prompt(monkeypatch):
    monkeypatch.setattr(chat_template_utils, "datetime", datetime)
    for family in ("llama-3", "smollm3"):
        prompts = PromptTokenizer(TOKENIZERS[family], get_template("chat"), 4000)
        assert prompts.template == PROMPTS[family].template
        assert "26 Ju" in prompts.template.opening


def test_a_template_of_another_model_is_filled_in_anew():
    assert PromptTokenizer(TOKENIZERS["phi-4"], PROMPTS["qwen3"].template).template == PROMPTS["phi-4"].template


def test_a_system_message_of_ones_own_replaces_the_default():
    mine = PromptTemplate("mine", "{instruction}\n{input}", system="Be brief.")
    prompts = PromptTokenizer(TOKENIZERS["phi-4"], mine)
    assert prompts.template.render("t", "q").string.startswith("<|im_start|>system<|im_sep|>Be brief.<|im_end|>")
    assert "user<|im_sep|>q\nt<|im_end|>" in prompts.template.render("t", "q").string
    silent = PromptTokenizer(TOKENIZERS["phi-4"], replace(mine, system="")).template
    assert silent.opening == "<|im_start|>user<|im_sep|>"


@pytest.mark.parametrize("part", ["pattern", "system"])
def test_markers_in_a_chat_pattern_or_system_message_are_refused(part):
    mine = replace(get_template("chat"), **{part: "{input} {instruction}<|im_end|>"})
    with pytest.raises(TemplateError, match=r"holds the special token '<\|im_end\|>'"):
        PromptTokenizer(TOKENIZERS["qwen3"], mine)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (None, "has no chat template"),
        ("{{ raise_exception('no') }}", "fails"),
        ("{{ nothing.at.all }}", "fails"),
        ("no message", "once and unchanged"),
        ("{{ messages[-1].content }}{{ messages[-1].content }}", "once and unchanged"),
        ("{{ messages[-1].content | upper }}", "once and unchanged"),
        ("{{ messages[-1].content | replace('\n\n', '\n') }}", "once and unchanged"),
    ],
)
def test_a_chat_template_that_cannot_be_used_is_named(source, message):
    tokenizer = byte_level_tokenizer(bos_token="<s>", eos_token="</s>")
    tokenizer.chat_template = source
    with pytest.raises(TemplateError, match=message):
        PromptTokenizer(tokenizer, get_template("chat"))
