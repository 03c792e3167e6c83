"""Large jobs: a table in, a folder of parquet parts out, by Ray Data on one machine or many."""

from inbedder.distributed.job import JobResult, Machines, embed_job

__all__ = ["JobResult", "Machines", "embed_job"]
