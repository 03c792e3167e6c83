"""The HTTP server: the OpenAI embeddings protocol with an instruction, reranking, answers and groups."""
