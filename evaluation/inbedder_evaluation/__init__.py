"""Measuring how well embedders follow instructions."""
