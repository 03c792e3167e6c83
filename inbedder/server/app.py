"""The app: its routes, middleware, error handlers, status pages and documentation."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import swagger_ui_bundle
from anyio.to_thread import run_sync
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.docs import get_swagger_ui_html
from starlette.exceptions import HTTPException
from starlette.staticfiles import StaticFiles

from inbedder import __version__
from inbedder.embedder import InBedder
from inbedder.server import classify_route, cluster_route, routes, systemone_route
from inbedder.server.http_errors import RefusalError, convert_validation_errors
from inbedder.server.middleware import Guard
from inbedder.server.model_service import ServedModel
from inbedder.server.prometheus import Metrics
from inbedder.server.settings import Settings
from inbedder.server.tracing import TELEMETRY

DESCRIPTION = (
    "Instruction-following text embeddings: a text's vector is a language model's answer to your question about it. "
    "Errors have OpenAI's format."
)


def make_app(models: Mapping[str, InBedder], settings: Settings) -> FastAPI:
    """Build the app.

    Args:
        models: Models by the names that requests use, the default first.
        settings: The server's settings.

    Returns:
        An ASGI app.

    Raises:
        InputError: If the API key cannot be used, or is missing although other machines could connect.

    Example:
        >>> from inbedder import InBedder
        >>> from inbedder.server.app import make_app
        >>> from inbedder.server.settings import Settings
        >>> make_app({"mini": InBedder()}, Settings()).title
        'inbedder'
    """
    metrics, key = Metrics(), settings.read_key()

    @asynccontextmanager
    async def close_models_at_shutdown(app: FastAPI) -> AsyncIterator[None]:
        yield
        for model in app.state.models.values():
            await run_sync(model.close)  # in a thread, so that responses are still sent while a pass ends

    def is_queue_full() -> bool:
        return all(model.waiting >= settings.max_waiting for model in app.state.models.values())

    app = FastAPI(
        title="inbedder",
        version=__version__,
        description=DESCRIPTION,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        telemetry=TELEMETRY,
        lifespan=close_models_at_shutdown,
    )
    app.state.metrics = metrics
    app.state.models = {name: ServedModel(name, model, settings, metrics) for name, model in models.items()}
    app.include_router(routes.router)
    app.include_router(cluster_route.router)
    app.include_router(classify_route.router)
    app.include_router(systemone_route.router)
    _add_status(app)
    _add_docs(app)
    app.add_middleware(Guard, settings=settings, key=key, metrics=metrics, is_queue_full=is_queue_full)
    _add_error_handlers(app)
    return app


def _add_status(app: FastAPI) -> None:
    @app.get("/health")
    async def health() -> dict[str, str]:
        """Report that the process runs; this route needs no key."""
        return {"status": "ok"}

    @app.get("/ready", name="ready", responses=routes.PROBLEMS)
    async def check_ready(request: Request) -> dict[str, str]:
        """Report that the models are loaded and requests are accepted; this route needs no key."""
        if any(model.closing for model in request.app.state.models.values()):
            raise RefusalError(503, "The server is shutting down.", retry_after=1)
        return {"status": "ready"}

    @app.get("/v1/models", responses=routes.PROBLEMS)
    async def list_models(request: Request) -> dict[str, object]:
        """List the models, the default first, with the length of their vectors and the options that decide them."""
        models: dict[str, ServedModel] = request.app.state.models
        return {"object": "list", "data": [_describe_model(name, model.embedder) for name, model in models.items()]}

    @app.get("/v1/models/{model:path}", responses=routes.PROBLEMS)
    async def get_model(model: str, request: Request) -> dict[str, object]:
        """Describe one model; its name may contain slashes."""
        served_model = routes.find_model(request, model)
        return _describe_model(served_model.name, served_model.embedder)

    @app.get("/metrics", response_class=Response, responses=routes.PROBLEMS)
    async def metrics(request: Request) -> Response:
        """Return counts and times in Prometheus' text format."""
        return Response(request.app.state.metrics.render(), media_type="text/plain; version=0.0.4")


def _describe_model(name: str, model: InBedder) -> dict[str, object]:
    """Build an entry of the model list, without any path of this machine."""
    entry: dict[str, object] = {"id": name, "object": "model", "created": 0, "owned_by": "inbedder"}
    return entry | {"dimension": model.dimension, "spec": model.spec.contents(), "spec_key": model.spec.key()}


def _add_docs(app: FastAPI) -> None:
    app.mount("/docs/assets", StaticFiles(directory=os.fspath(swagger_ui_bundle.swagger_ui_path)))

    @app.get("/docs", include_in_schema=False)
    async def show_docs() -> Response:
        """Show the OpenAPI document as a page, with assets from this server only."""
        return get_swagger_ui_html(
            openapi_url="/openapi.json",
            title="inbedder",
            swagger_js_url="/docs/assets/swagger-ui-bundle.js",
            swagger_css_url="/docs/assets/swagger-ui.css",
            swagger_favicon_url="/docs/assets/favicon-32x32.png",
        )


def _add_error_handlers(app: FastAPI) -> None:
    def send(refusal: RefusalError) -> Response:
        return Response(refusal.body, refusal.status, refusal.headers, media_type="application/json")

    @app.exception_handler(RequestValidationError)
    async def handle_invalid_request(_request: Request, error: RequestValidationError) -> Response:
        return send(convert_validation_errors(error.errors()))

    @app.exception_handler(HTTPException)
    async def handle_http_error(_request: Request, error: HTTPException) -> Response:
        messages = {404: "There is no such route. GET /openapi.json lists them.", 405: "This route does not accept this method."}
        refusal = RefusalError(error.status_code, messages.get(error.status_code, "The body is not JSON in UTF-8."))
        refusal.headers.update(error.headers or {})
        return send(refusal)
