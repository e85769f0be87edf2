"""Pages as HTTP answers: security headers on each, and every failure as a page with a way back."""

import logging
from http import HTTPStatus
from typing import Any

from airflow.api_fastapi.app import get_auth_manager
from fastapi import FastAPI, HTTPException, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse, Response
from starlette.exceptions import HTTPException as StarletteHTTPException

from tidemark.core.errors import TidemarkError
from tidemark.pages.part import part_error
from tidemark.pages.render import page

_LOG = logging.getLogger(__name__)
# Everything comes from here: no script or style inside a page, and no site may frame one but Airflow itself.
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self';"
    " frame-src 'self'; form-action 'self'; frame-ancestors 'self'; base-uri 'none'"
)
# A stored document may style itself, and do nothing else.
STORED_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; img-src data:; form-action 'none'; frame-ancestors 'self';"
    " base-uri 'none'"
)
_TITLES = {
    401: "Log in to Airflow",
    403: "Not allowed",
    404: "Not found",
    409: "Not possible now",
    422: "Not understood",
}


def root_of(request: Request) -> str:
    """The path before every link of the pages, without a slash at its end."""
    return str(request.scope.get("root_path", "")).rstrip("/")


def html(request: Request, name: str, *, code: int = 200, **values: Any) -> HTMLResponse:
    """The page of a template."""
    root = root_of(request)
    return HTMLResponse(page(name, root=root, airflow=root.rpartition("/")[0], **values), status_code=code)


def add_answers(app: FastAPI) -> None:
    """Add the headers of every answer, and the pages of failures."""

    @app.middleware("http")
    async def _headers(request: Request, call_next: Any) -> Response:
        response: Response = await call_next(request)
        response.headers.setdefault("Content-Security-Policy", _POLICY)
        response.headers.setdefault("Cache-Control", "no-store")
        response.headers["X-Content-Type-Options"] = "nosniff"
        response.headers["X-Frame-Options"] = "SAMEORIGIN"
        response.headers["Referrer-Policy"] = "same-origin"
        return response

    @app.exception_handler(StarletteHTTPException)
    async def _refused(request: Request, error: HTTPException) -> Response:
        return _failure(request, error.status_code, str(error.detail))

    @app.exception_handler(RequestValidationError)
    async def _not_understood(request: Request, error: RequestValidationError) -> Response:
        texts = (f"{'.'.join(map(str, item['loc'][1:]))}: {item['msg']}" for item in error.errors())
        return _failure(request, 422, "; ".join(texts))

    @app.exception_handler(TidemarkError)
    async def _explained(request: Request, error: TidemarkError) -> Response:
        return _failure(request, 503, str(error))

    @app.exception_handler(Exception)
    async def _unexpected(request: Request, error: Exception) -> Response:
        _LOG.exception("a page failed: %s", request.url.path)
        return _failure(request, 500, f"{part_error(error).problem}. The api-server's log has the rest.")


def _failure(request: Request, status: int, text: str) -> Response:
    if request.url.path.endswith(".json"):
        return JSONResponse({"detail": text}, status_code=status)
    root = root_of(request)
    back, back_text = f"{root}/", "All streams"
    if status == HTTPStatus.UNAUTHORIZED:
        back, back_text = get_auth_manager().get_url_login(next_url=str(request.url)), "Log in"
        text = "These pages are for users of this Airflow."
    elif status == HTTPStatus.FORBIDDEN and text == "Forbidden":
        text = "Your user has no right to this in Airflow. An administrator can give you the right to the stream's DAG."
    title = _TITLES.get(status, "This did not work")
    return html(request, "error", code=status, title=title, text=text, back=back, back_text=back_text)
