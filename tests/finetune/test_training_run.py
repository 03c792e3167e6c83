import pytest
import torch
from transformers import AutoModelForCausalLM

from finetune.recipe import Lora
from finetune.training_run import last_checkpoint, lora_config, with_adapters
from inbedder.errors import RecipeError


def test_a_checkpoint_that_was_cut_short_is_passed_over(tmp_path):
    assert last_checkpoint(tmp_path / "none") is None
    for step, state in ((2, "{}"), (10, "{}"), (20, "{"), (30, None)):
        (tmp_path / f"checkpoint-{step}").mkdir()
        if state is not None:
            (tmp_path / f"checkpoint-{step}" / "trainer_state.json").write_text(state)
    assert last_checkpoint(tmp_path) == str(tmp_path / "checkpoint-10")


def test_adapters_are_as_the_recipe_says():
    config = lora_config(Lora(r=4, alpha=8, target_modules=("query",)))
    assert (config.r, config.lora_alpha, config.target_modules, config.modules_to_save) == (4, 8, {"query"}, None)


def test_adapters_go_on_from_those_of_an_earlier_stretch(make_model, tmp_path):
    config = lora_config(Lora(r=4, alpha=8))
    first = with_adapters(AutoModelForCausalLM.from_pretrained(make_model("llama")), config)
    torch.nn.init.ones_(next(weight for name, weight in first.named_parameters() if ".lora_B." in name))
    first.save_pretrained(tmp_path / "first")
    second = with_adapters(AutoModelForCausalLM.from_pretrained(make_model("llama")), config, str(tmp_path / "first"))
    for name, weight in first.named_parameters():
        assert torch.equal(weight, second.get_parameter(name)), name


@pytest.mark.parametrize(
    ("lora", "message"),
    [(Lora(r=8, alpha=8), "r and alpha are 4 and 8 there"), (Lora(r=4, alpha=8, target_modules=("q_proj",)), "it has ")],
)
def test_an_adapter_of_another_shape_is_no_start(make_model, tmp_path, lora, message):
    base = make_model("llama")
    with_adapters(AutoModelForCausalLM.from_pretrained(base), lora_config(Lora(r=4, alpha=8))).save_pretrained(tmp_path)
    with pytest.raises(RecipeError, match=message):
        with_adapters(AutoModelForCausalLM.from_pretrained(base), lora_config(lora), str(tmp_path))
    with pytest.raises(RecipeError, match="is no adapter of this recipe's shape"):
        with_adapters(AutoModelForCausalLM.from_pretrained(base), lora_config(lora), str(tmp_path / "none"))
