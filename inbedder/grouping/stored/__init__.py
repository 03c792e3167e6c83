"""Saved groups: files, edits, assignment of new texts."""
