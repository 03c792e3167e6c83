"""Contrastive training of an instructed encoder (INSTRUCTOR)."""

from finetune.contrastive.training import finetune, parse_recipe, preview, training_pairs

__all__ = ["finetune", "parse_recipe", "preview", "training_pairs"]
