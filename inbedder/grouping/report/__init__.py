"""The HTML report of groupings."""
