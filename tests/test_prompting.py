import pytest
from hypothesis import given
from hypothesis import strategies as st

from inbedder.errors import TemplateError
from inbedder.prompting import PromptTemplate, get_template, resolve_instruction, template_names


def test_the_default_template_is_the_papers_pattern():
    rendered = get_template().render("I love cats", "What animals?").string
    assert rendered == "### Input:\nI love cats\n\n### Instruction:\nWhat animals?\n\n### Response:"


@pytest.mark.parametrize("name", template_names())
@given(text=st.text(), instruction=st.text())
def test_spans_point_at_the_parts_in_every_template(name, text, instruction):
    rendered = get_template(name).render(text, instruction)
    assert rendered.string[slice(*rendered.text)] == text
    assert rendered.string[slice(*rendered.instruction)] == instruction


def test_a_text_that_holds_slots_or_markers_is_not_filled_again():
    text = "{instruction} ### Response: {input}"
    rendered = get_template().render(text, "{input}")
    assert rendered.string == f"### Input:\n{text}\n\n### Instruction:\n{{input}}\n\n### Response:"


def test_the_chat_template_carries_the_papers_prefix():
    assert get_template("llama-2-chat").pattern.startswith("Your task is to give an answer according to the instruction")


def test_the_instructor_template_puts_the_instruction_directly_before_the_text():
    assert get_template("instructor").render("text", "Represent it: ").string == "Represent it: text"


def test_a_pattern_is_a_template():
    assert get_template("Q: {instruction} T: {input} A:").render("t", "q").string == "Q: q T: t A:"


def test_an_unknown_template_is_named_with_the_known_ones():
    with pytest.raises(TemplateError, match=r"Unknown template 'nope'.*alpaca"):
        get_template("nope")


@pytest.mark.parametrize("pattern", ["{input} only", "{input} {instruction} {input}"])
def test_a_pattern_needs_each_slot_once(pattern):
    with pytest.raises(TemplateError, match="exactly once"):
        PromptTemplate("mine", pattern)


def test_named_instructions_resolve_and_others_stay():
    assert resolve_instruction("@topic") == "What is the topic of the text?"
    assert resolve_instruction(None) == resolve_instruction("@generic")
    assert resolve_instruction("topic") == "topic"
    assert resolve_instruction("@united why?") == "@united why?"


def test_an_unknown_named_instruction_lists_the_known_ones():
    with pytest.raises(TemplateError, match=r"Unknown named instruction '@nope'.*@topic"):
        resolve_instruction("@nope")
