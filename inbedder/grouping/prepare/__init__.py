"""Vectors before their partition: the mean over wordings, directions removed, texts without an answer found."""
