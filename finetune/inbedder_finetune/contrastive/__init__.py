"""Contrastive training of encoders with instructions (INSTRUCTOR)."""

from inbedder_finetune.contrastive.train_contrastive import finetune, load_training_pairs, parse_recipe, preview

__all__ = ["finetune", "load_training_pairs", "parse_recipe", "preview"]
