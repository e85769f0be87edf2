"""A gate before the REST catalog, which itself asks for no credentials: OAuth2, fixed tokens, and AWS signatures."""

import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from urllib.error import HTTPError
from urllib.parse import parse_qs
from urllib.request import Request, urlopen

CLIENT = "tidemark"
CLIENT_SECRET = "planted-client-secret"  # noqa: S105 - the tests look for it everywhere
TOKEN = "planted-fixed-token"  # noqa: S105 - the same
SCOPE = "PRINCIPAL_ROLE:writer"
_SIGNATURE = re.compile(
    r"AWS4-HMAC-SHA256 Credential=([^/]+)/\d{8}/([^/]+)/([^/]+)/aws4_request, SignedHeaders=\S+, Signature=[0-9a-f]{64}"
)


@dataclass(slots=True)
class Gate:
    """What came through, and the tokens that were given out. ``seen`` are (agent, way of authentication)."""

    catalog: str
    tokens: set[str] = field(default_factory=set)
    seen: set[tuple[str, str]] = field(default_factory=set)
    refused: int = 0
    url: str = ""

    def admits(self, authorization: str, agent: str) -> bool:
        """Whether a request may pass."""
        signed = _SIGNATURE.fullmatch(authorization)
        if signed:
            way = f"signed by {signed[1]} for {signed[3]} in {signed[2]}"
        elif authorization == f"Bearer {TOKEN}":
            way = "fixed token"
        elif authorization.removeprefix("Bearer ") in self.tokens:
            way = "OAuth2"
        else:
            self.refused += 1
            return False
        self.seen.add(("pyiceberg" if agent.startswith("PyIceberg") else "java", way))
        return True

    def token(self, form: dict[str, list[str]]) -> str | None:
        """A new token for the client's credentials; None for others."""
        wanted = {
            "grant_type": ["client_credentials"],
            "client_id": [CLIENT],
            "client_secret": [CLIENT_SECRET],
            "scope": [SCOPE],
        }
        if {name: form.get(name) for name in wanted} != wanted:
            return None
        new = secrets.token_hex(16)
        self.tokens.add(new)
        return new


def _handler(gate: Gate) -> type[BaseHTTPRequestHandler]:  # noqa: C901 - one class
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _handle(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            if self.path == "/token":
                token = gate.token(parse_qs(body.decode()))
                if token is None:
                    self._answer(401, b'{"error": "invalid_client", "error_description": "no such client"}')
                else:
                    text = f'{{"access_token": "{token}", "token_type": "bearer", "expires_in": 3600}}'
                    self._answer(200, text.encode())
            elif not gate.admits(self.headers.get("Authorization", ""), self.headers.get("User-Agent", "")):
                self._answer(401, b'{"error": {"message": "who are you?", "type": "NotAuthorized", "code": 401}}')
            else:
                self._forward(body)

        do_GET = do_POST = do_HEAD = do_DELETE = _handle  # noqa: N815 - http.server's names

        def _forward(self, body: bytes) -> None:
            headers = {"Content-Type": self.headers.get("Content-Type", "application/json")}
            request = Request(  # noqa: S310 - our own server
                gate.catalog + self.path, data=body or None, headers=headers, method=self.command
            )
            try:
                with urlopen(request, timeout=60) as answer:  # noqa: S310
                    self._answer(answer.status, answer.read())
            except HTTPError as error:
                self._answer(error.code, error.read())

        def _answer(self, status: int, body: bytes) -> None:
            self.send_response(status)
            if status != 204:
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - http.server's name
            pass

    return Handler


@contextmanager
def gate(catalog: str) -> Iterator[Gate]:
    """A gate before the catalog at this address."""
    made = Gate(catalog)
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(made))
    made.url = f"http://127.0.0.1:{server.server_port}"
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield made
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
