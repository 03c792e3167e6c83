"""Comparison of questions and their wordings."""
