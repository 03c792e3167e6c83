"""Comparison of groups with columns and dates."""
