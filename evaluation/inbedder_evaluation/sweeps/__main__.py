"""Run the paper's sweeps."""

from inbedder.errors import InbedderError
from inbedder_evaluation.sweeps.paper import app

if __name__ == "__main__":
    try:
        app()
    except InbedderError as error:
        raise SystemExit(f"error: {error}") from error
