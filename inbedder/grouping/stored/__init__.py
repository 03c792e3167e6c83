"""Groups by hand and on disk: edits, centres, files."""
