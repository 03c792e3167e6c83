"""Backbones: language models that embed prompts and answer them, by one protocol."""
