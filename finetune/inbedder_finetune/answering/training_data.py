"""Training data of a run: examples with the targets of the objectives, and their collator."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from inbedder.backbones.transformer import get_pad_id
from inbedder.backbones.weights import LoadedModel
from inbedder_finetune.answering.example_cache import load_examples
from inbedder_finetune.answering.examples import Collator
from inbedder_finetune.answering.language_filter import filter_languages
from inbedder_finetune.answering.plan import Plan
from inbedder_finetune.answering.trainable_families import FAMILIES
from inbedder_finetune.answering.training_row import Row

if TYPE_CHECKING:
    from datasets import Dataset


@dataclass(frozen=True)
class TrainingData:
    """Examples of a run, and their collator."""

    train: Dataset
    """Training examples."""
    held_out: Dataset | None
    """Held-out examples, whose loss is evaluated."""
    collator: Collator
    """Collator of both, which adds the targets."""


def make_training_data(loaded: LoadedModel, rows: Sequence[Row], held_out: Sequence[Row], plan: Plan) -> TrainingData:
    """Tokenize rows and compute the targets of the vector objectives.

    Args:
        loaded: The model to train.
        rows: Training rows.
        held_out: Held-out rows; may be empty.
        plan: Format, objectives and cache.

    Returns:
        The examples and their collator.
    """
    splits = [split for split in (rows, held_out) if split]
    datasets = [load_examples(loaded.kind, loaded.tokenizer, split, plan.answer_format, plan.data.cache) for split in splits]
    width = _get_state_width(loaded.model.config)
    targets = {objective.name: objective.make_targets(splits, width, plan.data.cache) for objective in plan.vector_objectives}
    for name, (_, indices) in targets.items():
        first = 0
        for number, split in enumerate(splits):
            column = list(indices[first : first + len(split)])
            datasets[number] = datasets[number].add_column(f"{name}_index", column).with_format("numpy")
            first += len(split)
    tokenizer, side = loaded.tokenizer, FAMILIES[loaded.kind].padding
    vectors = {name: filter_languages(loaded.model, target.vectors) for name, target in targets.items()}
    mask_id = tokenizer.mask_token_id if loaded.kind == "masked" else None  # a decoder's tokenizer may have a mask token too
    collator = Collator(get_pad_id(tokenizer), vectors, side, mask_id)
    return TrainingData(datasets[0], datasets[1] if held_out else None, collator)


def _get_state_width(config: Any) -> int:
    """Get the width of the last layer's states; OPT-350m projects them to narrower embeddings."""
    return int(getattr(config, "word_embed_proj_dim", None) or config.hidden_size)
