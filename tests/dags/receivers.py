"""Where notifications arrive: a mail server and a web server, and an Airflow that sends to both."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email import message_from_bytes, policy
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

from aiosmtpd.controller import Controller

from tests.pages import blocks
from tidemark.installation import PACKAGE, PROJECT
from tidemark.stack.files import free_ports

MODULE = "own_notifiers"


@dataclass(kw_only=True)
class Receivers:
    """What has arrived. While ``refuses``, the web server answers 500, and nothing arrives there."""

    smtp_port: int
    http_port: int
    mails: list[dict[str, str]] = field(default_factory=list)
    posts: list[dict[str, str]] = field(default_factory=list)
    refuses: bool = False

    def environment(self, folder: Path) -> dict[str, str]:
        """Variables for Airflow. The webhook's class is the one that the documentation shows."""
        (text,) = (
            item.text for item in blocks(PROJECT / "docs/how-to/get-notified.md") if "(BaseNotifier)" in item.text
        )
        (folder / f"{MODULE}.py").write_text(text, encoding="utf-8")
        smtp = {
            "conn_type": "smtp",
            "host": "127.0.0.1",
            "port": self.smtp_port,
            "extra": {"disable_ssl": True, "disable_tls": True},
        }
        http = {"conn_type": "http", "schema": "http", "host": "127.0.0.1", "port": self.http_port}
        mail = {"from_email": "a@example.com", "to": "b@example.com", "subject": "{{ watch.subject }}"}
        notifiers = [
            {
                "class": "airflow.providers.smtp.notifications.smtp.SmtpNotifier",
                "kwargs": {**mail, "smtp_conn_id": "smtp_default", "html_content": "{{ watch.html }}"},
            },
            {"class": f"{MODULE}.WebhookNotifier", "kwargs": {"http_conn_id": "hook"}},
        ]
        paths = [str(folder), str(PACKAGE.parent), *filter(None, [os.environ.get("PYTHONPATH")])]
        return {
            "AIRFLOW_CONN_SMTP_DEFAULT": json.dumps(smtp),
            "AIRFLOW_CONN_HOOK": json.dumps(http),
            "TIDEMARK_NOTIFIERS": json.dumps(notifiers),
            "PYTHONPATH": os.pathsep.join(paths),
        }

    async def handle_DATA(self, _server: Any, _session: Any, envelope: Any) -> str:  # noqa: N802 - aiosmtpd's name
        """A mail arrives."""
        mail = message_from_bytes(envelope.content, policy=policy.default)
        body = mail.get_body(("html",))
        assert body is not None
        self.mails.append({"subject": str(mail["subject"]), "html": body.get_content()})
        return "250 OK"


@contextmanager
def receiving() -> Iterator[Receivers]:
    """Both servers, until the end of the block."""
    smtp_port, http_port = free_ports(2)
    found = Receivers(smtp_port=smtp_port, http_port=http_port)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if not found.refuses:
                found.posts.append(json.loads(body))
            self.send_response(500 if found.refuses else 200)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    smtp = Controller(found, hostname="127.0.0.1", port=smtp_port)
    smtp.start()
    web = HTTPServer(("127.0.0.1", http_port), Handler)
    thread = Thread(target=web.serve_forever, daemon=True)
    thread.start()
    try:
        yield found
    finally:
        web.shutdown()
        thread.join()
        web.server_close()
        smtp.stop()
