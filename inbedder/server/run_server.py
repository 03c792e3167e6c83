"""Run a server: bind its address, load its models, and serve until a signal."""

from __future__ import annotations

import signal
import socket
import warnings
from collections.abc import Callable

import uvicorn

from inbedder.embedder import InBedder
from inbedder.errors import InputError, TextCutWarning, format_value
from inbedder.server.app import make_app
from inbedder.server.settings import Settings


def serve(settings: Settings, on_listening: Callable[[str], None] = lambda address: None) -> None:
    """Load the models and serve until Ctrl-C or SIGTERM, which let accepted requests finish.

    Args:
        settings: The server's settings; a wrong key or address is reported before a model is loaded.
        on_listening: Called with the address when the server listens.

    Raises:
        InputError: When a setting cannot be used, or the address is in use.
        ModelError: When a model cannot be loaded.
    """
    settings.read_key()
    listener = _bind_address(settings.host, settings.port)
    warnings.simplefilter("ignore", TextCutWarning)  # requests control this with truncate
    models = {name: InBedder(path, **settings.get_model_options()) for name, path in settings.named_models.items()}
    config = uvicorn.Config(
        make_app(models, settings),
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=settings.grace,
    )
    host, port = listener.getsockname()[:2]
    address = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
    server = _Server(config, lambda: on_listening(address))
    previous_handlers = {number: signal.signal(number, server.handle_exit) for number in (signal.SIGINT, signal.SIGTERM)}
    try:  # uvicorn raises the signals that it received again at its end
        server.run(sockets=[listener])
    finally:
        for number, handler in previous_handlers.items():
            signal.signal(number, handler)


class _Server(uvicorn.Server):
    """A server that reports when it listens."""

    def __init__(self, config: uvicorn.Config, on_listening: Callable[[], None]) -> None:
        super().__init__(config)
        self._on_listening = on_listening

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if not self.should_exit:
            self._on_listening()


def _bind_address(host: str, port: int) -> socket.socket:
    """Bind the address now, so that an address in use is reported before a model is loaded."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host.strip("[]"), port))
    except OSError as error:
        listener.close()
        raise InputError(
            f"Cannot listen at {format_value(host)}, port {port} ({error.strerror}). Choose another --port."
        ) from error
    return listener
