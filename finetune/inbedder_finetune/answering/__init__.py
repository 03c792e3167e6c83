"""Fine-tuning a language model to answer in a few content words (InBedder)."""
