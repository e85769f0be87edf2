"""Airflow's public API, called as the user of a page: so its rights and its audit log hold for the pages' actions.

The calls stay inside the process: the server's address from outside may not be reachable from within. The caller's
credential is a token for a minute, because a page's own may be a cookie that was just renewed.
"""

from typing import Any

import httpx
from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.models.base_user import BaseUser
from fastapi import HTTPException, Request

from tidemark_airflow.pages.links import PREFIX
from tidemark_airflow.pages.mount import AIRFLOW_APP

_TOKEN_SECONDS = 60
_TIMEOUT_SECONDS = 10


async def call_airflow(
    request: Request, user: BaseUser, method: str, path: str, *, body: Any = None, query: Any = None
) -> Any:
    """The answer of ``/api/v2/<path>``. Raises HTTPException with Airflow's own status and words if it refuses."""
    if {".", ".."} & set(path.split("/")):  # an id in a form, which the client would take for a folder
        raise HTTPException(404, f"Airflow knows nothing at {path}.")
    token = get_auth_manager().generate_jwt(user, expiration_time_in_seconds=_TOKEN_SECONDS)
    transport = httpx.ASGITransport(app=request.scope[AIRFLOW_APP], raise_app_exceptions=False)
    # Airflow writes "UI" for a run that was started with a referrer, whichever it is.
    headers = {"Authorization": f"Bearer {token}", "Referer": f"/{PREFIX}"}
    async with httpx.AsyncClient(
        transport=transport, base_url=str(request.base_url), headers=headers, timeout=_TIMEOUT_SECONDS
    ) as client:
        answer = await client.request(method, f"/api/v2/{path}", json=body, params=query)
    if answer.is_success:
        return answer.json()
    raise HTTPException(answer.status_code, _words(answer))


def _words(answer: httpx.Response) -> str:
    try:
        detail = answer.json()["detail"]
    except (ValueError, KeyError, TypeError):
        detail = answer.text[:500]
    return detail if isinstance(detail, str) else str(detail)
