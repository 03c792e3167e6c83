"""MTEB's benchmark, tasks and results."""
