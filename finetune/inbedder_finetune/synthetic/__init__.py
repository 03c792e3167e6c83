"""Composed training texts: opinions, requests, captions, abstracts, titles."""
