"""Run a server: bind its address, load its models, and serve until a signal."""

from __future__ import annotations

import logging
import os
import signal
import socket
import threading
import warnings
from collections.abc import Callable

import uvicorn
from starlette.types import ASGIApp

from inbedder.embedder import InBedder
from inbedder.errors import InputError, TextCutWarning, format_value
from inbedder.server.app import make_app
from inbedder.server.http_protocol import HttpProtocol
from inbedder.server.settings import Settings

logger = logging.getLogger(__name__)

EXIT_SECONDS = 0.75
"""Seconds after the grace time in which cancelled requests get their response and models are closed."""


def serve(settings: Settings, on_listening: Callable[[str], None] = lambda address: None) -> None:
    """Load the models and serve until Ctrl-C or SIGTERM, which let accepted requests finish.

    Args:
        settings: The server's settings; a wrong key or address is reported before a model is loaded.
        on_listening: Called with the address when the server listens.

    Raises:
        InputError: If a setting cannot be used, or the address is in use.
        ModelError: If a model cannot be loaded.
    """
    settings.read_key()
    settings.warn_of_readable_key()
    listener = _bind_address(settings.host, settings.port)
    warnings.simplefilter("ignore", TextCutWarning)  # requests control this with truncate
    models = {name: InBedder(path, **settings.get_model_options()) for name, path in settings.named_models.items()}
    config = make_config(make_app(models, settings), settings)
    host, port = listener.getsockname()[:2]
    address = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
    server = _Server(config, lambda: on_listening(address))
    previous_handlers = {number: signal.signal(number, server.handle_exit) for number in (signal.SIGINT, signal.SIGTERM)}
    try:  # uvicorn raises the signals that it received again at its end
        server.run(sockets=[listener])
    finally:
        for number, handler in previous_handlers.items():
            signal.signal(number, handler)


def make_config(app: ASGIApp, settings: Settings) -> uvicorn.Config:
    """Make uvicorn's configuration.

    Args:
        app: The app.
        settings: The server's settings.

    Returns:
        The configuration.

    Example:
        >>> from inbedder.server.run_server import make_config
        >>> from inbedder.server.settings import Settings
        >>> make_config(lambda *_: None, Settings(grace=5)).timeout_graceful_shutdown
        5
    """
    return uvicorn.Config(
        app,
        http=HttpProtocol,
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=settings.grace,
    )


class _Server(uvicorn.Server):
    """A server that reports when it listens, and ends with its grace time."""

    def __init__(self, config: uvicorn.Config, on_listening: Callable[[], None]) -> None:
        super().__init__(config)
        self._on_listening = on_listening

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if not self.should_exit:
            self._on_listening()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        _end_process_after((self.config.timeout_graceful_shutdown or 0) + EXIT_SECONDS)
        await super().shutdown(sockets)
        if self.force_exit:
            _end_process_after(EXIT_SECONDS)


def _end_process_after(seconds: float) -> None:
    """End the process if it still runs by then, because no thread can be stopped from outside."""
    timer = threading.Timer(seconds, _end_process)
    timer.daemon = True
    timer.start()


def _end_process() -> None:
    logger.warning("The grace time is over. Work in progress is abandoned.")
    os._exit(0)


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
