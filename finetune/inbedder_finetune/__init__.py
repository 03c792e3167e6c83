"""Training: recipes in, checkpoints out that answer in a few content words."""
