"""Fine-tuning a language model to answer in a few content words (InBedder paper, section 4.4).

Causal LMs: cross-entropy of the answer and the end token. Masked LMs: cross-entropy of the answer's tokens at the masks,
plus, where the recipe weighs it, InfoNCE between v_i, the mean hidden state of the masks, and a frozen re-encoder's
vector e_i of the answer::

    L = token_weight * CE + reencode_weight * mean_i -log( exp(cos(v_i, e_i)/t) / sum_j exp(cos(v_i, e_j)/t) )

where j runs over the answers of the batch that differ from answer i, and i itself. The second term trains the pooled
vector towards what re-encoding the answer (paper, section 4.1) would give.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from finetune.data import Row, load_rows
from finetune.examples import IGNORED, Collator, Example, causal_examples, masked_examples
from finetune.recipe import Recipe
from inbedder.backbones.base import body_of, pad_id_of, position_limit, tapped
from inbedder.backbones.loading import SETTINGS_FILE, Loaded, LoadOptions, load_model
from inbedder.backbones.masked import head_sees_only
from inbedder.errors import MissingExtraError, RecipeError
from inbedder.models.bundled import resolve_base
from inbedder.pooling import masked_mean

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase, TrainingArguments

logger = logging.getLogger(__name__)


def info_nce(vectors: Tensor, targets: Tensor, answers: Tensor, temperature: float) -> Tensor:
    """InfoNCE of each vector to its own target among the targets of other answers.

    Args:
        vectors: v, shape (batch, d).
        targets: e, shape (batch, d).
        answers: Ids of the answers, shape (batch,); equal ids are the same answer and never each other's negative.
        temperature: t.

    Returns:
        The mean loss, a scalar.
    """
    similarity = F.normalize(vectors.float(), dim=-1) @ F.normalize(targets.float(), dim=-1).T / temperature
    same = answers.unsqueeze(0) == answers.unsqueeze(1)
    same.fill_diagonal_(False)
    return F.cross_entropy(similarity.masked_fill(same, float("-inf")), torch.arange(len(vectors), device=vectors.device))


def masked_loss(model: PreTrainedModel, batch: dict[str, Tensor], recipe: Recipe, mask_id: int) -> Tensor:
    """Loss of a batch of masked examples, with logits at the masks alone.

    Args:
        model: A masked LM.
        batch: input_ids, attention_mask, targets; answer and vector where the recipe re-encodes.
        recipe: The objective.
        mask_id: The mask token.

    Returns:
        A scalar.
    """
    is_mask = batch["input_ids"] == mask_id
    body = body_of(model)
    inputs = {"input_ids": batch["input_ids"], "attention_mask": batch["attention_mask"]}
    carries = batch["targets"] != IGNORED
    layers = model.config.num_hidden_layers
    if bool(carries.all()):
        with tapped(body, layers, layers) as states, head_sees_only(body, is_mask):
            logits = model(**inputs).logits
        loss = F.cross_entropy(logits.flatten(0, 1).float(), batch["targets"].flatten())
    else:
        with tapped(body, layers, layers) as states:
            logits = model(**inputs).logits[is_mask]
        loss = F.cross_entropy(logits.float(), batch["targets"][carries])
    loss = recipe.objective.token_weight * loss
    if "vector" in batch:
        pooled = masked_mean(states[0], is_mask)
        contrast = info_nce(pooled, batch["vector"], batch["answer"], recipe.objective.temperature)
        loss = loss + recipe.objective.reencode_weight * contrast
    return loss


def add_answer_vectors(examples: list[Example], rows: Sequence[Row], reencoder: str) -> None:
    """Give each example the id of its answer and the frozen re-encoder's vector of it.

    Args:
        examples: One a row; changed in place.
        rows: What is learned.
        reencoder: A sentence-transformers model.

    Raises:
        MissingExtraError: When sentence-transformers is not installed.
    """
    try:
        from sentence_transformers import SentenceTransformer
    except ImportError as error:
        raise MissingExtraError("sentence-transformers", "finetune") from error
    ids: dict[str, int] = {}
    numbers = [ids.setdefault(row.answer.lower(), len(ids)) for row in rows]
    encoder = SentenceTransformer(resolve_base(reencoder))
    vectors = encoder.encode(list(ids), batch_size=256, normalize_embeddings=True, show_progress_bar=True)
    vectors = np.asarray(vectors, dtype=np.float16)
    for example, number in zip(examples, numbers, strict=True):
        example["answer"] = number
        example["vector"] = vectors[number]


def _add_lora(model: PreTrainedModel, recipe: Recipe) -> Any:
    assert recipe.lora is not None
    try:
        from peft import LoraConfig, get_peft_model
    except ImportError as error:
        raise MissingExtraError("peft", "finetune") from error
    targets = recipe.lora.target_modules
    config = LoraConfig(
        r=recipe.lora.r,
        lora_alpha=recipe.lora.alpha,
        lora_dropout=recipe.lora.dropout,
        target_modules=list(targets) if isinstance(targets, tuple) else targets,
        modules_to_save=list(recipe.lora.modules_to_save) or None,
    )
    return get_peft_model(model, config)


def _prepare(model: PreTrainedModel, recipe: Recipe) -> Any:
    """Set dropout and attention, and add the adapter that the recipe asks for."""
    if recipe.training.attention:
        model.set_attn_implementation(recipe.training.attention)
    if recipe.training.dropout is not None:
        for module in model.modules():
            if isinstance(module, nn.Dropout):
                module.p = recipe.training.dropout
    return _add_lora(model, recipe) if recipe.lora else model


def _training_arguments(recipe: Recipe) -> TrainingArguments:
    from transformers import TrainingArguments

    training = recipe.training
    return TrainingArguments(
        output_dir=training.output,
        num_train_epochs=training.epochs,
        max_steps=training.max_steps,
        per_device_train_batch_size=training.batch_size,
        learning_rate=training.learning_rate,
        warmup_steps=training.warmup,
        lr_scheduler_type=training.scheduler,
        weight_decay=training.weight_decay,
        bf16=training.bf16,
        use_cpu=not torch.cuda.is_available(),
        save_steps=training.save_steps,
        save_total_limit=2,
        logging_steps=training.log_steps,
        seed=training.seed,
        train_sampling_strategy="group_by_length",
        remove_unused_columns=False,
        dataloader_pin_memory=torch.cuda.is_available(),
        report_to="none",
    )


def _make_trainer(
    model: nn.Module, tokenizer: PreTrainedTokenizerBase, examples: list[Example], recipe: Recipe, kind: str
) -> Any:
    from transformers import Trainer

    class AnsweringTrainer(Trainer):
        """transformers' trainer with the loss of this module."""

        def compute_loss(self, model: Any, inputs: Any, return_outputs: bool = False, num_items_in_batch: Any = None) -> Any:
            """Loss of one batch, as the trainer asks for it."""
            plain = self.accelerator.unwrap_model(model)
            plain = plain.get_base_model() if hasattr(plain, "get_base_model") else plain
            if kind == "masked":
                return masked_loss(plain, inputs, recipe, tokenizer.mask_token_id)
            return model(**inputs).loss

    return AnsweringTrainer(
        model=model,
        args=_training_arguments(recipe),
        train_dataset=examples,
        data_collator=Collator(pad_id_of(tokenizer)),
        processing_class=tokenizer,
    )


def finetune(recipe: Recipe) -> Path:
    """Train as a recipe says, with checkpoints from which ``training.resume`` goes on exactly.

    Args:
        recipe: Model, data, objective and schedule.

    Returns:
        The folder of the result, which ``InBedder(folder)`` loads: safetensors weights or a peft adapter, the tokenizer,
        and ``inbedder.json`` with template and mask_length.

    Raises:
        RecipeError: When the model cannot be trained so, or the output holds another run's checkpoints.
    """
    from transformers import set_seed
    from transformers.trainer_utils import get_last_checkpoint

    output = Path(recipe.training.output)
    last = get_last_checkpoint(str(output)) if output.is_dir() else None
    if last and not recipe.training.resume:
        raise RecipeError(f"{output} holds checkpoints. Set training.resume=true to go on, or choose another training.output.")
    set_seed(recipe.training.seed)
    loaded = load_model(recipe.model, LoadOptions(dtype="float32"))
    _check_trainable(loaded, recipe)
    examples = _examples(loaded, recipe)
    trainer = _make_trainer(_prepare(loaded.model, recipe), loaded.tokenizer, examples, recipe, loaded.kind)
    trainer.train(resume_from_checkpoint=last)
    trainer.save_model(str(output))
    loaded.tokenizer.save_pretrained(output)
    if recipe.lora:
        _name_base(output, recipe.model)
    settings = {
        "base": recipe.model if recipe.lora else None,
        "template": recipe.template,
        "mask_length": recipe.mask_length if isinstance(recipe.mask_length, int) else None,
        "recipe": asdict(recipe),
    }
    (output / SETTINGS_FILE).write_text(json.dumps(settings, indent=1), encoding="utf-8")
    return output


def _name_base(adapter: Path, base: str) -> None:
    """Let the adapter name its base as the recipe does, not by the folder that it was read from."""
    path = adapter / "adapter_config.json"
    config = json.loads(path.read_text(encoding="utf-8")) | {"base_model_name_or_path": base}
    path.write_text(json.dumps(config, indent=1, sort_keys=True), encoding="utf-8")


def _check_trainable(loaded: Loaded, recipe: Recipe) -> None:
    """Refuse early what would only fail, or be lost, after hours."""
    if loaded.kind == "seq2seq":
        raise RecipeError("Encoder-decoder models cannot be fine-tuned yet; choose a causal or masked LM.")
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise RecipeError("Training with several processes is not supported yet; start one.")
    limit = position_limit(loaded.model)
    if limit is not None and recipe.max_length > limit:
        raise RecipeError(f"{recipe.model} takes at most {limit} tokens; set max_length={limit} or less.")
    if recipe.lora is None:
        return
    if loaded.adapter is not None:
        raise RecipeError(f"{recipe.model} is an adapter itself. Fine-tune its base, or train all weights (lora: null).")
    lost = [name for name in loaded.untrained if not any(f".{one}." in f".{name}" for one in recipe.lora.modules_to_save)]
    if lost:
        raise RecipeError(
            f"{recipe.model} has no trained {', '.join(lost)}, and LoRA would leave them random. Name the modules in "
            "lora.modules_to_save (for BERT-like models: transform)."
        )


def _examples(loaded: Loaded, recipe: Recipe) -> list[Example]:
    rows = load_rows(recipe.data, recipe.training.seed)
    logger.info("%d rows of %d sources", len(rows), len(recipe.data.sources))
    if loaded.kind == "causal":
        if loaded.tokenizer.eos_token_id is None:
            raise RecipeError(f"The tokenizer of {recipe.model} has no end token, so no answer could end.")
        return causal_examples(loaded.tokenizer, rows, recipe)
    examples = masked_examples(loaded.tokenizer, rows, recipe)
    if recipe.objective.reencode_weight:
        add_answer_vectors(examples, rows, recipe.objective.reencoder)
        size, width = len(examples[0]["vector"]), loaded.model.config.hidden_size
        if size != width:
            raise RecipeError(
                f"The re-encoder's vectors have {size} numbers, the model's {width}. Choose another objective.reencoder, "
                "or set objective.reencode_weight=0."
            )
    return examples
