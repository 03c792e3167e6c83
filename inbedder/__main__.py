"""``python -m inbedder``, for launchers of several processes (torchrun, accelerate launch)."""

from inbedder.cli import main

main()
