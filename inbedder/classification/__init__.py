"""Classification of texts into categories that the user names, without training."""
