"""An issuer of tokens (OAuth 2, client credentials): an HTTP server that signs JWTs for whoever knows the secret."""

import base64
import json
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any
from urllib.parse import parse_qs

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa
from jwt.algorithms import RSAAlgorithm

from tidemark.stack.kafka_security import TokenIssuer

AUDIENCE = "kafka"
SECRET = "the-clients-secret"  # noqa: S105  # a test's own
_KEY_ID = "one"


class Tokens:
    """Its address, and the users for whom it issued tokens, in order. A client's id becomes the token's user."""

    # Clients whose tokens are signed by another key, or are for another audience than Kafka.
    FORGED, ELSEWHERE = "forged", "elsewhere"

    def __init__(self, url: str, life_s: float) -> None:
        self.url, self.life_s = url, life_s
        self.issued: list[str] = []
        self._key, self._other = (rsa.generate_private_key(public_exponent=65537, key_size=2048) for _ in range(2))

    @property
    def issuer(self) -> TokenIssuer:
        return TokenIssuer(issuer=self.url, audience=AUDIENCE, keys_url=f"{self.url}/keys")

    def source(self, user: str, secret: str = SECRET) -> dict[str, str]:
        """Settings for librdkafka of a client that asks here for its tokens."""
        return {
            "sasl.oauthbearer.method": "oidc",
            "sasl.oauthbearer.client.id": user,
            "sasl.oauthbearer.client.secret": secret,
            "sasl.oauthbearer.token.endpoint.url": f"{self.url}/token",
        }

    def token(self, user: str) -> dict[str, Any]:
        now = time.time()
        claims = {
            "iss": self.url,
            "aud": "elsewhere" if user == self.ELSEWHERE else AUDIENCE,
            "sub": user,
            "iat": int(now),
            "exp": int(now + self.life_s),
            "jti": uuid.uuid4().hex,
        }
        key = self._other if user == self.FORGED else self._key
        self.issued.append(user)
        token = jwt.encode(claims, key, algorithm="RS256", headers={"kid": _KEY_ID})
        return {"access_token": token, "token_type": "Bearer", "expires_in": int(self.life_s)}

    def keys(self) -> dict[str, Any]:
        return {
            "keys": [
                {
                    **json.loads(RSAAlgorithm.to_jwk(self._key.public_key())),
                    "kid": _KEY_ID,
                    "alg": "RS256",
                    "use": "sig",
                }
            ]
        }


@contextmanager
def token_server(*, life_s: float) -> Iterator[Tokens]:
    """A running issuer of tokens that live ``life_s`` seconds."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.tokens = tokens = Tokens(f"http://127.0.0.1:{server.server_port}", life_s)  # type: ignore[attr-defined]
    thread = Thread(target=server.serve_forever, name="tokens", daemon=True)
    thread.start()
    try:
        yield tokens
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        tokens: Tokens = self.server.tokens  # type: ignore[attr-defined]
        self._answer(200, tokens.keys())

    def do_POST(self) -> None:
        tokens: Tokens = self.server.tokens  # type: ignore[attr-defined]
        body = parse_qs(self.rfile.read(int(self.headers.get("Content-Length", 0))).decode())
        user, secret = self._login()
        if secret != SECRET or body.get("grant_type") != ["client_credentials"]:
            self._answer(401, {"error": "invalid_client"})
        else:
            self._answer(200, tokens.token(user))

    def _login(self) -> tuple[str, str]:
        scheme, _, value = self.headers.get("Authorization", "").partition(" ")
        user, _, secret = base64.b64decode(value).decode().partition(":") if scheme == "Basic" else ("", "", "")
        return user, secret

    def _answer(self, status: int, value: dict[str, Any]) -> None:
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """No line per request."""
