"""The process: threads, timings, cancellation, the output of transformers, paths of the user and of package data."""
