import numpy as np
import pytest

from inbedder.errors import InputError
from inbedder_evaluation.tasks import Data, build_tasks
from inbedder_evaluation.tasks.conditional_sts import load_instruct_stsb
from inbedder_evaluation.tasks.corpus import make_corpus
from inbedder_evaluation.tasks.criteria_clustering import CriteriaClustering
from inbedder_evaluation.tasks.intent_emotion import IntentEmotion, load_intent_emotion


def one_hot(keys):
    names = sorted(set(keys))
    return np.eye(len(names), dtype=np.float32)[[names.index(key) for key in keys]]


def constant(texts, _instruction):
    return np.ones((len(texts), 4), dtype=np.float32)


def ignorant(texts, _instruction):
    return np.stack([np.random.default_rng(list(text.encode())).normal(size=8) for text in texts]).astype(np.float32)


def test_intent_emotion_scores_an_oracle_100_and_one_vector_0():
    task = load_intent_emotion()

    def oracle(texts, _instruction):
        triplets = len(texts) // 3
        groups = [str(i % triplets) if i < 2 * triplets else f"other {i}" for i in range(len(texts))]
        return one_hot(groups)

    assert task.evaluate(oracle) == {"emotion": 100, "intent": 100, "harmonic_mean": 100}
    assert task.evaluate(constant)["harmonic_mean"] == 0


def test_intent_emotion_scores_ignored_instructions_low():
    scores = load_intent_emotion().evaluate(ignorant)
    assert scores["emotion"] + scores["intent"] == pytest.approx(100)


def test_intent_emotion_needs_both_criteria():
    row = {"criterion": "emotion", "anchor": "a", "positive": "b", "negative": "c"}
    with pytest.raises(InputError, match="needs triplets of criterion 'intent'"):
        IntentEmotion([row], load_intent_emotion().info)


def test_instruct_stsb_scores_an_oracle_100_and_ignorance_0():
    task = load_instruct_stsb()

    def oracle(texts, _instructions):
        count = len(texts) // 2
        return one_hot([str(i) for i in range(count)] + [str(i) if task.rows[i]["score"] else "apart" for i in range(count)])

    assert task.evaluate(oracle)["cosine_spearman"] == pytest.approx(100)
    assert task.evaluate(constant)["cosine_spearman"] == 0
    assert task.evaluate(ignorant)["cosine_spearman"] == pytest.approx(0, abs=1e-6)


ROWS = [{"text": f"{kind} {mood} {i}", "kind": kind, "mood": mood} for kind in "ab" for mood in "xyz" for i in range(6)]
QUESTIONS = {"kind": "Kind?", "mood": "Mood?"}


def test_criteria_clustering_gives_an_oracle_a_hundred():
    task = CriteriaClustering(make_corpus("toy", ROWS, QUESTIONS))

    def oracle(texts, instruction):
        return one_hot([text.split()[0 if instruction == "Kind?" else 1] for text in texts])

    assert task.evaluate(oracle, seed=0) == pytest.approx({"kind": 100, "mood": 100, "harmonic_mean": 100})

    def ignores(texts, _instruction):
        return oracle(texts, "Kind?")

    assert task.evaluate(ignores, seed=0)["harmonic_mean"] == pytest.approx(0, abs=1e-6)


def test_a_class_for_every_text_is_refused():
    rows = [{"text": str(i), "kind": str(i), "mood": "xy"[i % 2]} for i in range(6)]
    with pytest.raises(InputError, match="nothing to group"):
        CriteriaClustering(make_corpus("toy", rows, QUESTIONS))


def test_the_shipped_sets_are_the_default_and_names_choose(tmp_path):
    assert [task.info.name for task in build_tasks()] == ["IntentEmotion (written)", "InstructSTSB (written)"]
    assert [task.info.name for task in build_tasks(names=["stsb"])] == ["InstructSTSB (written)"]
    with pytest.raises(InputError, match=r"No task is called nope. Available tasks: IntentEmotion"):
        build_tasks(names=["nope"])
    with pytest.raises(InputError, match="neither a table nor a folder"):
        build_tasks(Data(tmp_path))


def test_a_table_brings_triplets_and_clustering(tmp_path):
    lines = ["text,kind,mood", *(f"{row['text']},{row['kind']},{row['mood']}" for row in ROWS)]
    (tmp_path / "mine.csv").write_text("\n".join(lines))
    tasks = build_tasks(Data(tmp_path / "mine.csv", criteria=QUESTIONS))
    assert [task.info.name for task in tasks] == ["mine.csv triplets", "mine.csv two-criteria clustering"]
    with pytest.raises(InputError, match="needs two criteria"):
        build_tasks(Data(tmp_path / "mine.csv"))
    with pytest.raises(InputError, match="Criteria need a table"):
        build_tasks(Data(criteria=QUESTIONS))


NESTED = [{"text": f"{kind} {mood} {i}", "kind": kind, "mood": kind + mood} for kind in "ab" for mood in "xy" for i in range(4)]


def test_nested_labels_skip_the_triplets_and_say_so(tmp_path, caplog):
    lines = ["text,kind,mood", *(f"{row['text']},{row['kind']},{row['mood']}" for row in NESTED)]
    (tmp_path / "mine.csv").write_text("\n".join(lines))
    data = Data(tmp_path / "mine.csv", criteria=QUESTIONS)
    assert [task.info.name for task in build_tasks(data)] == ["mine.csv two-criteria clustering"]
    assert caplog.messages == [
        "mine.csv triplets is skipped: No contrast triplet can be drawn: each criterion must vary while the other is held fixed."
    ]
    with pytest.raises(InputError, match=r"No task is left\. mine\.csv triplets is skipped: No contrast triplet"):
        build_tasks(data, ["triplets"])
