"""From text and instruction to token ids: templates, tokenization, batches, stopwords."""
