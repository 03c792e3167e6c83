"""Partition of vectors into groups: methods, number of groups, stability."""
