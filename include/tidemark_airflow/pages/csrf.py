"""Forms are accepted only from these pages: the browser's headers and a token of the user prove it."""

from urllib.parse import urlsplit

from airflow.api_fastapi.auth.managers.models.base_user import BaseUser
from airflow.api_fastapi.auth.tokens import get_signing_key
from fastapi import HTTPException, Request
from itsdangerous import BadSignature, URLSafeTimedSerializer

from tidemark_airflow.pages.links import base_url

# A page that was open overnight asks to be loaded again.
_VALID_SECONDS = 8 * 3600
_REFUSED = "The form was not accepted. It is older than 8 hours, or another site sent it. Load the page again."


def form_token(user: BaseUser) -> str:
    """What a form of this user carries."""
    return _serializer().dumps(str(user.get_id()))


def require_own_form(request: Request, user: BaseUser, token: str) -> None:
    """Raise HTTPException 403 unless the request comes from a form of this user on these pages."""
    if not _is_from_here(request):
        raise HTTPException(403, _REFUSED)
    try:
        sender = _serializer().loads(token, max_age=_VALID_SECONDS)
    except BadSignature as error:
        raise HTTPException(403, _REFUSED) from error
    if sender != str(user.get_id()):
        raise HTTPException(403, _REFUSED)


def _is_from_here(request: Request) -> bool:
    """By ``Sec-Fetch-Site``; browsers send it only over TLS and on this machine, so otherwise by ``Origin``."""
    site = request.headers.get("sec-fetch-site")
    if site is not None:
        return site == "same-origin"
    sender = request.headers.get("origin")
    if sender is None:
        return True
    host = sender.partition("://")[2]  # none in "null", which a browser sends if it hides who asks
    return bool(host) and host in {request.headers.get("host"), urlsplit(base_url()).netloc}


def _serializer() -> URLSafeTimedSerializer:
    return URLSafeTimedSerializer(get_signing_key("api", "secret_key"), salt="tidemark.pages.forms")
