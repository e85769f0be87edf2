"""As much of the Kubernetes API as Spark's driver asks for, and a kubelet that runs the executors' real commands."""

import json
import re
import subprocess
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

_RESOURCE = re.compile(r"/api/v1/namespaces/(?P<namespace>[^/]+)/(?P<kind>[a-z]+)(?:/(?P<name>[^/]+))?$")
_VERBS = {"GET": "list", "POST": "create", "DELETE": "deletecollection", "PUT": "update", "PATCH": "patch"}
_NAMED = {"GET": "get", "DELETE": "delete"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One request, as an access rule sees it."""

    verb: str
    kind: str
    body: Any


@dataclass
class Cluster:
    """Objects and calls. ``paths`` has the real path of each path in a pod.

    ``environment`` are the image's variables, ``entry_point`` is its command.
    """

    folder: Path
    paths: Mapping[str, Path]
    environment: Mapping[str, str]
    entry_point: Sequence[str]
    calls: list[Call] = field(default_factory=list)
    objects: dict[tuple[str, str], Any] = field(default_factory=dict)
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def answer(self, call: Call, name: str | None) -> tuple[int, Any]:
        """Code and body of the answer."""
        self.calls.append(call)
        match call.verb:
            case "create":
                return 201, self.create(call.kind, call.body)
            case "get":
                item = self.objects.get((call.kind, str(name)))
                return (200, item) if item else (404, _status(404))
            case "delete" | "deletecollection":
                return 200, _status(200)
            case "watch":
                return 200, None
        items = [item for (kind, _), item in self.objects.items() if kind == call.kind]
        return 200, {"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": items}

    def create(self, kind: str, body: Any) -> Any:
        """Keep the object as the API would, and run a pod."""
        name = body["metadata"]["name"]
        body["metadata"] |= {"uid": name, "namespace": "data", "creationTimestamp": "2026-01-01T00:00:00Z"}
        if kind == "pods":
            body["status"] = {"phase": "Running", "podIP": "127.0.0.1"}
            self.processes[name] = self._run(name, body["spec"])
        self.objects[kind, name] = body
        return body

    def _run(self, name: str, spec: Any) -> subprocess.Popen[bytes]:
        """The container's command, with no variables but the image's and its own, in a folder of its own."""
        (container,) = spec["containers"]
        scratch = self.folder / name
        scratch.mkdir()
        variables = {item["name"]: self._value(item, name) for item in container["env"]}
        with (self.folder / f"{name}.log").open("wb") as log:
            return subprocess.Popen(
                [self._real(word) for word in (*container.get("command", self.entry_point), *container["args"])],
                env={**self.environment, **variables},
                cwd=scratch,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def _value(self, item: Any, pod: str) -> str:
        if "valueFrom" in item:
            fields = {"status.podIP": "127.0.0.1", "metadata.name": pod}
            return fields[item["valueFrom"]["fieldRef"]["fieldPath"]]
        return self._real(item.get("value", ""))

    def _real(self, text: str) -> str:
        for path, real in self.paths.items():
            text = text.replace(path, str(real))
        return text

    def stop(self) -> None:
        """End what still runs."""
        for process in self.processes.values():
            process.kill()
            process.wait()


def _status(code: int) -> Any:
    return {"kind": "Status", "apiVersion": "v1", "code": code, "status": "Success" if code == 200 else "Failure"}


def serve(cluster: Cluster) -> ThreadingHTTPServer:
    """Serve it on a free port of this machine; the caller shuts it down."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _answer(self) -> None:
            url = urlsplit(self.path)
            found = _RESOURCE.match(url.path)
            length = int(self.headers.get("Content-Length", 0))
            body = json.loads(self.rfile.read(length)) if length else None
            if found is None:
                self._send(404, _status(404))
                return
            watching = parse_qs(url.query).get("watch") == ["true"]
            verb = "watch" if watching else (_NAMED if found["name"] else _VERBS)[self.command]
            with cluster.lock:
                self._send(*cluster.answer(Call(verb=verb, kind=found["kind"], body=body), found["name"]))

        def _send(self, code: int, value: Any) -> None:
            text = b"" if value is None else json.dumps(value).encode()
            self.send_response(code)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        do_GET = do_POST = do_DELETE = do_PUT = do_PATCH = _answer  # noqa: N815 - the base class's names

        def log_message(self, *_: object) -> None:
            """Nothing: the calls are kept."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server
