"""A server from its settings to its end."""

from __future__ import annotations

import signal
import socket
import warnings
from collections.abc import Callable

import uvicorn

from inbedder.embedder import InBedder
from inbedder.errors import InputError, TextCutWarning, shown
from inbedder.server.app import make_app
from inbedder.server.settings import Settings


def serve(settings: Settings, say: Callable[[str], None] = lambda address: None) -> None:
    """Load the models and answer requests until Ctrl-C or SIGTERM, which let accepted requests end.

    Args:
        settings: The server's; what is wrong with key and address shows before a model is loaded.
        say: Called with the address when the server listens.

    Raises:
        InputError: When a setting cannot be used, or the address is taken.
        ModelError: When a model cannot be loaded.
    """
    settings.key()
    listening = _listen(settings.host, settings.port)
    warnings.simplefilter("ignore", TextCutWarning)  # truncate: NONE is how requests ask for it
    models = {name: InBedder(path, **settings.model_options()) for name, path in settings.named_models.items()}
    config = uvicorn.Config(
        make_app(models, settings),
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=settings.grace,
    )
    host, port = listening.getsockname()[:2]
    address = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
    server = _Server(config, lambda: say(address))
    before = {number: signal.signal(number, server.handle_exit) for number in (signal.SIGINT, signal.SIGTERM)}
    try:  # uvicorn raises the signals that it met again, when all is done
        server.run(sockets=[listening])
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class _Server(uvicorn.Server):
    """A server that tells when it listens."""

    def __init__(self, config: uvicorn.Config, say: Callable[[], None]) -> None:
        super().__init__(config)
        self._say = say

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if not self.should_exit:
            self._say()


def _listen(host: str, port: int) -> socket.socket:
    """Take the address at once, so that one which is taken shows before a model is loaded."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host.strip("[]"), port))
    except OSError as error:
        listening.close()
        raise InputError(f"Cannot listen at {shown(host)}, port {port} ({error.strerror}). Choose another --port.") from error
    return listening
