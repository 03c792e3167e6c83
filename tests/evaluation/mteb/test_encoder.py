import mteb
import numpy as np
import pytest
from mteb.models.abs_encoder import AbsEncoder
from mteb.models.models_protocols import EncoderProtocol
from mteb.types import PromptType

from inbedder import InBedder
from inbedder.errors import ModelError
from inbedder_evaluation import mteb_adapters
from inbedder_evaluation.embedders import make_mteb_embedders
from inbedder_evaluation.mteb.encoder import MtebEncoder
from inbedder_evaluation.mteb_adapters import FunctionEncoder, describe, list_texts, make_loader, make_metadata
from inbedder_evaluation.runner import run
from inbedder_evaluation.tasks import Data, build_tasks
from inbedder_evaluation.tasks.conditional_sts import ConditionalSTS, load_instruct_stsb
from inbedder_evaluation.tasks.intent_emotion import IntentEmotion, load_intent_emotion
from inbedder_evaluation.tasks.standard import load_standard_task
from tests.evaluation.tasks.test_tasks import QUESTIONS, ROWS, ignorant
from tests.evaluation.tasks.test_text_evaluation import write

WHERE = {"hf_split": "test", "hf_subset": "default"}


def test_the_tasks_prompt_is_the_instruction_and_a_given_one_comes_first(make_model):
    model = InBedder(make_model("bert"))
    texts = ["I love cats", "I love dogs"]
    encoder = MtebEncoder(model, instructions={"Known": "Do they love animals?"})
    assert isinstance(encoder, EncoderProtocol)
    by_prompt = encoder.encode(make_loader(texts), task_metadata=make_metadata("What animals do they love?"), **WHERE)
    np.testing.assert_array_equal(by_prompt, model.encode(texts, "What animals do they love?"))
    by_name = encoder.encode(make_loader(texts), task_metadata=make_metadata("Nothing?", "Known"), **WHERE)
    np.testing.assert_array_equal(by_name, model.encode(texts, "Do they love animals?"))


@pytest.mark.parametrize("side", [PromptType.query, PromptType.document, None])
def test_both_sides_are_asked_the_question_of_the_one_that_has_a_prompt(make_model, side):
    model, texts = InBedder(make_model("bert")), ["I love cats", "I love dogs"]
    metadata = make_metadata({"query": "What animals do they love?"})
    vectors = MtebEncoder(model).encode(make_loader(texts), task_metadata=metadata, prompt_type=side, **WHERE)
    np.testing.assert_array_equal(vectors, model.encode(texts, "What animals do they love?"))


def test_an_embedding_model_has_the_prompt_of_each_side(make_model):
    model, texts = InBedder(make_model("headless-bert"), backbone="embedding", template="e5-instruct"), ["I love cats"]
    metadata = make_metadata({"query": "Find it"})
    query, document = (
        MtebEncoder(model).encode(make_loader(texts), task_metadata=metadata, prompt_type=side, **WHERE)
        for side in (PromptType.query, PromptType.document)
    )
    np.testing.assert_array_equal(query, model.encode(texts, "Find it"))
    np.testing.assert_array_equal(document, model.encode(texts, ""))


def test_a_model_runs_on_mtebs_own_task_class_and_into_mtebs_cache(make_model, tmp_path):
    rows = [{"text": f"{label} {i}", "label": label} for label in "abc" for i in range(5)]
    write(tmp_path / "banking77" / "test.jsonl.gz", rows)
    encoder = MtebEncoder(make_model("opt"), device="cpu")
    cache = mteb.ResultCache(tmp_path / "cache")
    task = load_standard_task("clustering", "banking77", tmp_path).task
    result = mteb.evaluate(encoder, task, cache=cache, show_progress_bar=False)
    score = result.task_results[0].scores["test"][0]["main_score"]
    assert 0 <= score <= 1
    reloaded = cache.load_task_result("banking77 clustering", encoder.mteb_model_meta)
    assert reloaded.scores["test"][0]["main_score"] == pytest.approx(score)


def test_texts_seen_before_are_not_computed_again():
    prompts = []

    def encode(texts):
        prompts.extend(texts)
        return ignorant(texts, "")

    encoder = FunctionEncoder(encode)
    encoder.remember(["a", "b", "a"])
    vectors = encoder.encode(make_loader(["b", "c"]))
    assert prompts == ["a", "b", "c"]
    np.testing.assert_array_equal(vectors, ignorant(["b", "c"], ""))


def test_a_sentence_transformer_runs_through_mteb_on_three_of_our_tasks(tmp_path):
    lines = ["text,kind,mood", *(f"{row['text']},{row['kind']},{row['mood']}" for row in ROWS)]
    (tmp_path / "mine.csv").write_text("\n".join(lines))
    tasks = [
        IntentEmotion(load_intent_emotion().rows[:8], load_intent_emotion().info),
        ConditionalSTS(load_instruct_stsb().info, load_instruct_stsb().rows[:10]),
    ]
    tasks += build_tasks(Data(tmp_path / "mine.csv", criteria=QUESTIONS), ["triplets"])
    cells = run(make_mteb_embedders("all-MiniLM-L6-v2"), tasks, tmp_path / "r.json")
    assert len(cells) == 2 * 3 * 2
    by_key = {(cell.model, cell.task, cell.vectors): cell for cell in cells}
    left_out = by_key["all-MiniLM-L6-v2, no instruction", "InstructSTSB (written)", "raw"]
    in_front = by_key["all-MiniLM-L6-v2, instruction in front", "InstructSTSB (written)", "raw"]
    assert left_out.scores["cosine_spearman"] == 0
    assert in_front.scores["cosine_spearman"] != 0
    assert in_front.first_prompt.startswith(tasks[1].rows[0]["instruction"])


class Instructed(AbsEncoder):
    """A model with a prompt form of its own, as E5-instruct has."""

    instruction_template = "Instruct: {instruction}\nQuery: "
    prompts_dict = None
    mteb_model_meta = describe("toy/instructed", "1")

    def encode(self, inputs, *, task_metadata, **_options):
        prompt = self.get_task_instruction(task_metadata, None)
        return ignorant([prompt + text for text in list_texts(inputs)], "")


def test_a_model_with_its_own_prompt_form_runs_in_it(monkeypatch):
    monkeypatch.setattr(mteb_adapters, "load_mteb_model", lambda _name: Instructed())
    left_out, in_front, own_prompt = make_mteb_embedders("toy/instructed")
    np.testing.assert_array_equal(left_out.encode(["a"], "Why?"), ignorant(["a"], ""))
    np.testing.assert_array_equal(in_front.encode(["a"], "Why?"), ignorant(["Why? a"], ""))
    expected = ignorant([f"Instruct: {one}\nQuery: {text}" for text, one in (("a", "Why?"), ("b", "How?"), ("c", "Why?"))], "")
    np.testing.assert_array_equal(own_prompt.encode(["a", "b", "c"], ["Why?", "How?", "Why?"]), expected)
    np.testing.assert_array_equal(own_prompt.encode(["a"], "Why?"), expected[:1])
    assert own_prompt.prompt("a", "Why?") == "Instruct: Why?\nQuery: a"


def test_an_unknown_model_is_an_error_that_says_what_to_give():
    with pytest.raises(ModelError, match=r"mteb cannot load 'nobody/nothing'.*Give a model that mteb knows"):
        make_mteb_embedders("nobody/nothing")


def test_other_options_have_another_revision_in_mteb(make_model):
    model = InBedder(make_model("bert"))
    ways = [model, model.replace(pooling="avg-all"), model.replace(layer=1)]
    revisions = [MtebEncoder(one).mteb_model_meta.revision for one in ways]
    revisions.append(MtebEncoder(model, instructions={"t": "Why?"}).mteb_model_meta.revision)
    assert len(set(revisions)) == 4
