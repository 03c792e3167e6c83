"""From prompts to vectors: batches, the cache, and the combination of pooled states."""
