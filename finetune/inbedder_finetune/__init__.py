"""Fine-tuning: a recipe goes in, a checkpoint comes out."""
