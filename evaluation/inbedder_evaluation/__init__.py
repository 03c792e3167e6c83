"""Evaluation of how well embedders follow instructions."""
