"""Training encoders of conditional similarity (C-STS); ``inbedder.conditional`` holds the encoders themselves."""

from inbedder.conditional import ConditionalEncoder

__all__ = ["ConditionalEncoder"]
