import subprocess
import sys
from dataclasses import fields
from inspect import signature

import numpy as np
import pytest
import torch

from inbedder import InBedder
from inbedder.errors import InputError
from inbedder.options import EncodingOptions, ModelOptions, Options, Reencoding, get_option_info, list_options


def test_the_options_are_free_of_torch():
    code = "import sys, inbedder.options; sys.exit('torch' in sys.modules or 'numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_the_signature_of_a_model_has_every_option_with_its_default():
    parameters = list(signature(InBedder).parameters.values())
    assert [parameter.name for parameter in parameters] == [option.name for option in list_options()]
    assert [parameter.default for parameter in parameters] == [option.default for option in list_options()]


def test_every_option_has_a_help_that_ends_a_sentence():
    for option in [*list_options(), *fields(Reencoding)]:
        assert len(get_option_info(option).help) > 15 and get_option_info(option).help.endswith("."), option.name


def test_defaults_pass_their_own_checks():
    assert Options.parse() == Options(ModelOptions(), EncodingOptions())
    assert Options.parse().get_changed_options() == {}


def test_values_are_normalized():
    options = Options.parse(device=torch.device("cpu"), dtype=torch.bfloat16, layer=np.int64(2), filter_words=["a"])
    assert options.get_changed_options() == {"device": "cpu", "dtype": "bfloat16", "layer": 2, "filter_words": ("a",)}
    assert Options.parse(dtype=np.float32).model.dtype == "float32"
    assert Options.parse(seed=7) == Options.parse()  # a greedy answer has no seed


def test_an_unknown_option_is_refused_with_a_list_of_options():
    with pytest.raises(InputError, match=r"There is no option 'poling'. InBedder takes: 'backbone'"):
        Options.parse(poling="avg-gen")


@pytest.mark.parametrize(
    "options",
    [
        {"max_length": 0},
        {"layer": 1.5},
        {"truncation_side": "middle"},
        {"temperature": -1},
        {"top_p": 0},
        {"seed": -1},
        {"reencoding": 3},
        {"filter_words": "the"},
        {"normalize_embeddings": 1},
        {"cache_size": "5G"},
        {"model": None},
        {"model": 3},
        {"backbone": 3},
        {"trust_remote_code": "yes"},
        {"dtype": "int4"},
        {"backbone": "onnx", "dtype": "float32"},
    ],
    ids=str,
)
def test_a_bad_value_is_an_input_error(options):
    with pytest.raises(InputError):
        Options.parse(**options)
