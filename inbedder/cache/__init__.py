"""The cache on disk: the store, its database file, its size limit and its checks."""
