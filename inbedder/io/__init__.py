"""Input and output: atomic writes, readers of tables, writers of tables and vectors."""
