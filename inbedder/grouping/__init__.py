"""Clustering texts under an instruction: groups, their names, reports and saved groupings."""
