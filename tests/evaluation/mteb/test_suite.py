import json
import subprocess
import sys

import mteb
import numpy as np
import pytest
from typer.testing import CliRunner

from inbedder import InBedder
from inbedder.errors import InputError
from inbedder_evaluation.embedders import make_embedders
from inbedder_evaluation.mteb import suite
from inbedder_evaluation.mteb.instructions import read_instructed_sets
from inbedder_evaluation.mteb.suite import BareTexts, InstructedEncoder, app, load_tasks
from inbedder_evaluation.mteb_adapters import make_loader, make_metadata
from inbedder_evaluation.results import load_cells
from tests.evaluation.mteb.tiny_mteb import TEXTS, fill

KINDS = {"SciFact", "SciDocsRR", "BiorxivClusteringS2S", "TwitterURLCorpus", "MTOPDomainClassification", "STS17", "SummEval"}
"""A set of each kind."""


@pytest.fixture
def tiny_tasks(monkeypatch):
    tasks = {name: fill(task) if name in KINDS else task for name, task in load_tasks().items()}
    monkeypatch.setattr(suite, "load_tasks", lambda: tasks)
    return tasks


@pytest.fixture
def instructor(make_model):
    return make_model("headless-bert")


def run(*arguments):
    result = CliRunner().invoke(app, [*map(str, arguments)], catch_exceptions=True)
    if isinstance(result.exception, InputError):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result


def test_queries_and_documents_have_their_own_instructions(instructor):
    model = InBedder(instructor, backbone="instructor")
    encoder = InstructedEncoder(make_embedders(model, verbatim=True)[0], read_instructed_sets(), "large")
    mteb_set = {"task_metadata": make_metadata(None, "TRECCOVID"), "hf_split": "test", "hf_subset": "default"}
    for prompt_type, instruction in (
        (mteb.types.PromptType.query, "Represent the Coronavirus question for retrieving supporting documents: "),
        (mteb.types.PromptType.document, "Represent the Coronavirus document for retrieval: "),
    ):
        vectors = encoder.encode(make_loader(TEXTS[:3]), prompt_type=prompt_type, **mteb_set)
        np.testing.assert_array_equal(vectors, model.encode(TEXTS[:3], instruction))


def test_bare_documents_are_those_of_retrieval_sets(instructor):
    model = InBedder(instructor, backbone="instructor")
    bare_texts = BareTexts(documents=True)
    encoder = InstructedEncoder(make_embedders(model, verbatim=True)[0], read_instructed_sets(), "large", bare_texts)
    for name, prompt_type, instruction in (
        ("TRECCOVID", "query", "Represent the Coronavirus question for retrieving supporting documents: "),
        ("TRECCOVID", "document", ""),
        ("SciDocsRR", "document", "Represent the Scientific document: "),
    ):
        mteb_set = {"task_metadata": make_metadata(None, name), "hf_split": "test", "hf_subset": "default"}
        vectors = encoder.encode(make_loader(TEXTS[:3]), prompt_type=mteb.types.PromptType(prompt_type), **mteb_set)
        np.testing.assert_array_equal(vectors, model.encode(TEXTS[:3], instruction))


def test_a_clustered_text_of_over_256_tokens_is_bare(instructor):
    model = InBedder(instructor, backbone="instructor")
    instruction = "Represent the biomedical statement for retrieval: "
    (start,) = (len(ids) for ids in model.tokenizer.tokenizer([f"{instruction}a"])["input_ids"])
    texts = ["a" + " a" * (256 - start), "a" + " a" * (257 - start)]
    assert [len(ids) for ids in model.tokenizer.tokenizer([instruction + text for text in texts])["input_ids"]] == [256, 257]
    mteb_set = {"task_metadata": make_metadata(None, "BiorxivClusteringS2S"), "hf_split": "test", "hf_subset": "default"}
    embedder = make_embedders(model, verbatim=True)[0]
    for bare_texts, second in ((BareTexts(), instruction), (BareTexts(long_texts=True), "")):
        encoder = InstructedEncoder(embedder, read_instructed_sets(), "large", bare_texts)
        vectors = encoder.encode(make_loader(texts), **mteb_set)
        np.testing.assert_allclose(vectors[:1], model.encode(texts[:1], instruction), atol=1e-5)
        np.testing.assert_allclose(vectors[1:], model.encode(texts[1:], second), atol=1e-5)
    assert np.abs(model.encode(texts[1:], "") - model.encode(texts[1:], instruction)).max() > 1e-3


def test_bare_texts_are_another_row_that_measures_only_their_sets(instructor, tiny_tasks, tmp_path, monkeypatch):
    tasks = ["--task", "SciFact", "--task", "STS17", "--task", "BiorxivClusteringS2S"]
    command = ["--model", instructor, "--backbone", "instructor", *tasks, "-o", tmp_path / "r.json"]
    run(*command)
    measured, evaluate = [], mteb.evaluate

    def spy(encoder, task, **options):
        measured.append(task.metadata.name)
        return evaluate(encoder, task, **options)

    monkeypatch.setattr(mteb, "evaluate", spy)
    result = run(*command, "--bare-documents", "--bare-long-texts")
    assert measured == ["SciFact", "BiorxivClusteringS2S"]
    name = f"{instructor}, backbone='instructor'"
    assert f"{name}, bare documents, bare long texts" in result.stdout
    cells = {(cell.model.removeprefix(name), cell.task): cell.scores for cell in load_cells(tmp_path / "r.json")}
    assert len(cells) == 6
    assert cells["", "STS17"] == cells[", bare documents, bare long texts", "STS17"]


def test_each_kind_of_set_is_measured_and_a_rerun_measures_nothing(instructor, tiny_tasks, tmp_path, monkeypatch):
    tasks = [word for name in sorted(KINDS) for word in ("--task", name)]
    command = ["--model", instructor, "--backbone", "instructor", *tasks, "-o", tmp_path / "r.json"]
    run(*command)
    cells = {cell.task: cell for cell in load_cells(tmp_path / "r.json")}
    assert cells.keys() == KINDS
    assert cells["SciFact"].first_prompt == "Represent a Scientific query for retrieving a supporting passage; ..."
    assert cells["TwitterURLCorpus"].main_score == "cosine_ap"
    assert all(-100 <= cell.scores[cell.main_score] <= 100 for cell in cells.values())
    monkeypatch.setattr(mteb, "evaluate", None)
    result = run(*command, "--mteb-results", tmp_path / "mteb")
    assert "mean, 7 sets" in result.stdout
    (path,) = (tmp_path / "mteb").rglob("STS17.json")
    (saved,) = json.loads(path.read_text(encoding="utf-8"))["scores"]["test"]
    assert saved["hf_subset"] == "en-en"
    assert saved["main_score"] == pytest.approx(cells["STS17"].scores["cosine_spearman"] / 100)


def test_a_score_is_the_one_of_the_instructed_vectors(instructor, tiny_tasks, tmp_path):
    run("--model", instructor, "--backbone", "instructor", "--task", "STS17", "-o", tmp_path / "r.json")
    vectors = InBedder(instructor, backbone="instructor").encode(TEXTS, "Represent the sentence for classification: ")
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    cosines = (unit * np.roll(unit, -1, axis=0)).sum(axis=1)
    from scipy.stats import spearmanr

    (cell,) = load_cells(tmp_path / "r.json")
    assert cell.scores["cosine_spearman"] == pytest.approx(100 * spearmanr(cosines, [i % 5 for i in range(12)])[0], abs=0.01)


def test_wordings_are_measured_side_by_side(instructor, tiny_tasks, tmp_path):
    wordings = [word for wording in ("large", "xl", "tag", "none") for word in ("--wording", wording)]
    result = run("--model", instructor, "--backbone", "instructor", *wordings, "--task", "STS17", "-o", tmp_path / "r.json")
    name = f"{instructor}, backbone='instructor'"
    prompts = {cell.model.removeprefix(name): cell.first_prompt for cell in load_cells(tmp_path / "r.json")}
    assert prompts == {
        "": "Represent the sentence for classification: ...",
        ", xl wording": "Represent a statement, ...",
        ", tag wording": "STS17; Input: ...",
        ", no instruction": "...",
    }
    assert "best and worst wording" in result.stdout


def test_a_baseline_runs_as_mteb_runs_it(make_sentence_model, tiny_tasks, tmp_path):
    folder = make_sentence_model()
    run("--baseline", folder, "--task", "STS17", "-o", tmp_path / "r.json")
    (cell,) = load_cells(tmp_path / "r.json")
    expected = mteb.evaluate(
        suite.load_mteb_model(str(folder), own_prompts=True), tiny_tasks["STS17"], cache=None, show_progress_bar=False
    )
    assert cell.model == f"{folder}, by mteb"
    assert cell.scores["cosine_spearman"] == pytest.approx(100 * expected.task_results[0].get_score(), abs=0.01)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-o", "r.txt"], "give a file that ends in .json"),
        ([], "Give a --model or a --baseline"),
        (["--model", "mini", "--wording", "loud"], "no wording 'loud'. Choose from: large, base"),
        (["--model", "mini", "--wording", "paraphrase-1", "--task", "NQ"], "table 6 of the paper gives them for two only"),
        (["--model", "mini", "--kind", "Speech"], "no kind 'Speech'"),
    ],
)
def test_a_wrong_option_says_what_to_give(arguments, message, tmp_path):
    with pytest.raises(InputError, match=message):
        run("-o", tmp_path / "r.json", *arguments)


def test_a_set_that_cannot_be_fetched_is_named(instructor, tmp_path, monkeypatch):
    def refuse(*_arguments, **_options):
        raise ConnectionError("offline")

    tasks = load_tasks()
    monkeypatch.setattr(type(tasks["STS12"]), "load_data", refuse)
    with pytest.raises(InputError, match=r"Cannot read mteb/sts12-sts from the hub \(ConnectionError: offline\)"):
        run("--model", instructor, "--backbone", "instructor", "--task", "STS12", "-o", tmp_path / "r.json")


@pytest.mark.parametrize(("module", "start"), [("suite", "error: "), ("registry", "inbedder.errors.MissingExtraError: ")])
def test_without_mteb_the_extra_is_named(module, start):
    run_module = f"runpy.run_module('inbedder_evaluation.mteb.{module}', run_name='__main__')"
    code = f"import runpy, sys; sys.modules['mteb'] = None; {run_module}"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    lines = result.stderr.splitlines()
    assert result.returncode == 1
    assert lines[-1] == f"{start}This needs mteb. Install it with: pip install './evaluation[mteb]' in the clone"
    assert len(lines) == 1 or module != "suite"
