"""The page that shows groupings."""
