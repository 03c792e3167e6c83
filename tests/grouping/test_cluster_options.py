import inspect
from dataclasses import fields

import pytest
from typer.testing import CliRunner

from inbedder import InBedder, cluster
from inbedder.cli import app
from inbedder.errors import InbedderError, InputError
from inbedder.grouping.cluster_options import ClusterKwargs, ClusterOptions
from inbedder.grouping.provenance import Provenance
from inbedder.server.schemas import ClustersRequest

NAMES = [option.name for option in fields(ClusterOptions)]


def test_every_option_is_in_signature_types_command_server_and_provenance(make_model):
    assert set(NAMES) <= inspect.signature(cluster).parameters.keys()
    assert [*ClusterKwargs.__annotations__] == [name for name in NAMES if name not in ("k", "seed")]
    assert set(NAMES) <= ClustersRequest.model_fields.keys()
    text = CliRunner().invoke(app, ["cluster", "--help-all"], env={"COLUMNS": "200"}).output
    assert all(f"--{name.replace('_', '-')}" in text for name in NAMES if name != "k")
    options = {
        "levels": (1, 2),
        "seed": 4,
        "method": "agglomerative",
        "namer": "words",
        "apart_from": "Is it late?",
        "no_answer": False,
    }
    result = cluster(["I love cats", "I love dogs", "It came late"], "What?", InBedder(make_model("bert")), **options)
    assert Provenance.from_dict(result.provenance.to_dict()).options == ClusterOptions(**options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"size": 2}, "There is no option 'size'. cluster takes: .*'min_size'"),
        ({"method": "birch"}, "Unknown method 'birch'. Choose one of: k-means, agglomerative, hdbscan"),
        ({"min_size": 5}, "k-means does not take min_size"),
        ({"method": "hdbscan", "min_size": 1}, "min_size"),
        ({"method": "hdbscan", "k": 3}, "hdbscan finds the number of groups itself"),
        ({"k": "many"}, "k must be 'auto' or a number, not 'many'"),
        ({"k": True}, "k"),
        ({"namer": "loud"}, "Unknown namer 'loud'"),
        ({"no_answer": 1}, "no_answer"),
        ({"seed": -1}, "seed"),
        ({"levels": "5"}, "levels must be numbers of branches and of groups, such as 5,20, not '5'"),
        ({"levels": (5, 2)}, "numbers of branches and of at least as many groups, not 5,2"),
        ({"levels": "two,three"}, "such as 5,20"),
        ({"levels": (2, 5), "k": 3}, "levels fixes the number of groups"),
        ({"levels": (2, 5), "method": "hdbscan"}, "levels fixes the number of groups"),
    ],
)
def test_an_option_that_cannot_be_is_refused(options, message):
    with pytest.raises(InbedderError, match=message):
        ClusterOptions.parse(**options)


@pytest.mark.parametrize("levels", ["2,5", "2, 5", (2, 5), [2, 5]])
def test_levels_are_two_numbers(levels):
    options = ClusterOptions(levels=levels)
    assert options.levels == (2, 5)
    assert options.count == 5
    assert ClusterOptions().count == "auto"


@pytest.mark.parametrize("options", [{"k": 0}, {"k": 4}, {"levels": (2, 4)}])
def test_a_number_that_the_texts_do_not_allow_is_refused(options):
    with pytest.raises(InputError, match=r"k must be 'auto' or a number from 1 to 3 \(the number of texts\)"):
        ClusterOptions(**options).check_count(3)


def test_methods_that_compare_all_pairs_take_twenty_thousand_texts():
    ClusterOptions(method="agglomerative").check_count(20_000)
    with pytest.raises(InputError, match=r"agglomerative compares all pairs of rows and takes at most 20,000 rows, not 20,001"):
        ClusterOptions(method="agglomerative").check_count(20_001)
