"""From prompts to vectors: batches, the cache, what is subtracted, added and appended."""
