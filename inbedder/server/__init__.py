"""The HTTP server: OpenAI's embeddings protocol with an instruction, reranking, answers and groups."""
