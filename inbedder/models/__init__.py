"""The bundled models, and how their bases are found or installed."""
