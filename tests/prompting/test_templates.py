import pytest
from hypothesis import given
from hypothesis import strategies as st

from inbedder.errors import InputError, TemplateError
from inbedder.prompting.templates import (
    PromptTemplate,
    check_unified_instruction,
    get_template,
    list_template_names,
    represent,
    resolve_instruction,
    skip_blank,
)


def test_the_default_template_is_the_papers_pattern():
    rendered = get_template().render("I love cats", "What animals?").string
    assert rendered == "### Input:\nI love cats\n\n### Instruction:\nWhat animals?\n\n### Response:"


@pytest.mark.parametrize("name", list_template_names())
@given(text=st.text(), instruction=st.text())
def test_spans_point_at_the_parts_in_every_template(name, text, instruction):
    template = get_template(name)
    rendered = template.render(text, instruction)
    assert rendered.string[slice(*rendered.text)] == text
    assert rendered.string[slice(*rendered.instruction)] == template.format_question(instruction)


def test_a_text_that_holds_slots_or_markers_is_not_filled_again():
    text = "{instruction} ### Response: {input}"
    rendered = get_template().render(text, "{input}")
    assert rendered.string == f"### Input:\n{text}\n\n### Instruction:\n{{input}}\n\n### Response:"


def test_the_chat_template_carries_the_papers_prefix():
    assert get_template("llama-2-chat").pattern.startswith("Your task is to give an answer according to the instruction")


def test_the_authors_chat_template_is_llama_2s_own_form():
    rendered = get_template("llama-2-chat-inst").render("I love cats", "What animals?").string
    system_prompt = "Your task is to give an answer according to the instruction and input. Please keep your answer short."
    assert rendered == f"[INST] {system_prompt}\n\nInput: I love cats\n\nInstruction: What animals?\n\n### Your Answer: [/INST]"


@pytest.mark.parametrize(
    ("name", "start"),
    [
        ("alpaca-short", ""),
        (
            "alpaca",
            "Below is an instruction that describes a task. Write a response that appropriately completes the request.\n\n",
        ),
    ],
)
def test_without_an_input_alpacas_templates_leave_its_block_out(name, start):
    rendered = get_template(name).render("", "Name {input} three colours.")
    assert rendered.string == start + "### Instruction:\nName {input} three colours.\n\n### Response:"
    assert rendered.string[slice(*rendered.instruction)] == "Name {input} three colours."
    assert "### Input:\ntext\n\n" in get_template(name).render("text", "Name it.").string


def test_a_pattern_without_input_holds_the_instruction_alone():
    with pytest.raises(TemplateError, match="without_input must hold"):
        PromptTemplate("mine", "{input}{instruction}", without_input="{input}{instruction}")


def test_the_instructor_template_joins_instruction_and_text():
    assert get_template("instructor").render("text", "Represent it: ").string == "Represent it: text"


def test_the_forms_of_instruct_models_are_theirs():
    assert get_template("e5-instruct").render("text", "Find it").string == "Instruct: Find it\nQuery: text"
    assert get_template("qwen3-embedding").render("text", "Find it").string == "Instruct: Find it\nQuery:text"


def test_a_text_without_instruction_is_the_whole_prompt():
    rendered = PromptTemplate("mine", "Do {instruction}: {input}!", without_template=True).render("text", "")
    assert (rendered.string, rendered.text, rendered.instruction) == ("text", (0, 4), (0, 0))
    assert get_template("e5-instruct").render("text", "").string == "Instruct: \nQuery: text"


@pytest.mark.parametrize(
    ("template", "prompt", "instruction"),
    [
        ("prefix", "query: ", "query: "),
        ("e5-instruct", "Instruct: Find it\nQuery: ", "Find it"),
        ("e5-instruct", "Instruct: Find it\nQuery:", None),
        ("qwen3-embedding", "Instruct: Find it\nQuery:", "Find it"),
        ("e5-instruct", "query: ", None),
        ("inbedder", "query: ", None),
        ("A{instruction}A{input}", "A", None),
        ("{instruction}{input}!", "query: ", None),
        ("inbedder", "", ""),
    ],
)
def test_an_instruction_is_extracted_if_the_template_makes_the_prompt(template, prompt, instruction):
    assert get_template(template).extract_instruction(prompt) == instruction


def test_unified_instructions_are_the_papers():
    assert represent("statement") == "Represent the statement:"
    assert represent("Tweet post", objective="retrieving duplicate comments") == (
        "Represent the Tweet post for retrieving duplicate comments:"
    )
    wikipedia = represent("question", domain="Wikipedia", objective="retrieving supporting documents")
    assert wikipedia == "Represent the Wikipedia question for retrieving supporting documents:"
    assert check_unified_instruction(wikipedia) == ("Wikipedia question", "retrieving supporting documents")
    assert check_unified_instruction("Represent the statement: ") == ("statement", None)
    assert check_unified_instruction(get_template("instructor").document) == ("document", "retrieval")


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"text_type": " "}, "text_type must be a few words"),
        ({"text_type": None}, "text_type must be a few words"),
        ({"text_type": "question", "domain": ""}, "domain must be a few words"),
        ({"text_type": "question", "objective": "retrieval:"}, "objective must be .* without a colon"),
        ({"text_type": "a\nb"}, "without a colon or a line break"),
        ({"text_type": "the question"}, "leave out 'the', which the format adds"),
        ({"text_type": "question", "objective": "for retrieval"}, "leave out 'for', which the format adds"),
    ],
)
def test_parts_that_spoil_the_unified_format_are_named(parts, message):
    with pytest.raises(InputError, match=message):
        represent(**parts)


@pytest.mark.parametrize("bad", ["", "What is it?", "Represent the question", "Represent the :", "Represent the question for :"])
def test_other_instructions_are_not_of_the_unified_format(bad):
    with pytest.raises(InputError, match="does not have the form 'Represent the"):
        check_unified_instruction(bad)


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


def test_a_blank_instruction_is_none():
    instructions = [None, "", " \n", "What?", ["a", "b"]]
    assert list(map(skip_blank, instructions)) == [None, None, None, "What?", ["a", "b"]]
    with pytest.raises(InputError, match="entry 1 is blank"):
        skip_blank(["a", ""])
