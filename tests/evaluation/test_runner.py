import json

import numpy as np
import pytest
from typer.testing import CliRunner

from inbedder import InBedder
from inbedder.cli import app as cli
from inbedder.conditional.config import Encoding
from inbedder.conditional.encoder import ConditionalEncoder
from inbedder.errors import InputError, ModelError
from inbedder_evaluation.embedders import Embedder, make_embedders
from inbedder_evaluation.metrics import spearman
from inbedder_evaluation.results import format_markdown, load_cells, make_table, select_newest
from inbedder_evaluation.runner import run
from inbedder_evaluation.tasks import Data, build_tasks
from inbedder_evaluation.tasks.conditional_sts import ConditionalSTS, load_instruct_stsb, read_csts
from inbedder_evaluation.tasks.contrast_triplets import ContrastTriplets
from inbedder_evaluation.tasks.corpus import make_corpus
from inbedder_evaluation.tasks.criteria_clustering import CriteriaClustering
from tests.evaluation.tasks.test_tasks import QUESTIONS, ROWS, ignorant


class Counting:
    def __init__(self, fail_at=None):
        self.calls = 0
        self.fail_at = fail_at

    def __call__(self, texts, instruction):
        self.calls += 1
        if self.calls == self.fail_at:
            raise KeyboardInterrupt
        return ignorant([f"{instruction} {text}" for text in texts], instruction)


def embedder(encode, name="toy", prompt=lambda text, instruction: f"{instruction} {text}"):
    return Embedder(name, "1", encode, prompt, instructed=True)


@pytest.fixture
def clustering():
    return CriteriaClustering(make_corpus("toy corpus", ROWS, QUESTIONS))


def test_each_seed_and_kind_is_a_cell_and_texts_are_embedded_once(clustering, tmp_path):
    encode = Counting()
    cells = run([embedder(encode)], [clustering], tmp_path / "r.json", seeds=range(3))
    assert [(cell.vectors, cell.seed) for cell in cells] == [(kind, seed) for kind in ("raw", "centred") for seed in range(3)]
    assert encode.calls == 2
    assert cells[0].first_prompt == "Kind? a x 0"
    assert cells[0].metadata["versions"]["torch"]


def test_rows_that_may_not_be_redistributed_are_quoted_nowhere(tmp_path):
    (tmp_path / "c.csv").write_text(
        "sentence1,sentence2,condition,label\na cat,a dog,the animal,1\na cat,a kitten,the animal,4\n"
    )
    task = read_csts(tmp_path / "c.csv")
    cells = run([embedder(Counting())], [task], tmp_path / "r.json", seeds=[0])
    assert {cell.first_prompt for cell in cells} == {""} and "a cat" not in (tmp_path / "r.json").read_text()


def test_the_tasks_of_one_corpus_share_its_vectors(clustering, tmp_path):
    encode = Counting()
    run([embedder(encode)], [clustering, ContrastTriplets(clustering.corpus, count=20)], tmp_path / "r.json", seeds=[0])
    assert encode.calls == 2


def test_an_interrupted_run_never_computes_a_finished_cell_again(clustering, tmp_path):
    path = tmp_path / "r.json"
    with pytest.raises(KeyboardInterrupt):
        run([embedder(Counting(), "first"), embedder(Counting(fail_at=1), "second")], [clustering], path, seeds=[0])
    assert {cell.model for cell in load_cells(path)} == {"first"}
    second_run = Counting()
    cells = run([embedder(second_run, "first"), embedder(Counting(), "second")], [clustering], path, seeds=[0])
    assert second_run.calls == 0
    assert [cell.model for cell in cells] == ["first", "first", "second", "second"]


def test_centred_vectors_have_their_mean_subtracted(clustering, tmp_path):
    def shifted(texts, instruction):
        return ignorant(texts, instruction) + 100

    cells = run([embedder(ignorant, "plain"), embedder(shifted, "shifted")], [clustering], tmp_path / "r.json", seeds=[0])
    scores = {(cell.model, cell.vectors): cell.scores["harmonic_mean"] for cell in cells}
    assert scores["plain", "centred"] == pytest.approx(scores["shifted", "centred"], abs=0.02)


def test_a_run_whose_instruction_does_not_reach_the_prompt_is_refused(clustering, tmp_path):
    with pytest.raises(ModelError, match=r"'Kind\?' did not reach the prompt of toy"):
        run([embedder(ignorant, prompt=lambda text, _instruction: text)], [clustering], tmp_path / "r.json")


def test_a_model_runs_with_its_instruction_and_without(make_model, tmp_path):
    task = ConditionalSTS(load_instruct_stsb().info, load_instruct_stsb().rows[:10])
    cells = run(make_embedders(make_model("bert")), [task], tmp_path / "r.json")
    assert len(cells) == 4
    assert task.rows[0]["instruction"] in cells[0].first_prompt
    assert "What is this text about?" in cells[2].first_prompt
    assert len(cells[0].model_revision) == 16


@pytest.mark.parametrize("kind", ["cross", "tri"])
def test_an_encoder_that_scores_pairs_is_measured_on_pairs_alone(make_model, clustering, tmp_path, kind):
    encoder = ConditionalEncoder.of_base(make_model("bert"), Encoding(kind=kind)).eval()
    encoder.save(tmp_path / kind)
    task = ConditionalSTS(load_instruct_stsb().info, load_instruct_stsb().rows[:10])
    (cell,) = run(make_embedders(str(tmp_path / kind)), [task], tmp_path / "r.json")
    columns = [[row[name] for row in task.rows] for name in ("sentence1", "sentence2", "instruction", "score")]
    expected = spearman(encoder.similarity(*columns[:2], condition=columns[2]), columns[3])
    assert (cell.main_score, cell.vectors, cell.scores["spearman"]) == ("spearman", "raw", round(expected, 2))
    assert "..." in cell.first_prompt
    command = ["evaluate", "--task", "stsb", "--model", str(tmp_path / kind), "-o", str(tmp_path / "c.json")]
    output = CliRunner().invoke(cli, command, catch_exceptions=False).output
    assert "raw vectors" in output and "centred vectors" not in output
    with pytest.raises(InputError, match="scores pairs and has no vector for one text"):
        run(make_embedders(str(tmp_path / kind)), [clustering], tmp_path / "r.json")
    with pytest.raises(ModelError, match=r"Evaluate it: inbedder evaluate"):
        InBedder(str(tmp_path / kind))


def test_tables_show_means_and_deviations(clustering, tmp_path):
    cells = run([embedder(ignorant)], [clustering, load_instruct_stsb()], tmp_path / "r.json", seeds=[0, 1])
    rows = make_table(cells)
    values = [
        cell.scores["harmonic_mean"]
        for cell in cells
        if cell.vectors == "raw" and cell.task == "toy corpus two-criteria clustering"
    ]
    assert rows[0] == ["model", "toy corpus two-criteria clustering", "InstructSTSB (written)"]
    assert rows[1][1] == f"{np.mean(values):.1f} ± {np.std(values, ddof=1):.1f}"
    assert format_markdown([["model", "a"], ["m", "1.0"]]) == "| model | a |\n| --- | --: |\n| m | 1.0 |"


@pytest.mark.parametrize("content", ["not json", json.dumps({"version": 99, "cells": []}), "[]"])
def test_a_file_that_holds_no_results_is_refused(tmp_path, content):
    (tmp_path / "r.json").write_text(content)
    with pytest.raises(InputError, match="is not a results file of inbedder evaluate"):
        load_cells(tmp_path / "r.json")


def test_two_models_of_one_name_are_refused(clustering, tmp_path):
    with pytest.raises(InputError, match="Two models are called 'toy'"):
        run([embedder(ignorant), embedder(ignorant)], [clustering], tmp_path / "r.json")


def test_tables_show_the_newest_weights_of_a_model(clustering, tmp_path):
    run([embedder(ignorant)], [clustering], tmp_path / "r.json", seeds=[0, 1])
    retrained = Embedder("toy", "2", ignorant, lambda text, one: f"{one} {text}", instructed=True)
    run([retrained], [clustering], tmp_path / "r.json", seeds=[0])
    cells = load_cells(tmp_path / "r.json")
    assert len(cells) == 6
    assert {cell.model_revision for cell in select_newest(cells)} == {"2"}
    assert "±" not in make_table(cells)[1][1]


def test_an_uninstructed_embedder_encodes_once(tmp_path):
    from inbedder_evaluation.tasks.robustness import InstructionRobustness
    from tests.evaluation.tasks.test_robustness import ASKED, DATA

    encode = Counting()
    blind = Embedder("blind", "1", encode, lambda text, _: text, instructed=False)
    cells = run([blind], [InstructionRobustness(DATA, ASKED)], tmp_path / "r.json", seeds=[0])
    assert encode.calls == 1
    assert cells[0].scores["delta_ci_means"] == 0


def test_the_papers_protocol_is_a_task_of_its_own_name(tmp_path):
    lines = ["text,kind,mood", *(f"{row['text']},{row['kind']},{row['mood']}" for row in ROWS)]
    (tmp_path / "mine.csv").write_text("\n".join(lines))
    tasks = build_tasks(Data(tmp_path / "mine.csv", criteria=QUESTIONS, protocol="paper"), ["clustering"])
    (cell, _) = run([embedder(ignorant)], tasks, tmp_path / "r.json", seeds=range(1))
    assert cell.task == "mine.csv two-criteria clustering, paper protocol"
    assert 0 <= cell.scores["harmonic_mean"] <= 100


def test_a_guided_sample_is_named_and_gives_the_vectors_of_encode_guided(make_model):
    model = InBedder(make_model("bert"))
    texts = [f"text {i} about {'cats' if i % 2 else 'dogs'}" for i in range(90)]
    mapped, _ = make_embedders(model, guided=50)
    assert mapped.name.endswith(", guided 50")
    assert mapped.revision != make_embedders(model)[0].revision
    vectors = mapped.encode(texts, "Why?")
    assert np.abs(vectors - model.encode_guided(texts, "Why?", sample=50)).max() < 1e-5
    assert np.abs(vectors - model.encode(texts, "Why?")).max() > 1e-3
