"""Prompted language models: few-shot ratings and in-context examples."""
