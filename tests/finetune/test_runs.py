from finetune.runs import last_checkpoint


def test_a_checkpoint_that_was_cut_short_is_passed_over(tmp_path):
    assert last_checkpoint(tmp_path / "none") is None
    for step, state in ((2, "{}"), (10, "{}"), (20, "{"), (30, None)):
        (tmp_path / f"checkpoint-{step}").mkdir()
        if state is not None:
            (tmp_path / f"checkpoint-{step}" / "trainer_state.json").write_text(state)
    assert last_checkpoint(tmp_path) == str(tmp_path / "checkpoint-10")
