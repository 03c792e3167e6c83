"""The command-line interface."""

from inbedder.cli.app import app, main

__all__ = ["app", "main"]
