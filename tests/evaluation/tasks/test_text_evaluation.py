import gzip
import json

import numpy as np
import pytest
from scipy.stats import pearsonr

from inbedder.errors import InputError
from inbedder.prompting.templates import read_prompts
from inbedder_evaluation.instructor_prompts import to_instructor_prompt
from inbedder_evaluation.tasks import Data, build_tasks
from inbedder_evaluation.tasks.task import read_instructions
from inbedder_evaluation.tasks.text_evaluation import TextEvaluation

VECTORS = {"good": [1, 0], "fair": [1, 1], "bad": [0, 1], "ref": [1, 0.1], "other ref": [-1, 0]}


def write(path, rows):
    path.parent.mkdir(exist_ok=True)
    with gzip.open(path, "wt") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)


@pytest.fixture
def folder(tmp_path):
    key = {"seg_id": "1", "set_id": 0}
    outputs = [{**key, "hyp": text, "human_score": score} for text, score in (("good", 5), ("fair", 3), ("bad", 0))]
    write(tmp_path / "texteval_mscoco" / "human_scores.jsonl.gz", outputs)
    write(tmp_path / "texteval_mscoco" / "references.jsonl.gz", [{**key, "refs": ["other ref", "ref"]}])
    return tmp_path


def encode(texts, _instruction):
    return np.array([VECTORS[text] for text in texts], dtype=np.float32)


def test_the_score_is_the_largest_cosine_over_the_references(folder):
    reference = np.array(VECTORS["ref"]) / np.linalg.norm(VECTORS["ref"])
    cosines = [np.array(VECTORS[text]) @ reference / np.linalg.norm(VECTORS[text]) for text in ("good", "fair", "bad")]
    scores = TextEvaluation("texteval_mscoco", folder).evaluate(encode)
    assert scores["pearson"] == pytest.approx(100 * pearsonr(cosines, [5, 3, 0]).statistic, rel=1e-5)
    assert scores["spearman"] == pytest.approx(100)


@pytest.mark.parametrize(
    ("wording", "instruction"),
    [
        (None, "What is in the picture?"),
        ("large", "Represent the caption: "),
        ("base", "Represent the image caption: "),
        ("xl", "Represent the image caption: "),
    ],
)
def test_each_of_the_authors_models_has_its_words(folder, wording, instruction):
    task = TextEvaluation("texteval_mscoco", folder, wording)
    assert task.instruction == instruction
    instructions = []
    task.evaluate(lambda texts, words: instructions.append(words) or encode(texts, words))
    assert instructions == [instruction]


def test_the_words_of_a_wording_reach_instructor_models_unchanged(folder):
    words = read_prompts("represent")["text_evaluation"]
    assert [to_instructor_prompt(each) for of_set in words.values() for each in of_set.values()] == [
        *("Represent the image caption: ", "Represent the caption: ", "Represent the image caption: "),
        *("Represent a comment: ", "Represent a comment: ", "Represent a news comment: "),
        *("Represent the statement: ", "Represent the statement: ", "Represent the translation statement; "),
    ]
    for name, of_set in words.items():
        assert to_instructor_prompt(read_instructions("standard")[name]) == of_set["large"]


def test_a_wording_without_words_or_without_text_evaluation_is_refused(folder):
    with pytest.raises(InputError, match=r"There is no wording 'xxl'\. Choose from: base, large, xl"):
        build_tasks(Data(folder, wording="xxl"), ["texteval"])
    with pytest.raises(InputError, match="Only text evaluation is asked in other words: add --task texteval"):
        build_tasks(Data(folder, wording="xl"), ["IntentEmotion"])
    assert [task.instruction for task in build_tasks(Data(folder, wording="xl"), ["texteval"])] == [
        "Represent the image caption: "
    ]


def test_experts_ratings_are_averaged(folder):
    key = {"seg_id": "1", "set_id": 0}
    ratings = [{"coherence": 5, "fluency": 3}, {"coherence": 1, "fluency": 1}]
    outputs = [{**key, "hyp": "good", "expert_annotations": ratings}, {**key, "hyp": "bad", "expert_annotations": ratings[1:]}]
    write(folder / "texteval_mscoco" / "human_scores.jsonl.gz", outputs)
    assert TextEvaluation("texteval_mscoco", folder).scores == [2.5, 1]


def test_references_alone_cannot_be_measured(folder):
    with pytest.raises(InputError, match=r"texteval_cnndm has no human_scores.jsonl.gz: there are no ratings"):
        TextEvaluation("texteval_cnndm", folder)
    with pytest.raises(InputError, match="Unknown text evaluation 'texteval_wmt21'"):
        TextEvaluation("texteval_wmt21", folder)


def test_translations_have_one_rating_each_like_captions(folder):
    (folder / "texteval_mscoco").rename(folder / "texteval_wmt20_zh_en")
    task = TextEvaluation("texteval_wmt20_zh_en", folder)
    assert (task.scores, to_instructor_prompt(task.instruction)) == ([5, 3, 0], "Represent the statement: ")


def test_a_text_without_references_is_named(folder):
    write(folder / "texteval_mscoco" / "references.jsonl.gz", [{"seg_id": "2", "set_id": 0, "refs": ["ref"]}])
    with pytest.raises(InputError, match=r"no references for \('1', 0\)"):
        TextEvaluation("texteval_mscoco", folder)
