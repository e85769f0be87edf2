"""The gate itself: ``python -m tidemark.stack.s3_gate.server CONFIG``. One thread per connection.

A request is answered by the guarded server, if its signature is right and its sender's policies allow it.
Bodies pass through unread: the guarded server checks them against the signed hash or the checksum that they end with.
"""

import hashlib
import http.client
import signal
import socket
import ssl
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tidemark.stack.s3_gate.actions import Address, context, deleted_keys, needed
from tidemark.stack.s3_gate.body import CHUNK_BYTES, RequestBody
from tidemark.stack.s3_gate.config import GateConfig
from tidemark.stack.s3_gate.encryption import ALGORITHM, METADATA, Encryption
from tidemark.stack.s3_gate.identity import Caller, answer, secret_of
from tidemark.stack.s3_gate.policy import allows
from tidemark.stack.s3_gate.refusal import Refusal
from tidemark.stack.s3_gate.signature import Claim, SignedParts, signed_headers

IDLE_S = 120
REUSED_S = 10  # the guarded server closes idle connections, and a request on one would be lost
_OF_ONE_HOP = {"connection", "expect", "host", "keep-alive", "transfer-encoding", "te", "trailer", "upgrade"}


@dataclass(frozen=True, slots=True, kw_only=True)
class GateRequest:
    """One verified request. ``read`` is its body if the gate had to read it; names of headers are in lower case."""

    method: str
    path: str
    query: str
    headers: Mapping[str, str]
    payload: str
    read: bytes


class GateServer(ThreadingHTTPServer):
    """The listening socket, the current configuration, and the encryption of multipart uploads under way."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, path: Path) -> None:
        self.path = path
        self._written = _version(path)
        self._config = GateConfig.read(path)
        # Uploads of an earlier process are taken as unencrypted: their client is given no headers at completion.
        self.uploads: dict[str, Encryption] = {}
        self.tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.tls.load_cert_chain(self._config.certificate, self._config.key)
        super().__init__(("127.0.0.1", self._config.port), _Handler)

    @property
    def config(self) -> GateConfig:
        """The file's content now; what was read is kept for as long as the file is."""
        written = _version(self.path)
        if written != self._written:
            self._config, self._written = GateConfig.read(self.path), written
        return self._config

    def finish_request(self, request: Any, client_address: Any) -> None:
        """Shake hands in the connection's own thread, so that a slow client keeps nobody waiting."""
        request.settimeout(IDLE_S)
        with self.tls.wrap_socket(request, server_side=True) as secured:
            super().finish_request(secured, client_address)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of clients that went away or did not trust the certificate."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: GateServer
    wbufsize = 64 * 1024
    _upstream: http.client.HTTPConnection | None = None
    _asked_at = 0.0

    def setup(self) -> None:
        super().setup()
        self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def handle_expect_100(self) -> bool:
        """Wait with the invitation to send the body until the request is allowed."""
        return True

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  # the base class's name
        """Log nothing: requests name keys, and there are many."""

    def _serve(self) -> None:
        chunked = self.headers.get("transfer-encoding", "").lower() == "chunked"
        self._body = RequestBody(self.rfile, length=self.headers.get("content-length"), chunked=chunked)
        self._invited = self._broken = False
        service = "sts" if "/sts/aws4_request" in self.headers.get("authorization", "") else "s3"
        try:
            config = self.server.config
            caller, request = self._verified(config, reads=service == "sts")
            if service == "sts":
                self._respond(200, {"content-type": "text/xml"}, answer(config, caller, request.read))
            else:
                self._forward(config, caller, request)
        except Refusal as refusal:
            self._refuse(refusal, service)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _serve  # noqa: N815  # the base class's names

    def _verified(self, config: GateConfig, *, reads: bool) -> tuple[Caller, GateRequest]:
        """Who signed the request, and the request; ``reads``: with its body. Raises Refusal."""
        path, query = urlsplit(self.path)[2:4]
        headers = {name.lower(): value for name, value in self.headers.items()}
        claim = Claim.parse(headers.get("authorization", ""))
        caller, secret = secret_of(config, claim.access_key, headers.get("x-amz-security-token", ""))
        payload = headers.get("x-amz-content-sha256", "")
        if payload.startswith("STREAMING-AWS4"):
            raise Refusal("NotImplemented", "The gate does not know bodies signed in chunks")
        read = b""
        if reads or (self.command == "POST" and "delete" in query.split("&")):
            self._invite()
            read = self._body.read_all()
            payload = payload or hashlib.sha256(read).hexdigest()
        claim.check(SignedParts(method=self.command, path=path, query=query, headers=headers, payload=payload), secret)
        return caller, GateRequest(
            method=self.command,
            path=_in_bucket(path, headers),
            query=query,
            headers=headers,
            payload=payload,
            read=read,
        )

    def _forward(self, config: GateConfig, caller: Caller, request: GateRequest) -> None:
        """Check the request against the policies, and pass it and its answer on."""
        address = Address.parse(request.method, request.path, request.query)
        headers = request.headers
        starts = request.method == "POST" and "uploads" in address.query
        plain_put = request.method == "PUT" and bool(address.key) and not address.upload
        asked = Encryption.asked(headers, takes=starts or plain_put)
        encryption = self.server.uploads.get(address.upload, asked)
        keys = context(address, headers, encryption)

        def check(action: str, resource: str) -> None:
            _check(config, caller, action, resource, keys)

        if request.method == "POST" and not address.key and set(address.query) == {"delete"}:
            for key in deleted_keys(request.read):
                check("s3:DeleteObject", f"{address.bucket_arn}/{key}")
        else:
            for action, resource in needed(address, headers, encryption):
                check(action, resource)
        self._invite()
        found = self._ask(config, request, encryption if starts or plain_put else Encryption())
        kept = Encryption.kept(found.headers.get(METADATA))
        if found.status == 404 and address.key and request.method in {"GET", "HEAD"}:
            _check(config, caller, "s3:ListBucket", address.bucket_arn, {})  # else S3 does not say what is not there
        elif request.method == "GET" and kept.kms_key_arn:
            check("kms:Decrypt", kept.kms_key_arn)
        if found.status < 300 and address.key and request.method in {"PUT", "POST"}:
            kept = encryption
        self._pass(found, kept, remember=encryption if starts and encryption.algorithm else None)
        if address.upload and found.status < 300 and request.method in {"POST", "DELETE"}:
            self.server.uploads.pop(address.upload, None)

    def _ask(self, config: GateConfig, request: GateRequest, encryption: Encryption) -> http.client.HTTPResponse:
        """The answer of the guarded server, its body not read yet; raises Refusal if there is none."""
        host = urlsplit(config.upstream).netloc
        dropped = {*_OF_ONE_HOP, "authorization", "x-amz-security-token"}
        headers = {
            name: value
            for name, value in request.headers.items()
            if name not in dropped and not name.startswith(ALGORITHM)
        }
        headers["host"] = host
        if encryption.algorithm:
            headers[METADATA] = encryption.metadata()
        target = SignedParts(
            method=request.method, path=request.path, query=request.query, headers=headers, payload=request.payload
        )
        signed = signed_headers(target, access_key=config.upstream_access_key, secret=config.upstream_secret_key)
        url = request.path + (f"?{request.query}" if request.query else "")
        if time.monotonic() - self._asked_at > REUSED_S:
            self._leave_upstream()
        self._asked_at = time.monotonic()
        if self._upstream is None:
            self._upstream = http.client.HTTPConnection(host, timeout=IDLE_S, blocksize=CHUNK_BYTES)
        upstream = self._upstream
        try:
            upstream.putrequest(request.method, url, skip_host=True, skip_accept_encoding=True)
            for name, value in signed.items():
                upstream.putheader(name, value)
            chunked = self._body.chunked and not request.read
            if chunked:
                upstream.putheader("transfer-encoding", "chunked")
            upstream.endheaders()
            for chunk in (request.read,) if request.read else self._body.chunks():
                upstream.send(b"%x\r\n%b\r\n" % (len(chunk), chunk) if chunked else chunk)
            if chunked:
                upstream.send(b"0\r\n\r\n")
            return upstream.getresponse()
        except (OSError, http.client.HTTPException) as error:
            self._broken = True
            raise Refusal("ServiceUnavailable", f"The guarded server failed: {type(error).__name__}") from error

    def _pass(self, found: http.client.HTTPResponse, encryption: Encryption, *, remember: Encryption | None) -> None:
        """Send the answer of the guarded server on, with the headers of the object's encryption."""
        headers = {
            name: value
            for name, value in ((name.lower(), value) for name, value in found.getheaders())
            if name not in _OF_ONE_HOP and name != METADATA
        }
        headers |= encryption.headers()
        if remember is not None:
            body = found.read()
            upload = body.partition(b"<UploadId>")[2].partition(b"</UploadId>")[0].decode()
            self.server.uploads[upload] = remember
            self._respond(found.status, headers, body)
            return
        empty = self.command == "HEAD" or found.status in {204, 304}
        chunked = "content-length" not in headers and not empty
        if chunked:
            headers["transfer-encoding"] = "chunked"
        self._head(found.status, headers)
        try:
            while chunk := found.read(CHUNK_BYTES):
                self.wfile.write(b"%x\r\n%b\r\n" % (len(chunk), chunk) if chunked else chunk)
            if chunked:
                self.wfile.write(b"0\r\n\r\n")
            self.wfile.flush()
        except (OSError, http.client.HTTPException):
            self._leave_upstream()
            self.close_connection = True

    def _refuse(self, refusal: Refusal, service: str) -> None:
        self._leave_upstream()
        # A body that nobody invited will not come; any other is read, so that the client gets to the answer.
        if self._broken or (self.headers.get("expect") and not self._invited):
            self.close_connection = True
        else:
            for _ in self._body.chunks():
                pass
        self._respond(refusal.status, {"content-type": "application/xml"}, refusal.body(service=service))

    def _respond(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        self._head(status, {**headers, "content-length": str(len(body))})
        if self.command != "HEAD":
            self.wfile.write(body)
        self.wfile.flush()

    def _head(self, status: int, headers: Mapping[str, str]) -> None:
        self.send_response_only(status)
        if self.close_connection:
            self.send_header("connection", "close")
        for name, value in {"date": self.date_time_string(), **headers}.items():
            self.send_header(name, value)
        self.end_headers()

    def _invite(self) -> None:
        if not self._invited and self.headers.get("expect", "").lower() == "100-continue":
            self.wfile.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            self.wfile.flush()
        self._invited = True

    def _leave_upstream(self) -> None:
        if self._upstream is not None:
            self._upstream.close()
            self._upstream = None

    def finish(self) -> None:
        self._leave_upstream()
        super().finish()


def _check(config: GateConfig, caller: Caller, action: str, resource: str, keys: Mapping[str, str]) -> None:
    """Raises Refusal if the caller's and the bucket's policies together do not allow the action."""
    if not allows((*caller.policies, *config.bucket_policies), action, resource, keys):
        message = f"User: {caller.arn} is not authorized to perform: {action} on resource: {resource}"
        raise Refusal("AccessDenied", message)


def _in_bucket(path: str, headers: Mapping[str, str]) -> str:
    """The path with its bucket, which a virtual-host style request has in its host's name."""
    bucket, found, _ = headers.get("host", "").partition(".localhost")
    return f"/{bucket}{path}" if found else path


def _version(path: Path) -> tuple[int, int]:
    """What changes with each writing of the file: two can have the same time."""
    found = path.stat()
    return found.st_mtime_ns, found.st_ino


def main() -> None:
    """Serve until SIGTERM."""
    server = GateServer(Path(sys.argv[1]))
    signal.signal(signal.SIGTERM, lambda *_: threading.Thread(target=server.shutdown).start())
    server.serve_forever(poll_interval=0.2)
    server.server_close()


if __name__ == "__main__":
    main()
