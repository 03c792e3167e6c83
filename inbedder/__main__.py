"""``python -m inbedder``, for launchers that start several processes (torchrun, accelerate launch)."""

from inbedder.cli import main

main()
