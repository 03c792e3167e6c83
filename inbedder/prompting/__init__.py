"""Prompt templates, tokenization, batching and stopwords."""
