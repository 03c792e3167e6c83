from finetune.recipe import Lora
from finetune.training_run import last_checkpoint, lora_config


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
