"""Contrastive training of an instructed encoder (INSTRUCTOR)."""

from inbedder_finetune.contrastive.train_contrastive import finetune, parse_recipe, preview, training_pairs

__all__ = ["finetune", "parse_recipe", "preview", "training_pairs"]
