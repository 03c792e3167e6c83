"""Adapters for other packages: one module each, named after the package."""
