"""Search: one index of generic vectors, reranked under any instruction."""

from inbedder.search.index import Index

__all__ = ["Index"]
