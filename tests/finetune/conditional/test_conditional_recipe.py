from pathlib import Path

import pytest

from inbedder.conditional.config import Encoding
from inbedder.errors import InbedderError
from inbedder_finetune.conditional import train_conditional as conditional_training
from inbedder_finetune.conditional.conditional_recipe import parse_recipe
from inbedder_finetune.registry import read_method

RECIPES = Path(__file__).parents[3] / "finetune" / "recipes"


@pytest.mark.parametrize("kind", ["cross", "bi", "tri"])
def test_shipped_recipes_name_the_method_conditional(kind):
    method, recipe = read_method(RECIPES / f"csts-{kind}.yaml", ["training.seed=2"])
    assert method is conditional_training
    assert (recipe.encoding.kind, recipe.training.seed, recipe.encoding.scaled) == (kind, 2, (0, 1))
    assert recipe.training.warmup == 0.1 and recipe.training.scheduler == "linear" and recipe.training.max_grad_norm == 1


@pytest.mark.parametrize(
    ("kind", "encoding", "decay"),
    [
        ("cross", {"pooler": "cls", "transform": True}, 0.1),
        ("bi", {"pooler": "cls", "transform": False, "input": "pair"}, 0.1),
        ("tri", {"pooler": "cls", "transform": True, "combine": "hadamard"}, 0.0),
    ],
)
def test_the_papers_recipes_have_the_settings_of_its_tables(kind, encoding, decay):
    _, recipe = read_method(RECIPES / f"csts-paper-{kind}.yaml")
    assert recipe.encoding == Encoding(kind=kind, max_length=512, **encoding)
    training = recipe.training
    assert (training.epochs, training.batch_size, training.learning_rate, training.weight_decay) == (3, 32, 1e-5, decay)
    assert (training.warmup, training.scheduler, training.seed, training.head_learning_rate) == (0.1, "linear", 42, None)
    assert recipe.objective.loss == "mse" and recipe.model == "princeton-nlp/sup-simcse-roberta-large"
    _, mean = read_method(RECIPES / f"csts-paper-{kind}.yaml", ["encoding.pooler=avg"])
    assert mean.encoding.pooler == "avg"


def test_only_the_bi_encoder_with_mean_pooling_is_plain():
    plain = [
        parse_recipe({"encoding": encoding}).encoding.is_plain
        for encoding in (
            {},
            {"transform": True},
            {"pooler": "cls"},
            {"kind": "tri"},
            {"kind": "cross"},
            {"reads": "sentences"},
            {"input": "pair"},
        )
    ]
    assert plain == [True] + [False] * 6


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"encoding": {"kind": "quad"}}, "encoding.kind is 'quad'; choose one of: cross, bi or tri"),
        ({"encoding": {"pooler": "max"}}, "encoding.pooler is 'max'; choose one of: cls, cls_before_pooler, avg, mean,"),
        ({"encoding": {"input": "join"}}, "encoding.input is 'join'; choose one of: template or pair"),
        ({"data": {"development_pairs": 5}}, "data.development_pairs=5 and data.validation=.* set data.validation=null"),
        ({"encoding": {"combine": "sum"}}, "encoding.combine is 'sum'"),
        ({"objective": {"loss": "triplet"}}, "objective.loss is 'triplet'; choose one of: mse, quad or quad.mse"),
        (
            {"objective": {"loss": "quad"}, "encoding": {"kind": "cross"}},
            "needs the vectors of both sentences, which a cross-encoder",
        ),
        ({"encoding": {"reads": "condition"}}, "encoding.reads=condition is not an ablation of the bi-encoder"),
        ({"encoding": {"reads": "sentences", "kind": "tri"}}, "encoding.reads=sentences is not an ablation of the tri-encoder"),
        ({"encoding": {"reads": "sentences"}, "objective": {"loss": "quad"}}, "Quad cannot be computed"),
        ({"encoding": {"scaled": [1, 0]}}, "encoding.scaled must be two numbers, the lower first"),
        ({"encoding": {"scaled": ["a", "b"]}}, "encoding.scaled.0 must be a valid number"),
        ({"training": {"batch_size": 7}}, "training.batch_size=7 must be even"),
        ({"training": {"max_grad_norm": 0}}, "training.max_grad_norm must be greater than 0"),
        ({"training": {"head_learning_rate": 0}}, "training.head_learning_rate must be greater than 0"),
        ({"objective": {"margin": -1}}, "objective.margin must be greater than or equal to 0"),
        ({"objective": {"quad_weight": 0, "mse_weight": 0}}, "above 0; otherwise there is no loss"),
        ({"training": {"lr": 1}}, "training has no setting lr"),
        ({"encoding": {"template": "{input}"}}, "must hold {input} and {instruction} exactly once each"),
        ({"lora": 8}, "lora must be a table"),
    ],
)
def test_a_wrong_setting_is_named(values, message):
    with pytest.raises(InbedderError, match=message):
        parse_recipe(values)
