"""Conditional similarity: how similar two sentences are under a condition (C-STS)."""

from inbedder.conditional.encoder import ConditionalEncoder

__all__ = ["ConditionalEncoder"]
