"""An S3 server in this process that encrypts, knows roles and speaks TLS: moto's, with a doorman.

The doorman does what moto does not: it lets in only known keys and, before they expire, those of a role; and it gives a
role's keys only to who names the role's external id. It notes every request.
"""

import re
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from io import BytesIO
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

from moto import backends
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import WSGIRequestHandler, make_server

ROLE = "arn:aws:iam::123456789012:role/lake"
EXTERNAL_ID = "the-external-id"
_ERROR = "<?xml version='1.0'?><{outer}><Code>{code}</Code><Message>refused here</Message></{outer}>"
_SIGNED = re.compile(r"Credential=(\w+)/")
_ISSUED = re.compile(rb"<AccessKeyId>(\w+)</AccessKeyId>")
_EXPIRES = re.compile(rb"(?<=<Expiration>)[^<]+(?=</Expiration>)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request: who signed it, and the headers that a test may ask for, without ``x-amz-``."""

    method: str
    host: str
    path: str
    caller: str
    headers: dict[str, str]


@dataclass(slots=True)
class S3Server:
    """A running server. ``known`` are access keys, and ``lifetime`` is how long those of a role are valid."""

    url: str = ""
    known: set[str] = field(default_factory=set)
    lifetime: timedelta = timedelta(hours=1)
    requests: list[Request] = field(default_factory=list)
    issued: dict[str, datetime] = field(default_factory=dict)
    _inside: Any = None

    def callers(self, text: str) -> list[str]:
        """Who signed the requests whose path contains the text."""
        return [one.caller for one in self.requests if text in one.path]

    def __call__(self, environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        length = int(environ.get("CONTENT_LENGTH") or 0)
        form = environ["PATH_INFO"] == "/" and environ["REQUEST_METHOD"] == "POST"
        asked: dict[str, list[str]] = {}
        if form:
            body = environ["wsgi.input"].read(length)
            environ["wsgi.input"] = BytesIO(body)
            asked = parse_qs(body.decode())
        signed = _SIGNED.search(environ.get("HTTP_AUTHORIZATION", ""))
        caller = signed[1] if signed else ""
        prefix = "HTTP_X_AMZ_"
        headers = {k.removeprefix(prefix).lower(): v for k, v in environ.items() if k.startswith(prefix)}
        self.requests.append(
            Request(
                method=environ["REQUEST_METHOD"],
                host=environ.get("HTTP_HOST", ""),
                path=asked.get("Action", [environ["PATH_INFO"]])[0],
                caller=caller,
                headers=headers,
            )
        )
        if refusal := self._refusal(caller, headers):
            return _refuse(start, "Error", refusal)
        if asked.get("Action") != ["AssumeRole"]:
            return self._inside(environ, start)  # type: ignore[no-any-return]  # moto has no types
        if asked.get("RoleArn") != [ROLE] or asked.get("ExternalId") != [EXTERNAL_ID]:
            return _refuse(start, "ErrorResponse><Error", "AccessDenied")
        return self._issue(environ, start)

    def _refusal(self, caller: str, headers: dict[str, str]) -> str | None:
        if caller in self.known:
            return None
        if caller not in self.issued:
            return "InvalidAccessKeyId"
        if "security_token" not in headers:
            return "InvalidToken"
        return "ExpiredToken" if datetime.now(UTC) > self.issued[caller] else None

    def _issue(self, environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        answer: list[Any] = []
        body = b"".join(self._inside(environ, lambda *given: answer.extend(given)))
        expires = datetime.now(UTC) + self.lifetime
        body = _EXPIRES.sub(f"{expires:%Y-%m-%dT%H:%M:%SZ}".encode(), body)
        key = _ISSUED.search(body)
        assert key is not None, body
        self.issued[key[1].decode()] = expires
        start(answer[0], [("Content-Type", "text/xml"), ("Content-Length", str(len(body)))])
        return [body]


def _refuse(start: Callable[..., Any], outer: str, code: str) -> Iterable[bytes]:
    opening, _, inner = outer.partition("><")
    text = _ERROR.format(outer=inner or opening, code=code)
    if inner:
        text = text.replace(f"<{inner}>", f"<{opening}><{inner}>") + f"</{opening}>"
    start("403 Forbidden", [("Content-Type", "text/xml"), ("Content-Length", str(len(text)))])
    return [text.encode()]


class _Handler(WSGIRequestHandler):
    protocol_version = "HTTP/1.1"  # a handshake per request would take most of a test's time

    def log_request(self, *_: Any) -> None:
        """Tests look at ``requests``."""


@contextmanager
def s3_server(certificate: tuple[Path, Path] | None = None) -> Iterator[S3Server]:
    """Runs on a free port of 127.0.0.1; over TLS with the files of a certificate and its key."""
    backends.get_backend("s3").reset()  # it is the process's
    server = S3Server()
    server._inside = DomainDispatcherApplication(create_backend_app)
    tls = tuple(map(str, certificate)) if certificate else None
    listening = make_server("127.0.0.1", 0, server, threaded=True, request_handler=_Handler, ssl_context=tls)  # type: ignore[arg-type]
    server.url = f"{'https' if tls else 'http'}://127.0.0.1:{listening.server_port}"
    thread = threading.Thread(target=listening.serve_forever, name="s3-server", daemon=True)
    thread.start()
    try:
        yield server
    finally:
        listening.shutdown()
        thread.join(10)
        listening.server_close()
