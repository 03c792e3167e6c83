import json

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from inbedder import InBedder
from inbedder.encoding import default_options
from inbedder.errors import InputError, TemplateError
from inbedder.prompting.templates import get_template
from inbedder.vector_spec import VectorSpec
from tests.conftest import INSTRUCTIONS, TEXTS, assert_close
from tests.prompting.chat_families import write_chat_model

QUESTION = "What animals do they love?"
BASES = {"qwen3": "opt", "gemma-3": "llama", "phi-3": "qwen2", "phi-4": "gpt2"}


@pytest.fixture(scope="module")
def make_chat_model(make_model, tmp_path_factory):
    folders = {}

    def make(family):
        if family not in folders:
            target = tmp_path_factory.mktemp(family) / "model"
            folders[family] = write_chat_model(make_model(BASES[family]), target, family)
        return folders[family]

    return make


@pytest.fixture(autouse=True)
def no_earlier_warnings(monkeypatch):
    monkeypatch.setattr(default_options, "_models_warned_of", set())


@pytest.mark.parametrize("family", BASES)
def test_the_vector_is_the_state_that_predicts_the_first_answer_token(make_chat_model, family):
    folder, text = make_chat_model(family), "The soup was cold."
    tokenizer = AutoTokenizer.from_pretrained(folder)
    system = {"role": "system", "content": get_template("chat").system}
    ids = tokenizer.apply_chat_template(
        [system, {"role": "user", "content": f"{text}\n\n{QUESTION}"}],
        add_generation_prompt=True,
        enable_thinking=False,
        return_dict=False,
    )
    model = AutoModelForCausalLM.from_pretrained(folder).eval()
    with torch.inference_mode():
        states = model(torch.tensor([ids]), output_hidden_states=True).hidden_states[-1][0, -1]
    assert_close(InBedder(folder, template="chat").encode(text, QUESTION), states.numpy(), 1e-4)


@pytest.mark.parametrize("family", BASES)
def test_a_batch_and_a_shared_prefix_give_what_single_prompts_give(make_chat_model, family):
    model = InBedder(make_chat_model(family), template="chat")
    texts = [*TEXTS, "", "<|im_end|> <end_of_turn> ### Instruction:\n", "\n\n padded \n"]
    single = np.stack([[model.encode(text, one) for text in texts] for one in INSTRUCTIONS])
    assert_close(np.stack([model.encode(texts, one, batch_size=4) for one in INSTRUCTIONS]), single, 1e-4)
    assert_close(model.encode_many(texts, INSTRUCTIONS, batch_size=4), single, 1e-4)
    remembering = model.replace(text_memory="10M")
    for _ in range(2):
        assert_close(np.stack([remembering.encode(texts, one) for one in INSTRUCTIONS]), single, 1e-4)


def test_answers_follow_the_generation_prompt(make_chat_model):
    model = InBedder(make_chat_model("qwen3"), template="chat")
    assert model.prompt("text", QUESTION).endswith(
        f"text\n\n{QUESTION}<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
    )
    assert model.answer(TEXTS, QUESTION) == [model.answer([text], QUESTION)[0] for text in TEXTS]


def test_a_stored_spec_loads_the_same_chat(make_chat_model):
    model = InBedder(make_chat_model("phi-4"), template="chat")
    spec = VectorSpec.from_json(model.spec.to_json())
    loaded = spec.load(InBedder)
    assert loaded.spec == spec == model.spec
    assert loaded.template == model.template
    assert loaded.replace(template="compact").replace(template="chat").spec == spec


def test_the_chat_fields_are_part_of_no_other_key(make_chat_model):
    contents = InBedder(make_chat_model("phi-4"), template="compact").spec.contents()["encoding"]["template"]
    assert not {"system", "opening", "closing", "strips"} & contents.keys()


def test_another_chat_template_in_the_same_folder_is_another_spec(make_chat_model, tmp_path):
    folder = write_chat_model(make_chat_model("phi-4"), tmp_path / "copy", "phi-4")
    path = tmp_path / "copy" / "chat_template.jinja"
    before = InBedder(folder, template="chat").spec
    path.write_text(path.read_text().replace("assistant", "helper"))
    assert "template closing" in " ".join(before.differences(InBedder(folder, template="chat").spec))


def test_an_export_keeps_the_tokenizers_chat_template(make_chat_model, tmp_path):
    model = InBedder(make_chat_model("qwen3"), template="chat")
    model.save_sentence_transformer(tmp_path / "out")
    (settings,) = (tmp_path / "out").rglob("inbedder.json")
    assert json.loads(settings.read_text())["template"] == "chat"
    exported = InBedder(settings.parent)
    assert exported.template == model.template
    assert_close(exported.encode(TEXTS, QUESTION), model.encode(TEXTS, QUESTION))


def test_another_template_is_warned_of_once_per_model(make_chat_model, caplog):
    for _ in range(2):
        InBedder(make_chat_model("qwen3"), template="compact").replace(template="inbedder")
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert "has a chat template, and its prompts use the template 'compact'" in record.getMessage()
    InBedder(make_chat_model("phi-4"), template="inbedder")
    assert len(caplog.records) == 2


def test_an_untrained_model_with_a_chat_template_is_read_as_a_chat(make_chat_model, caplog):
    folder = make_chat_model("qwen3")
    model = InBedder(folder)
    assert model.spec.key() == InBedder(folder, template="chat").spec.key()
    assert model.template.closing and not caplog.records


def test_an_unusable_chat_template_leaves_the_default_and_says_so(make_model, tmp_path, caplog):
    folder = write_chat_model(make_model("opt"), tmp_path / "twice", "qwen3")
    (tmp_path / "twice" / "chat_template.jinja").write_text("{{ messages[-1]['content'] }}{{ messages[-1]['content'] }}")
    assert InBedder(folder).template.name == "inbedder"
    (record,) = caplog.records
    assert "does not hold the user message once" in record.getMessage()
    with pytest.raises(TemplateError, match="does not hold the user message once"):
        InBedder(folder, template="chat")


def test_no_warning_for_chats_trained_and_plain_models(make_chat_model, make_model, tmp_path, caplog):
    trained = write_chat_model(make_model("opt"), tmp_path / "trained", "qwen3")
    (tmp_path / "trained" / "inbedder.json").write_text('{"template": "compact"}')
    assert InBedder(trained).template.name == "compact"
    InBedder(make_chat_model("qwen3"), template="chat")
    InBedder(make_model("opt"))
    assert not caplog.records


def test_a_model_that_was_trained_as_a_chat_is_read_as_one(make_model, tmp_path):
    folder = write_chat_model(make_model("opt"), tmp_path / "trained", "qwen3")
    (tmp_path / "trained" / "inbedder.json").write_text('{"template": "chat"}')
    assert InBedder(folder).spec.key() == InBedder(folder, template="chat").spec.key()


def test_a_model_that_cannot_chat_is_named(make_model):
    with pytest.raises(TemplateError, match=r"has no chat template, which template='chat' needs"):
        InBedder(make_model("opt"), template="chat")
    with pytest.raises(InputError, match=r"template='chat' is for causal LMs, and .* is a masked model"):
        InBedder(make_model("bert"), template="chat")
