"""The cache on disk: store, database file, size limit and integrity checks."""
