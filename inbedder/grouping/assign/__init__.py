"""Assignment of new texts to saved groups."""
