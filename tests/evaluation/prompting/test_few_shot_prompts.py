import pytest

from inbedder.conditional.rated_rows import read_rated_pairs
from inbedder.errors import InputError
from inbedder_evaluation.prompting.few_shot_prompts import FewShotPrompts, parse_answers
from tests.evaluation.tasks.test_conditional_sts import CSV

QUERY = {"sentence1": "A cat {naps}", "sentence2": "A dog barks", "condition": "the animal"}
CSTS, STSB = FewShotPrompts("csts", "causal"), FewShotPrompts("stsb", "causal")


@pytest.fixture
def rated(tmp_path):
    (tmp_path / "c.csv").write_text(CSV)
    return read_rated_pairs(tmp_path / "c.csv")


@pytest.fixture
def pairs(rated):
    return CSTS.select_examples(rated)


@pytest.mark.parametrize(
    ("answer", "rating"),
    [
        ("The answer is 2.0.", 2.0),
        ("4", 4.0),
        ("Output: 3.5 or 4", 3.5),
        ("very alike", 3.0),
        ("", 3.0),
        ("7", 3.0),
        ("0.0", 3.0),
        ("-2", 3.0),
        (".5", 3.0),
        ("Rating-4", 4.0),
    ],
)
def test_the_first_number_is_the_rating_other_answers_are_replaced(answer, rating):
    assert parse_answers([answer], CSTS.scale).ratings == [rating]


def test_answers_out_of_format_are_counted_on_each_scale():
    answers = ["none", "2", "12", "", "0", "5.0"]
    parsed = parse_answers(answers, CSTS.scale)
    assert (parsed.without_number, parsed.outside, parsed.ratings) == (2, 2, [3, 2, 3, 3, 3, 5])
    parsed = parse_answers(answers, STSB.scale)
    assert (parsed.without_number, parsed.outside, parsed.ratings) == (2, 1, [2.5, 2, 2.5, 2.5, 0, 5])


def test_answers_out_of_format_are_treated_as_in_the_authors_code():
    parsed = parse_answers(["none", "7", "-2", ".5", "3.5", ""], CSTS.scale, as_authors=True)
    assert parsed.ratings[1:5] == [7, 2, 5, 3.5]
    assert (parsed.without_number, parsed.outside) == (2, 1)
    first, last = parsed.ratings[0], parsed.ratings[5]
    assert 1 <= first <= 5 and 1 <= last <= 5 and first != last


def test_a_context_holds_instruction_and_whole_contrasting_pairs(pairs):
    assert CSTS.render_context(QUERY, pairs, "none", 0) == ""
    assert CSTS.render_context(QUERY, pairs, "short", 0).startswith("On a scale between 1 and 5, how similar")
    long = CSTS.render_context(QUERY, pairs, "long", 4)
    lines = long.splitlines()
    assert len(lines) == 5 and "5 : The two sentences are completely equivalent" in lines[0]
    assert [line.rsplit("Output: ")[1] for line in lines[1:]] in (["5.0", "2.0", "5.0", "1.0"], ["5.0", "1.0", "5.0", "2.0"])
    assert lines[1].split(" Condition:")[0] == lines[2].split(" Condition:")[0]
    assert CSTS.render_context(QUERY, pairs, "none", 2, 1) == CSTS.render_context(QUERY, pairs, "none", 2, 1)
    assert CSTS.render_context(QUERY | {"sentence1": "a lone \ud800"}, pairs, "none", 2)


def test_examples_of_stsb_are_single_rows(rated):
    examples = STSB.select_examples(rated)
    assert examples == rated
    contexts = {STSB.render_context(QUERY, examples, "none", 1, seed) for seed in range(20)}
    assert len(contexts) > 3 and not any("Condition" in context for context in contexts)


def test_a_query_never_sees_its_own_pair(pairs, rated):
    own_row = {"sentence1": pairs[0].sentence1, "sentence2": pairs[0].sentence2, "condition": "The size"}
    for seed in range(5):
        assert "red bike" not in CSTS.render_context(own_row, pairs, "none", 2, seed)
        swapped = own_row | {"sentence1": own_row["sentence2"], "sentence2": own_row["sentence1"]}
        assert "red bike" not in CSTS.render_context(swapped, pairs, "none", 2, seed)
        assert "red bike" not in STSB.render_context(own_row, rated, "none", 3, seed)
    with pytest.raises(InputError, match="4 examples need 2 contrasting pairs other than the query's own; there are 1"):
        CSTS.render_context(own_row, pairs, "none", 4)
    with pytest.raises(InputError, match="4 examples need 4 rows other than the query's own; there are 3"):
        STSB.render_context(own_row, rated, "none", 4)


AUTHORS_INSTRUCTIONS = {
    "csts": {
        "none": "",
        "short": "On a scale between 1 and 5, how similar are the following two sentences with respect to the condition "
        "provided? Respond only with a score between 1 and 5.",
        "long": "Definition: Evaluate the similarity between the two sentences, with respect to the condition. Assign the pair "
        "a score between 1 and 5 as follows: 1 : The two sentences are completely dissimilar with respect to the condition. "
        "2 : The two sentences are dissimilar, but are on a similar topic with respect to the condition. 3 : The two sentences "
        "are roughly equivalent, but some important information differs or is missing with respect to the condition. 4 : The "
        "two sentences are mostly equivalent, but some unimportant details differ with respect to the condition. 5 : The two "
        "sentences are completely equivalent with respect to the condition.",
    },
    "stsb": {
        "none": "",
        "short": "On a scale between 0 and 5, how similar are the following two sentences? Respond only with a score between 0 "
        "and 5.",
        "long": "Definition: Evaluate the similarity between them and classify them into classes from 0-5 as follows: 0 : The "
        "two sentences are completely dissimilar. 1 : The two sentences are not equivalent, but are on the same topic. 2 : The "
        "two sentences are not equivalent, but share some details. 3 : The two sentences are roughly equivalent, but some "
        "important information differs/missing. 4 : The two sentences are mostly equivalent, but some unimportant details "
        "differ. 5 : The two sentences are completely equivalent, as they mean the same thing.",
    },
}


def render_as_authors(row, examples, dataset, kind, instruction):
    """Render a prompt as the authors' code does (utils/fewshot/generate_in_context_dataset.py)."""
    colon = ":" if kind == "seq2seq" else ": "

    def join(one):
        sentences = [f"Sentence {i}{colon} {one[f'sentence{i}'].strip()}" for i in (1, 2)]
        condition = [f"Condition{colon} {one['condition']}"] if dataset == "csts" else []
        return " ".join([f"Input{colon}", *sentences, *condition, f"Output{colon}"])

    opening = AUTHORS_INSTRUCTIONS[dataset][instruction].strip(" :")
    lines = [join(vars(example)) + str(float(example.label)) for example in examples]
    return "\n".join([*([opening] if opening else []), *lines, join(row)])


@pytest.mark.parametrize("kind", ["causal", "seq2seq"])
@pytest.mark.parametrize("dataset", AUTHORS_INSTRUCTIONS)
@pytest.mark.parametrize("instruction", ["none", "short", "long"])
def test_prompts_are_those_of_the_authors_code_byte_for_byte(dataset, kind, instruction, pairs):
    prompts = FewShotPrompts(dataset, kind)
    row = QUERY | {"sentence1": " A cat {naps} "}
    for examples in ([], pairs[:2]):
        context = prompts.render_context(row, examples, instruction, len(examples))
        orders = [examples] if dataset == "csts" else [examples, examples[::-1]]
        expected = [render_as_authors(row, order, dataset, kind, instruction) for order in orders]
        assert prompts.template.render(prompts.render_query(row), context).string in expected
