"""The app of the pages. Every route asks who the user is, and those of a stream for the right to its DAG."""

from collections.abc import Callable
from functools import lru_cache
from importlib.resources import files
from typing import Annotated, Any

from airflow.api_fastapi.core_api.security import get_user
from fastapi import Depends, FastAPI, HTTPException, Path
from fastapi.responses import HTMLResponse, Response

from tidemark_airflow.pages import actions, certificate_page, day_page, find_page, run_page, stream_pages
from tidemark_airflow.pages.responses import add_answers

_STATIC = {
    "pages.css": "text/css",
    "pages.js": "text/javascript",
    "card.js": "text/javascript",
    "icon.svg": "image/svg+xml",
    "icon-dark.svg": "image/svg+xml",
}
_DAY = "/streams/{stream}/days/{day}"
_PAGES: dict[str, Callable[..., Any]] = {
    "/": stream_pages.show_streams,
    "/streams/{stream}": stream_pages.show_stream,
    "/streams/{stream}/tide": stream_pages.show_tide,
    "/streams/{stream}/find": find_page.show_find,
    _DAY: day_page.show_day,
    f"{_DAY}/certificate": certificate_page.show_certificate,
    f"{_DAY}/certificates/{{name}}": certificate_page.save_certificate,
    "/streams/{stream}/runs/{run}": run_page.show_run,
    "/streams/{stream}/runs/{run}/{name}": run_page.show_artefact,
    "/dags/{dag}": run_page.show_dag,
    "/dags/{dag}/runs/{run_id}": run_page.show_dag_run,
    "/card.json": stream_pages.show_card,
}
_ACTIONS: dict[str, Callable[..., Any]] = {
    f"{_DAY}/rebuild": actions.rebuild,
    f"{_DAY}/accept-loss": actions.accept_loss,
    f"{_DAY}/rollback": actions.rollback,
    f"{_DAY}/approve": actions.approve,
    f"{_DAY}/reject": actions.reject,
    f"{_DAY}/rebuild-instead": actions.rebuild_instead,
}


def create_pages() -> FastAPI:
    """The app. Airflow mounts it below ``/tidemark``."""
    app = FastAPI(title="Tidemark", docs_url=None, redoc_url=None, openapi_url=None, dependencies=[Depends(get_user)])
    add_answers(app)
    for path, page in _PAGES.items():
        app.add_api_route(path, page, response_class=HTMLResponse)
    for path, action in _ACTIONS.items():
        app.add_api_route(path, action, methods=["POST"], response_class=HTMLResponse)
    app.add_api_route("/static/{name}", static_file)
    return app


def static_file(name: Annotated[str, Path()]) -> Response:
    """A file of the pages."""
    if name not in _STATIC:
        raise HTTPException(404, f"There is no file {name}.")
    return Response(_file(name), media_type=_STATIC[name], headers={"Cache-Control": "private, max-age=300"})


@lru_cache
def _file(name: str) -> bytes:
    return files("tidemark_airflow.pages").joinpath("static", name).read_bytes()
