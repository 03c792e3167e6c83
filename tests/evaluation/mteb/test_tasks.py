import datasets
import mteb
import numpy as np
import pytest

from inbedder import InBedder
from inbedder_evaluation.mteb.encoder import MtebEncoder
from inbedder_evaluation.mteb.tasks import (
    InstructSTSBTask,
    IntentEmotionEmotion,
    IntentEmotionIntent,
    NYTLocationClustering,
    NYTTopicClustering,
)
from inbedder_evaluation.mteb_adapters import FunctionEncoder
from inbedder_evaluation.tasks.conditional_sts import ConditionalSTS, load_instruct_stsb
from inbedder_evaluation.tasks.intent_emotion import IntentEmotion, load_intent_emotion
from tests.evaluation.tasks.test_tasks import ignorant, one_hot

TASKS = [IntentEmotionEmotion, IntentEmotionIntent, InstructSTSBTask, NYTTopicClustering, NYTLocationClustering]


def score(model, task):
    return mteb.evaluate(model, task, cache=None, show_progress_bar=False).task_results[0].scores["test"][0]


def test_triplets_and_pairs_score_in_mteb_as_in_our_runner(make_model):
    model = InBedder(make_model("bert"))
    ours = IntentEmotion(load_intent_emotion().rows[:40], load_intent_emotion().info)
    emotion = IntentEmotionEmotion().with_rows([row for row in ours.rows if row["criterion"] == "emotion"])
    assert 100 * score(MtebEncoder(model), emotion)["triplet_accuracy"] == pytest.approx(ours.evaluate(model.encode)["emotion"])
    pairs = ConditionalSTS(load_instruct_stsb().info, load_instruct_stsb().rows[:20])
    scores = score(MtebEncoder(model), InstructSTSBTask().with_rows(pairs.rows))
    expected = pairs.evaluate(model.encode)
    assert 100 * scores["main_score"] == pytest.approx(expected["cosine_spearman"], abs=0.2)
    assert 100 * scores["cosine_pearson"] == pytest.approx(expected["cosine_pearson"], abs=0.01)


def test_an_oracle_gets_one_and_ties_are_failures():
    rows = [{"anchor": f"a{i}", "positive": f"a{i}!", "negative": f"b{i}"} for i in range(4)]
    oracle = FunctionEncoder(lambda texts: one_hot([*(text.rstrip("!") for text in texts), "pad"])[:-1])
    assert score(oracle, IntentEmotionIntent().with_rows(rows))["triplet_accuracy"] == 1
    constant = FunctionEncoder(lambda texts: np.ones((len(texts), 3), np.float32))
    assert score(constant, IntentEmotionIntent().with_rows(rows))["triplet_accuracy"] == 0


def test_every_pair_is_encoded_under_its_own_instruction():
    prompts = []

    class Recorder(FunctionEncoder):
        def encode(self, inputs, *, task_metadata, **options):
            prompts.append(task_metadata.prompt)
            return super().encode(inputs)

    rows = [{"sentence1": "a", "sentence2": f"b{i}", "instruction": f"{i % 2}?", "score": i} for i in range(4)]
    score(Recorder(lambda texts: ignorant(texts, "")), InstructSTSBTask().with_rows(rows))
    assert prompts == ["0?", "1?"]


def test_the_papers_sets_are_pinned_and_carry_its_instructions():
    for task in TASKS:
        metadata = task.metadata
        assert metadata.dataset["path"].startswith("BrandonZYW/")
        assert len(metadata.dataset["revision"]) == 40
        assert metadata.prompt.endswith("?")


def test_nyt_is_turned_into_what_mtebs_clustering_reads(monkeypatch):
    rows = {"text": [f"{label} {i}" for label in "ab" for i in range(6)], "cluster": list("aaaaaabbbbbb")}
    monkeypatch.setattr(
        mteb.abstasks.abstask,
        "load_dataset",
        lambda **_options: datasets.DatasetDict({"test": datasets.Dataset.from_dict(rows)}),
    )
    oracle = FunctionEncoder(lambda texts: one_hot([text[0] for text in texts]))
    assert score(oracle, NYTTopicClustering())["v_measure"] == pytest.approx(1)


def test_tasks_can_describe_their_rows():
    task = InstructSTSBTask().with_rows([{"sentence1": "ab", "sentence2": "c", "instruction": "d?", "score": 1}])
    assert task._calculate_descriptive_statistics_from_split("test") == {"num_samples": 1, "number_of_characters": 3}
