import json

import pytest
from typer.testing import CliRunner

from inbedder.conditional.rated_rows import read_rated_pairs
from inbedder.embedder import InBedder
from inbedder.errors import ModelError
from inbedder.prompting.tokenization import PromptTokenizer
from inbedder_evaluation.prompting import few_shot
from inbedder_evaluation.prompting.few_shot import app, load_generative
from inbedder_evaluation.prompting.few_shot_prompts import FewShotPrompts
from inbedder_evaluation.results import load_cells
from tests.evaluation.prompting.test_few_shot_prompts import QUERY
from tests.evaluation.tasks.test_conditional_sts import CSV

HEAD = CSV.splitlines()[0]


@pytest.fixture
def data(tmp_path):
    lines = [f"{one},{second},{condition},{label}" for one, second in ("ab", "cd") for condition, label in (("e", 5), ("f", 1))]
    (tmp_path / "c.csv").write_text("\n".join([HEAD, *lines]))
    return tmp_path / "c.csv"


def prompt_models(*options, code=0):
    result = CliRunner().invoke(app, [str(option) for option in options])
    assert result.exit_code == code, (result.output, result.exception)
    return result.output


@pytest.mark.parametrize(("family", "kind"), [("t5", "seq2seq"), ("opt", "causal")])
def test_the_whole_prompt_is_tokenized_as_one_text(make_model, tmp_path, family, kind, monkeypatch):
    calls = []
    monkeypatch.setattr(InBedder, "answer", lambda self, *prompts, **_options: calls.append((self, *prompts)) or ["5"])
    model = load_generative(make_model(family), "csts")
    assert model.prompts == FewShotPrompts("csts", kind)
    (tmp_path / "c.csv").write_text("\n".join(CSV.splitlines()[:3]))
    context = model.prompts.render_context(QUERY, read_rated_pairs(tmp_path / "c.csv"), "short", 2)
    assert model.answer([model.prompts.render_query(QUERY)], [context]) == ["5"]
    loaded, queries, contexts = calls[0]
    tokens = loaded.backbone.tokenizer(loaded.prompt(queries[0], contexts[0]))["input_ids"]
    whole_prompt = PromptTokenizer(loaded.backbone.tokenizer, loaded.tokenizer.template, 1000)  # tiny models take fewer tokens
    assert whole_prompt(queries, contexts)[0].ids.tolist() == tokens


def test_a_masked_model_is_refused(make_model):
    with pytest.raises(ModelError, match="is a masked model; few-shot prompting needs a generative one"):
        load_generative(make_model("bert"), "csts")


def test_each_instruction_and_number_of_shots_is_a_cell_that_resumes(make_model, data, tmp_path):
    model, output = make_model("t5"), tmp_path / "f.json"
    options = ["--model", model, "--data", data, "-o", output]
    settings = ["--instruction", "none", "--instruction", "short", "--shots", "0", "--shots", "2"]
    for _ in range(2):
        prompt_models(*options, *settings)
    cells = load_cells(output)
    assert [cell.model for cell in cells] == [
        f"{model}, {style} instruction, {count} shots" for style in ("none", "short") for count in (0, 2)
    ]
    assert cells[0].metadata["rows"] == 4
    assert set(cells[0].scores) == {"spearman", "pearson", "percent_without_number", "percent_outside_scale"}
    assert {cell.first_prompt for cell in cells} == {""}  # rows of C-STS may not be redistributed


def test_several_models_take_the_shared_options(make_model, data, tmp_path, monkeypatch):
    loaded = []
    monkeypatch.setattr(
        few_shot, "load_generative", lambda *names, **options: loaded.append((names, options)) or load_generative(*names)
    )
    models = [make_model("t5"), make_model("opt")]
    options = ["--data", data, "-o", tmp_path / "f.json", "--instruction", "none", "--shots", "0", "--batch-size", "3"]
    prompt_models("--model", models[0], "--model", models[1], "--dtype", "bfloat16", "--device", "cpu", *options)
    assert loaded == [((model, "csts", 3), {"dtype": "bfloat16", "device": "cpu"}) for model in models]
    assert [cell.model for cell in load_cells(tmp_path / "f.json")] == [f"{model}, none instruction, 0 shots" for model in models]


def test_authors_parsing_is_a_cell_of_its_own(make_model, data, tmp_path, monkeypatch):
    monkeypatch.setattr(InBedder, "answer", lambda _self, queries, *_contexts, **_options: ["9", "4", "no", "2"][: len(queries)])
    options = ["--model", make_model("t5"), "--data", data, "-o", tmp_path / "f.json", "--instruction", "none", "--shots", "0"]
    prompt_models(*options)
    prompt_models(*options, "--authors-parsing")
    replaced, unchanged = load_cells(tmp_path / "f.json")
    assert unchanged.model == f"{replaced.model}, authors' parsing"
    assert {cell.scores["percent_outside_scale"] for cell in (replaced, unchanged)} == {25.0}
    assert replaced.scores["pearson"] != unchanged.scores["pearson"]


def test_a_table_without_conditions_is_prompted_as_stsb(make_model, tmp_path, monkeypatch):
    calls = []
    monkeypatch.setattr(
        InBedder, "answer", lambda _self, queries, contexts, **_options: calls.append((queries, contexts)) or ["0"] * len(queries)
    )
    (tmp_path / "s.csv").write_text("sentence1,sentence2,label\na,b,0\nc,d,5\ne,f,2.5\n")
    output = tmp_path / "f.json"
    options = ["--instruction", "short", "--shots", "1"]
    prompt_models("--model", make_model("t5"), "--data", tmp_path / "s.csv", "-o", output, *options)
    ((queries, contexts),) = calls
    assert queries[0] == "Input: Sentence 1: a Sentence 2: b"
    first_line, example = contexts[0].splitlines()
    assert first_line.startswith("On a scale between 0 and 5") and example.split("Output:")[1] in ("5.0", "2.5")
    (cell,) = load_cells(output)
    assert (cell.task, cell.scores["percent_outside_scale"]) == ("STS (s.csv)", 0)


def test_submissions_are_written_for_hidden_labels(make_model, data, tmp_path, monkeypatch):
    (tmp_path / "hidden.csv").write_text(data.read_text().replace(",5", ",-1").replace(",1", ",-1"))
    calls = []
    monkeypatch.setattr(
        InBedder, "answer", lambda _self, queries, *_contexts, **_options: calls.append(1) or ["4", "2", "x", "1"]
    )
    options = ["--model", make_model("opt"), "--data", tmp_path / "hidden.csv", "--examples", data, "--predict", tmp_path / "p"]
    for _ in range(2):  # a file that was written is not written again
        prompt_models(*options, "--instruction", "short", "--shots", "2", "--shots", "0")
    assert len(calls) == 2
    first, second = sorted((tmp_path / "p").iterdir())
    assert first.name.startswith("hidden-") and first.name.endswith("-short-instruction-0-shots-seed-0.json")
    assert second.name.endswith("-2-shots-seed-0.json")
    assert json.loads(first.read_text()) == {"0": 4.0, "1": 2.0, "2": 3.0, "3": 1.0}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--shots", "3"], "give an even number"),
        (["--instruction", "loud"], "choose from none, short, long"),
        (["--template", "compact"], "have their own"),
        (["--endpoint", "http://localhost:1/v1", "--dtype", "float32"], "leave out dtype"),
    ],
)
def test_options_that_do_not_fit_are_refused(data, options, message):
    assert message in " ".join(prompt_models("--model", "none", "--data", data, *options, code=2).replace("│", " ").split())
