"""Comparisons of poolings, layers, precisions, instructions and models."""
