"""The command line."""

from inbedder.cli.app import app, main

__all__ = ["app", "main"]
