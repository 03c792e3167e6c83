"""Training of encoders for conditional similarity (C-STS); ``inbedder.conditional`` has the encoders."""

from inbedder.conditional import ConditionalEncoder

__all__ = ["ConditionalEncoder"]
