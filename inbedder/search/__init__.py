"""Search: one index of generic vectors, reranked by what is asked."""

from inbedder.search.index import Index

__all__ = ["Index"]
