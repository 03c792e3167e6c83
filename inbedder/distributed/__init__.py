"""Large jobs: embed a table into a folder of parquet parts with Ray Data, on one machine or many."""

from inbedder.distributed.job import JobResult, Machines, embed_job

__all__ = ["JobResult", "Machines", "embed_job"]
