from inbedder_evaluation.figures import shorten_names


def test_models_are_labelled_by_their_last_part_unless_two_share_it():
    assert shorten_names(["a/llama, re-enc", "b/opt"]) == {"a/llama, re-enc": "llama", "b/opt": "opt"}
    assert shorten_names(["a/llama, re-enc", "a/llama"]) == {"a/llama, re-enc": "a/llama\nre-enc", "a/llama": "a/llama"}
