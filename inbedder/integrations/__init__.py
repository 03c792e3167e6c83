"""One thin file per other package whose pipelines gain the instruction."""
