"""A proxy between client and S3 server that misbehaves on request.

It forwards requests and answers byte for byte, the Host header too, so that signatures hold. A rule names the nth
request of a method whose path and query match a pattern, and what happens to it, before the server sees it or after it
answered. Faults are injected here because the product has no code for them.

Conditional writes go to the server one after the other: S3Proxy asks whether there is an object and then writes it, so
that two at once can both succeed, which S3 rules out.
"""

import asyncio
import re
import threading
from collections.abc import Callable
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from typing import Literal, Self
from urllib.parse import unquote

_LIMIT = 1 << 20
_ERROR = '<?xml version="1.0" encoding="UTF-8"?><Error><Code>{code}</Code><Message>injected</Message></Error>'


@dataclass(kw_only=True)
class Rule:
    """What happens to the ``nth`` to ``nth + times - 1``-th matching request, counted from 1 when the rule is added.

    ``action`` is called with the request's target; it runs on the proxy's thread, before any delay. ``answer`` is sent
    instead of the server's; ``when="after"`` lets the server do the work first. ``reset`` cuts the connection instead.
    ``flip`` changes one byte of the request's body on its way, ``truncate`` cuts the connection in the answer's middle.
    """

    method: str
    pattern: str
    nth: int = 1
    times: int = 1
    when: Literal["before", "after"] = "before"
    action: Callable[[str], object] | None = None
    answer: tuple[int, str] | None = None
    delay_s: float = 0
    reset: bool = False
    flip: bool = False
    truncate: bool = False
    seen: int = field(default=0, init=False)
    fired: threading.Event = field(default_factory=threading.Event, init=False)

    def counts(self, method: str, target: str) -> bool:
        """Count the request if it matches; whether it is one of those the rule is for."""
        if method != self.method or not re.search(self.pattern, target):
            return False
        self.seen += 1
        return self.nth <= self.seen < self.nth + self.times


class FaultProxy:
    """Listens on a free port of 127.0.0.1; a context manager. ``log`` has every request as (method, target, status)."""

    def __init__(self, upstream: str) -> None:
        host, _, port = upstream.removeprefix("http://").rstrip("/").partition(":")
        self._upstream = (host, int(port))
        self._rules: list[Rule] = []
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="fault-proxy", daemon=True)
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._one_writer = asyncio.Lock()
        self.log: list[tuple[str, str, int]] = []
        self.sent: list[tuple[str, str, dict[str, str]]] = []

    def __enter__(self) -> Self:
        self._thread.start()
        starting = asyncio.start_server(self._serve, "127.0.0.1", 0, limit=_LIMIT)
        self._server = asyncio.run_coroutine_threadsafe(starting, self._loop).result(10)
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    @property
    def url(self) -> str:
        assert self._server is not None
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    @property
    def quiet(self) -> bool:
        """Whether no client is connected: what they sent has reached the server, or never will."""
        return not self._tasks

    def add(self, rule: Rule) -> Rule:
        self._rules.append(rule)
        return rule

    def clear(self) -> None:
        """Forget every rule and every request."""
        self._rules.clear()
        self.log.clear()
        self.sent.clear()

    async def _close(self) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        server: asyncio.StreamWriter | None = None
        try:
            from_server, server = await asyncio.open_connection(*self._upstream, limit=_LIMIT)
            while await self._exchange(reader, writer, from_server, server):
                pass
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass  # one side hung up
        finally:
            self._tasks.discard(task)
            for one in (writer, server):
                if one is not None:
                    one.transport.abort() if one.is_closing() else one.close()
                    with suppress(ConnectionError, asyncio.CancelledError):
                        await one.wait_closed()

    async def _exchange(
        self,
        client: asyncio.StreamReader,
        to_client: asyncio.StreamWriter,
        server: asyncio.StreamReader,
        to_server: asyncio.StreamWriter,
    ) -> bool:
        """One request and its answer. Returns whether the connection stays open."""
        head = await client.readuntil(b"\r\n\r\n")
        method, target, _ = head.split(b"\r\n", 1)[0].decode().split(" ")
        fields = _fields(head)
        if fields.get("expect", "").lower() == "100-continue":
            to_client.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        body = await _body(client, fields)
        self.sent.append((method, unquote(target), fields))
        rule = next((rule for rule in list(self._rules) if rule.counts(method, unquote(target))), None)
        if rule is not None and rule.when == "before":
            if not await self._apply(rule, method, target, to_client):
                return False
            if rule.answer is not None:
                return True
        message = head + (_flipped(body) if rule is not None and rule.flip else body)
        async with self._one_writer if {"if-none-match", "if-match"} & fields.keys() else nullcontext():
            answer, content = await _answer(method, message, server, to_server)
        status = int(answer.split(b" ", 2)[1])
        if rule is not None and rule.when == "after":
            if not await self._apply(rule, method, target, to_client):
                return False
            if rule.answer is not None:
                return True
        self.log.append((method, target, status))
        cut = rule is not None and rule.truncate
        to_client.write(answer + (content[: len(content) // 2] if cut else content))
        await to_client.drain()
        return not cut and _fields(answer).get("connection", "").lower() != "close"

    async def _apply(self, rule: Rule, method: str, target: str, to_client: asyncio.StreamWriter) -> bool:
        """Do what the rule says; False where the connection is to be cut."""
        rule.fired.set()
        if rule.action is not None:
            rule.action(unquote(target))
        if rule.delay_s:
            await asyncio.sleep(rule.delay_s)
        if rule.reset:
            to_client.transport.abort()
            self.log.append((method, target, 0))
            return False
        if rule.answer is not None:
            status, code = rule.answer
            content = _ERROR.format(code=code).encode()
            head = (
                f"HTTP/1.1 {status} Injected\r\nContent-Type: application/xml\r\nContent-Length: {len(content)}\r\n\r\n"
            )
            to_client.write(head.encode() + (b"" if method == "HEAD" else content))
            await to_client.drain()
            self.log.append((method, target, status))
        return True


async def _answer(
    method: str, message: bytes, server: asyncio.StreamReader, to_server: asyncio.StreamWriter
) -> tuple[bytes, bytes]:
    """The server's answer to a message: its head, and its body as it came."""
    to_server.write(message)
    await to_server.drain()
    head = await server.readuntil(b"\r\n\r\n")
    while b" 100 " in head.split(b"\r\n", 1)[0]:
        head = await server.readuntil(b"\r\n\r\n")
    has_body = method != "HEAD" and int(head.split(b" ", 2)[1]) not in {204, 304}
    return head, await _body(server, _fields(head)) if has_body else b""


def _flipped(body: bytes) -> bytes:
    return body[:-1] + bytes([body[-1] ^ 1])


def _fields(head: bytes) -> dict[str, str]:
    lines = head.decode("latin-1").split("\r\n")[1:]
    return {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines if line)}


async def _body(reader: asyncio.StreamReader, fields: dict[str, str]) -> bytes:
    """The message's body as it came, chunk heads and all."""
    if "chunked" not in fields.get("transfer-encoding", "").lower():
        return await reader.readexactly(int(fields.get("content-length", "0")))
    parts = []
    while True:
        head = await reader.readuntil(b"\r\n")
        size = int(head.split(b";")[0], 16)
        parts.append(head)
        parts.append(await reader.readexactly(size + 2))
        if size == 0:
            return b"".join(parts)
