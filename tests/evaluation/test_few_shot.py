import pytest
from typer.testing import CliRunner

from inbedder.conditional.rated_rows import read_rated_pairs, select_contrasting
from inbedder.errors import InputError, ModelError
from inbedder.prompting.tokenization import PromptTokenizer
from inbedder_evaluation.few_shot import app, load_generative, parse_answers, render_context, render_query
from inbedder_evaluation.results import load_cells
from tests.evaluation.test_conditional_sts import CSV

QUERY = {"sentence1": "A cat {naps}", "sentence2": "A dog barks", "condition": "the animal"}


@pytest.fixture
def examples(tmp_path):
    (tmp_path / "c.csv").write_text("\n".join(CSV.splitlines()[:5]))
    return select_contrasting(read_rated_pairs(tmp_path / "c.csv"))


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
    assert parse_answers([answer]).ratings == [rating]


def test_answers_out_of_format_are_counted():
    parsed = parse_answers(["none", "2", "12", "", "5.0"])
    assert (parsed.without_number, parsed.outside, parsed.ratings) == (2, 1, [3, 2, 3, 3, 5])


def test_a_context_holds_instruction_and_whole_contrasting_pairs(examples):
    assert render_context(QUERY, examples, "none", 0, "causal") == ""
    assert render_context(QUERY, examples, "short", 0, "causal").startswith("On a scale between 1 and 5, how similar")
    long = render_context(QUERY, examples, "long", 4, "causal")
    lines = long.splitlines()
    assert len(lines) == 5 and "5 : The two sentences are completely equivalent" in lines[0]
    assert [line.rsplit("Output: ")[1] for line in lines[1:]] in (["5.0", "2.0", "5.0", "1.0"], ["5.0", "1.0", "5.0", "2.0"])
    assert lines[1].split(" Condition:")[0] == lines[2].split(" Condition:")[0]
    assert render_context(QUERY, examples, "none", 2, "causal", 1) == render_context(QUERY, examples, "none", 2, "causal", 1)
    assert render_context(QUERY | {"sentence1": "a lone \ud800"}, examples, "none", 2, "causal")


def test_a_query_never_sees_its_own_pair(examples):
    own_row = {"sentence1": examples[0].sentence1, "sentence2": examples[0].sentence2, "condition": "The size"}
    for seed in range(5):
        assert "red bike" not in render_context(own_row, examples, "none", 2, "causal", seed)
        swapped = own_row | {"sentence1": own_row["sentence2"], "sentence2": own_row["sentence1"]}
        assert "red bike" not in render_context(swapped, examples, "none", 2, "causal", seed)
    with pytest.raises(InputError, match="4 examples need 2 contrasting pairs other than the query's own; there are 1"):
        render_context(own_row, examples, "none", 4, "causal")


SHORT = (
    "On a scale between 1 and 5, how similar are the following two sentences with respect to the condition provided? "
    "Respond only with a score between 1 and 5.\n"
)
FORMS = {
    "t5": "Input: Sentence 1: {} Sentence 2: {} Condition: {} Output:{}",
    "opt": "Input:  Sentence 1:  {} Sentence 2:  {} Condition:  {} Output: {}",
}


@pytest.mark.parametrize("family", FORMS)
def test_prompts_are_those_of_the_authors_code_byte_for_byte(make_model, family, examples):
    model, kind = load_generative(make_model(family)), {"t5": "seq2seq", "opt": "causal"}[family]
    row = QUERY | {"sentence1": " A cat {naps} "}
    prompt = model.prompt(render_query(row, kind), render_context(row, examples[:2], "short", 2, kind))
    lines_shown = [FORMS[family].format(one.sentence1, one.sentence2, one.condition, float(one.label)) for one in examples[:2]]
    query = FORMS[family].format("A cat {naps}", "A dog barks", "the animal", "")
    assert prompt == SHORT + "\n".join([*lines_shown, query])
    tokens = model.backbone.tokenizer(prompt)["input_ids"]
    # the tiny models take fewer tokens
    whole_prompt = PromptTokenizer(model.backbone.tokenizer, model.tokenizer.template, 1000)
    assert (
        whole_prompt([render_query(row, kind)], [render_context(row, examples[:2], "short", 2, kind)])[0].ids.tolist() == tokens
    )


def test_a_masked_model_is_refused(make_model):
    with pytest.raises(ModelError, match="is a masked model; few-shot prompting needs a generative one"):
        load_generative(make_model("bert"))


def test_each_instruction_and_number_of_shots_is_a_cell_that_resumes(make_model, tmp_path):
    lines = [f"{one},{second},{condition},{label}" for one, second in ("ab", "cd") for condition, label in (("e", 5), ("f", 1))]
    (tmp_path / "c.csv").write_text("\n".join([CSV.splitlines()[0], *lines]))
    options = ["--model", make_model("t5"), "--data", str(tmp_path / "c.csv"), "-o", str(tmp_path / "f.json")]
    options_chosen = ["--instruction", "none", "--instruction", "short", "--shots", "0", "--shots", "2"]
    for _ in range(2):
        result = CliRunner().invoke(app, [*options, *options_chosen], catch_exceptions=False)
        assert result.exit_code == 0, result.output
    cells = load_cells(tmp_path / "f.json")
    names = [f"{options[1]}, {style} instruction, {count} shots" for style in ("none", "short") for count in (0, 2)]
    assert [cell.model for cell in cells] == names
    assert cells[0].metadata["replacement"] == 3.0 and cells[0].metadata["rows"] == 4
    assert set(cells[0].scores) == {"spearman", "pearson", "percent_without_number", "percent_outside_scale"}
    assert {cell.first_prompt for cell in cells} == {""}  # rows of C-STS may not be redistributed
    assert CliRunner().invoke(app, [*options, "--shots", "3"]).exit_code == 2
    assert CliRunner().invoke(app, [*options, "--instruction", "loud"]).exit_code == 2
