from pathlib import Path

import pytest
import yaml

from inbedder.conditional.config import Encoding
from inbedder.errors import InbedderError, RecipeError
from inbedder_finetune.conditional import train_conditional as conditional_training
from inbedder_finetune.conditional.conditional_recipe import parse_recipe
from inbedder_finetune.recipe import read_settings
from inbedder_finetune.registry import read_method

RECIPES = Path(__file__).parents[3] / "finetune" / "recipes" / "csts"


@pytest.mark.parametrize("kind", ["cross", "bi", "tri"])
def test_shipped_recipes_name_the_method_conditional(kind):
    method, recipe = read_method(RECIPES / f"csts-{kind}.yaml", ["training.seed=2"])
    assert method is conditional_training
    assert (recipe.encoding.kind, recipe.training.seed, recipe.encoding.scaled) == (kind, 2, (0, 1))
    assert recipe.training.warmup == 0.1 and recipe.training.scheduler == "linear" and recipe.training.max_grad_norm == 1


BASES = {
    "roberta": "FacebookAI/roberta-base",
    "roberta-large": "FacebookAI/roberta-large",
    "diffcse": "voidism/diffcse-roberta-base-sts",
    "simcse": "princeton-nlp/sup-simcse-roberta-base",
    "simcse-large": "princeton-nlp/sup-simcse-roberta-large",
}
TABLE_8 = {
    "cross-roberta": (3e-5, 0.1, True, "mse", "hadamard"),
    "bi-roberta": (3e-5, 0.1, True, "mse", "hadamard"),
    "tri-roberta": (3e-5, 0.0, False, "quad+mse", "mlp"),
    "cross-roberta-large": (1e-5, 0.1, True, "mse", "hadamard"),
    "bi-roberta-large": (1e-5, 0.1, True, "quad+mse", "hadamard"),
    "tri-roberta-large": (1e-5, 0.0, True, "mse", "hadamard"),
    "cross-diffcse": (3e-5, 0.1, False, "mse", "hadamard"),
    "bi-diffcse": (3e-5, 0.0, False, "mse", "hadamard"),
    "tri-diffcse": (3e-5, 0.1, False, "quad+mse", "hadamard"),
    "cross-simcse": (3e-5, 0.1, True, "mse", "hadamard"),
    "bi-simcse": (3e-5, 0.1, False, "mse", "hadamard"),
    "tri-simcse": (3e-5, 0.1, False, "quad+mse", "hadamard"),
    "cross-simcse-large": (1e-5, 0.1, True, "mse", "hadamard"),
    "bi-simcse-large": (1e-5, 0.1, False, "mse", "hadamard"),
    "tri-simcse-large": (1e-5, 0.0, True, "mse", "hadamard"),
}
"""Learning rate, weight decay, transform, objective and operation of the tri-encoder."""
TABLE_9 = {
    "stsb-cross-roberta": (3e-5, True),
    "stsb-bi-roberta": (3e-5, False),
    "stsb-cross-diffcse": (3e-5, False),
    "stsb-bi-diffcse": (3e-5, False),
    "stsb-cross-roberta-large": (3e-5, True),
    "stsb-bi-roberta-large": (3e-5, False),
    "stsb-cross-simcse": (3e-5, True),
    "stsb-bi-simcse": (3e-5, False),
    "stsb-cross-simcse-large": (3e-5, True),
    "stsb-bi-simcse-large": (1e-5, False),
}
"""Learning rate and transform; the objective is MSE."""


def test_the_papers_recipes_are_the_rows_of_its_tables():
    assert yaml.safe_load((RECIPES / "csts-paper.yaml").read_text())["variants"].keys() == TABLE_8.keys() | TABLE_9.keys()
    assert read_settings("csts-paper")["model"] == BASES["simcse-large"]
    with pytest.raises(RecipeError, match=r"csts-paper.yaml has no variant 'tri-opt'. Choose one of: cross-roberta, "):
        read_settings("csts-paper", ["variant=tri-opt"])


@pytest.mark.parametrize("name", [*TABLE_8, *TABLE_9])
def test_the_papers_recipes_have_the_settings_of_its_tables(name):
    _, recipe = read_method("csts-paper", [f"variant={name}"])
    is_stsb = name in TABLE_9
    rate, transform = TABLE_9[name] if is_stsb else (TABLE_8[name][0], TABLE_8[name][2])
    decay, _, loss, combine = (0.1, None, "mse", "hadamard") if is_stsb else TABLE_8[name][1:]
    kind, _, base = name.removeprefix("stsb-").partition("-")
    reads = "sentences" if is_stsb else "all"
    settings = {"pooler": "cls", "input": "pair", "max_length": 512, "combine": combine, "reads": reads}
    assert recipe.encoding == Encoding(kind=kind, transform=transform, **settings)
    assert (recipe.model, recipe.objective.loss, recipe.objective.margin) == (BASES[base], loss, 1)
    training = recipe.training
    assert (training.epochs, training.batch_size, training.learning_rate, training.weight_decay) == (3, 32, rate, decay)
    assert (training.warmup, training.scheduler, training.seed, training.head_learning_rate) == (0.1, "linear", 42, None)
    assert (training.max_grad_norm, training.output) == (0, f"runs/csts-paper-{name}")


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
        ({"training": {"batch_size": 7}, "objective": {"loss": "quad+mse"}}, "training.batch_size=7 must be even for Quad"),
        ({"training": {"max_grad_norm": -1}}, "training.max_grad_norm must be greater than or equal to 0"),
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
