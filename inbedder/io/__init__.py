"""Files: atomic writes, tables in, tables and vectors out."""
