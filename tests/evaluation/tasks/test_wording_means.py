from functools import partial

import numpy as np
import pytest

from inbedder.errors import InputError
from inbedder_evaluation.tasks.robustness import LabelledTexts
from inbedder_evaluation.tasks.wording_means import WordingMeans
from tests.evaluation.tasks.test_tasks import ignorant, one_hot

TEXTS = [f"{kind} {i}" for kind in "abc" for i in range(10)]
DATA = LabelledTexts("toy", TEXTS, [text[0] for text in TEXTS], "toy", "none")
WORDINGS = [f"Kind {number}?" for number in range(10)]


def noisy(texts, instruction, loudness=0.4):
    """What is asked for, and as much noise of each wording's own."""
    wording = WORDINGS.index(instruction)
    noise = np.random.default_rng(wording).normal(size=(len(texts), 40)).astype(np.float32)
    return np.concatenate([one_hot([text[0] for text in texts]), loudness * noise], axis=1)


def test_means_over_noisy_wordings_lift_the_worst():
    scores = WordingMeans(DATA, WORDINGS).evaluate(noisy, seed=0)
    assert list(scores) == [
        "mean_of_all", "single_mean", "single_worst", "mean_of_3_mean", "mean_of_3_worst", "mean_of_5_mean", "mean_of_5_worst"
    ]  # fmt: skip
    assert scores["single_worst"] < scores["mean_of_3_worst"] <= scores["mean_of_5_worst"] <= 100
    assert scores["single_worst"] <= scores["single_mean"] < scores["mean_of_3_mean"]
    assert scores["mean_of_all"] == pytest.approx(100)


def test_an_embedder_that_ignores_instructions_gains_nothing():
    vectors = ignorant(TEXTS, "")
    scores = WordingMeans(DATA, WORDINGS).evaluate(lambda *_: vectors, seed=0)
    assert len(set(scores.values())) == 1


def test_too_few_wordings_or_nothing_to_group_are_refused():
    with pytest.raises(InputError, match="toy has 5 wordings; give at least 6"):
        WordingMeans(DATA, WORDINGS[:5])
    with pytest.raises(InputError, match="1 classes"):
        WordingMeans(LabelledTexts("toy", TEXTS, ["a"] * 30, "toy", "none"), WORDINGS)


def test_the_seed_samples_wordings_and_the_data_set_the_revision():
    task = WordingMeans(DATA, WORDINGS)
    assert task.info.main_score == "mean_of_3_worst"
    assert task.info.revision == WordingMeans(DATA, WORDINGS).info.revision != WordingMeans(DATA, WORDINGS[:9]).info.revision
    loud = partial(noisy, loudness=1.0)
    assert task.evaluate(loud, 0)["mean_of_3_mean"] != task.evaluate(loud, 1)["mean_of_3_mean"]
