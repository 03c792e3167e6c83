import json
from dataclasses import replace

import numpy as np
import pytest
from typer.testing import CliRunner

from inbedder import InBedder
from inbedder.encoding.reencode import find_reencoder_revision
from inbedder.errors import InputError
from inbedder.options import Reencoding
from inbedder.prompting.stopwords import load_stopwords
from inbedder_evaluation.results import load_cells
from inbedder_evaluation.sweeps.embedders import list_uninformative_words, make_filter_embedders, make_pooling_embedders
from inbedder_evaluation.sweeps.paper import app
from tests.evaluation.tasks.test_tasks import ignorant
from tests.evaluation.test_runner import run

PNG = b"\x89PNG"
TINY_SET = ("--hub", "--task", "NYT two-criteria")


@pytest.fixture(autouse=True)
def tiny_hub(monkeypatch):
    rows = [{"text": f"{label} {i}", "cluster": label} for label in "ab" for i in range(4)]
    monkeypatch.setattr("datasets.load_dataset", lambda *_args, **_options: rows)


def sweep(*arguments):
    result = CliRunner().invoke(app, [str(one) for one in arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output


def test_poolings_and_layers_are_each_a_model_of_the_results(make_model, tmp_path):
    model = make_model("bert")
    sweep("poolings", "--model", model, *TINY_SET, "-o", tmp_path / "p.json")
    names = {cell.model for cell in load_cells(tmp_path / "p.json")}
    samples = ("1 answer at T=0", "1 answer at T=0.6", "1 answer at T=0.8", "10 answers at T=0.8")
    reencoded = {f"re-enc, {answers}" for answers in samples}
    assert {name.removeprefix(f"{model}, ") for name in names} == {"avg-gen", "avg-ppt", "avg-all", *reencoded}
    sweep("layers", "--model", model, *TINY_SET, "-o", tmp_path / "l.json")
    assert len({cell.metadata["spec"]["weights"] for cell in load_cells(tmp_path / "l.json")}) == 1
    layers = {cell.model for cell in load_cells(tmp_path / "l.json")}
    assert len(layers) == 3
    assert (tmp_path / "p.png").read_bytes().startswith(PNG)
    assert (tmp_path / "l.png").read_bytes().startswith(PNG)


def test_two_models_stand_side_by_side_by_layers_counted_from_the_last(make_model, tmp_path):
    options = ("--every", 2, *TINY_SET, "-o", tmp_path / "l.json")
    sweep("layers", "--model", make_model("bert"), "--model", make_model("opt"), *options)
    names = {cell.model.rpartition(", ")[2] for cell in load_cells(tmp_path / "l.json")}
    assert names == {"layer 0", "layer 2"}
    assert len({cell.model for cell in load_cells(tmp_path / "l.json")}) == 4
    assert (tmp_path / "l.png").read_bytes().startswith(PNG)


def test_filtering_words_changes_the_vectors_and_is_named(make_model, tmp_path):
    sweep("filter-words", "--model", make_model("opt"), *TINY_SET, "-o", tmp_path / "f.json")
    cells = {cell.model: cell for cell in load_cells(tmp_path / "f.json") if cell.vectors == "raw"}
    assert [name.endswith("filter words") for name in cells] == [False, True]
    assert (tmp_path / "f.png").exists()


@pytest.mark.parametrize(
    ("instruction", "questions"),
    [
        ("Where did the news happen?", ["Where did the news happen?"]),
        ("How does the customer feel?", ["How does the customer feel?", "What does the customer need?"]),
        ("What does the customer need?", ["How does the customer feel?", "What does the customer need?"]),
        (None, []),
    ],
)
def test_uninformative_words_are_those_of_the_authors_configs(instruction, questions):
    """configs/causallm_llama-2-7b-chat-e5-large-v2-pretrain-filter.json: filter_words of NYT, IntentEmotion and InstructSTSB."""
    words = list_uninformative_words(instruction)
    assert set(words) == {*load_stopwords("nltk"), "Based on ", "Sure! ", *questions}
    assert len(words) == 179 + 2 + len(questions)


def test_questions_of_single_texts_are_not_left_out_of_their_answers(make_model):
    model = InBedder(make_model("opt"))
    embedder = make_filter_embedders(make_model("opt"), {}, {})[1]
    texts, question = ["I love cats", "I love dogs"], "Where did the news happen?"
    shared, per_text = embedder.encode(texts, question), embedder.encode(texts, [question, "What?"])
    words = list_uninformative_words(None)
    options = {"pooling": "avg-gen", "beside": "none"}
    expected = model.replace(**options).encode(texts, [question, "What?"], filter_words=words)
    np.testing.assert_allclose(per_text, expected, atol=1e-6)
    np.testing.assert_allclose(
        shared, model.replace(**options).encode(texts, question, filter_words=[*words, question]), atol=1e-6
    )


def test_the_papers_sets_are_measured_in_its_protocol(make_model, tmp_path):
    options = ("--protocol", "paper", "--max-length", "64", "--model", make_model("opt"))
    sweep("layers", "--every", "2", *TINY_SET, *options, "-o", tmp_path / "l.json")
    cells = load_cells(tmp_path / "l.json")
    assert {cell.task for cell in cells} == {"NYT two-criteria clustering, paper protocol"}
    encoding = cells[0].metadata["spec"]["encoding"]
    assert (encoding["truncation_side"], encoding["max_length"]) == ("prompt-left", 64)


def test_the_re_encoder_is_that_of_the_shared_option(make_model, make_sentence_model):
    encoder = str(make_sentence_model())
    options = {"reencoding": Reencoding(encoder=encoder, top_p=0.5), "max_new_tokens": 2}
    specs = [one.spec for one in make_pooling_embedders(make_model("opt"), options, {})]
    settings = {(spec["reencoder"], spec["encoding"]["reencoding"]["top_p"]) for spec in specs if spec["encoding"]["reencoding"]}
    assert settings == {(find_reencoder_revision(encoder), 0.5)}


@pytest.mark.parametrize(
    ("command", "option"),
    [("poolings", "--re-enc-n"), ("layers", "--layer"), ("filter-words", "--pooling"), ("models", "--protocol")],
)
def test_an_option_that_a_sweep_varies_has_no_flag(command, option, tmp_path):
    result = CliRunner().invoke(app, [command, option, "1", "--model", "mini", "-o", str(tmp_path / "r.json")])
    assert result.exit_code == 2
    assert ("choose k-means or paper" if option == "--protocol" else f"No such option: {option}") in result.output


def test_the_states_of_the_authors_phrases_are_left_out(make_model):
    model = InBedder(make_model("opt"))
    tokens = model.backbone.tokenizer.convert_ids_to_tokens(model.tokenizer.find_token_ids(list_uninformative_words("What?")))
    phrases = [model.backbone.tokenizer.tokenize(phrase) for phrase in ("Sure! ", "Based on ", "What?")]
    assert {token for phrase in phrases for token in phrase} <= set(tokens)


def test_sampled_answers_and_templates_are_models_of_their_own(make_model, tmp_path):
    options = ("--temperature", "0.6", "--top-p", "0.9", "--template", "llama-2-chat-inst", "--max-new-tokens", "4")
    sweep("poolings", "--model", make_model("llama"), *options, *TINY_SET, "-o", tmp_path / "p.json")
    cells = load_cells(tmp_path / "p.json")
    names = {cell.model.split(", ", 1)[1] for cell in cells}
    assert {"1st-gen", "avg-ppt", *(f"{name}, 1 answer at T=0.6" for name in ("avg-gen", "last-gen", "avg-all"))} <= names
    assert cells[0].first_prompt.startswith("[INST] Your task") and cells[0].first_prompt.endswith("### Your Answer: [/INST]")


def test_first_words_are_written_for_every_text_and_instruction(make_model, tmp_path):
    (tmp_path / "t.txt").write_text("I love cats\n\nI love dogs\n")
    arguments = ("first-words", tmp_path / "t.txt", "--model", make_model("opt"), "--top", "3", "-o", tmp_path / "w.json")
    sweep(*arguments, "-i", "What animals do they love?", "-i", "@topic")
    rows = json.loads((tmp_path / "w.json").read_text())["rows"]
    assert [(row["text"], row["instruction"]) for row in rows][2] == ("I love cats", "What is the topic of the text?")
    assert len(rows) == 4
    assert (tmp_path / "w.png").read_bytes().startswith(PNG)


def test_checkpoints_stand_side_by_side(make_model, tmp_path):
    sweep("models", "--model", make_model("bert"), "--model", make_model("opt"), *TINY_SET, "-o", tmp_path / "m.json")
    assert len({cell.model for cell in load_cells(tmp_path / "m.json")}) == 2


def test_precisions_of_one_model_are_told_apart(make_model, tmp_path):
    both = ("--precision", "float32", "--precision", "bfloat16")
    sweep("precisions", "--model", make_model("bert"), *both, *TINY_SET, "-o", tmp_path / "p.json")
    cells = load_cells(tmp_path / "p.json")
    assert {cell.model.rsplit(", ")[-1] for cell in cells} == {"float32", "bfloat16"}
    assert len({cell.model_revision for cell in cells}) == 2


def test_gibberish_reaches_the_model_in_the_place_of_the_instruction(make_model, tmp_path):
    sweep("gibberish", "--model", make_model("bert"), "--task", "stsb", "-o", tmp_path / "g.json")
    cells = [cell for cell in load_cells(tmp_path / "g.json") if cell.vectors == "raw"]
    real, meaningless, without_instruction = (cell.first_prompt for cell in cells)
    assert len({real, meaningless, without_instruction}) == 3
    assert "AAAA" in meaningless
    assert cells[0].model_revision != cells[1].model_revision
    assert len({cell.scores[cell.main_score] for cell in cells}) == 3


def test_robustness_is_drawn_from_results_that_hold_some(tmp_path):
    from inbedder_evaluation.tasks.robustness import InstructionRobustness
    from tests.evaluation.tasks.test_robustness import ASKED, DATA
    from tests.evaluation.test_runner import embedder

    run([embedder(ignorant)], [InstructionRobustness(DATA, ASKED)], tmp_path / "r.json", seeds=[0])
    sweep("robustness", tmp_path / "r.json", "-o", tmp_path / "r.png")
    assert (tmp_path / "r.png").read_bytes().startswith(PNG)
    generic = replace(embedder(ignorant), name="model, no instruction")
    run([generic], [InstructionRobustness(DATA, ASKED)], tmp_path / "generic.json", seeds=[0])
    for results in ("none.json", "generic.json"):
        with pytest.raises(InputError, match="These results hold no robustness task"):
            sweep("robustness", tmp_path / results, "-o", tmp_path / "n.png")


def test_an_output_that_is_no_json_is_refused(make_model, tmp_path):
    with pytest.raises(InputError, match=r"must be a .json file"):
        sweep("poolings", "--model", make_model("bert"), "-o", tmp_path / "p.png")
