"""Vectors: arrays, poolings, precisions."""
