"""Fine-tuning of language models to answer in a few content words (InBedder)."""
