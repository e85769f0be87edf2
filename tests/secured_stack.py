"""A secured stack whose secrets are recognisable, and Tidemark's programs as its users, watched from outside."""

import gzip
import json
import os
import secrets
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Self

import psutil

from tests.shared_classes import spark_options
from tidemark.installation import PROJECT
from tidemark.s3 import ObjectStore
from tidemark.stack.files import write_private
from tidemark.stack.java import BRIEF_JVM
from tidemark.stack.local import OWNER, LocalStack
from tidemark.stack.s3_gate.config import GateConfig, GateUser
from tidemark.stack.secure import USERS

TIMEOUT_S = 800
SAMPLED_EVERY_S = 0.2
# What must hold secrets, and nobody else may read: the users' settings, and the servers' own configurations.
KEEPERS = ("secrets.json", "stack*.env", "certificates/*", "kafka/server.properties", "s3/s3proxy.properties",
    "s3_gate.json")  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """A program that a user ran."""

    command: str
    code: int
    output: str
    messages: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Planted:
    """The words of which every secret of a stack is made."""

    mark: str
    texts: tuple[str, ...]

    @classmethod
    def in_folder(cls, folder: Path) -> Self:
        """Write ``secrets.json`` and ``s3_gate.json`` before the stack does."""
        mark = f"planted{secrets.token_hex(6)}"
        users = (OWNER, *USERS)
        found = {
            "kafka": {user: f"{mark}kafka{user}" for user in users},
            "upstream": [secrets.token_hex(10), f"{mark}upstream"],
        }
        gate = GateConfig(
            port=0,
            certificate="",
            key="",
            upstream="",
            upstream_access_key="",
            upstream_secret_key="",
            token_key=f"{mark}{secrets.token_hex(32)}",
            users=[
                GateUser(
                    name=user,
                    access_key=secrets.token_hex(10),
                    secret_key=f"{mark}s3{user}{secrets.token_hex(8)}",
                )
                for user in users
            ],
        )
        folder.mkdir(parents=True)
        write_private(folder / "secrets.json", json.dumps(found))
        gate.write(folder / "s3_gate.json")
        return cls(mark=mark, texts=(mark,))

    def with_keys(self, folder: Path) -> Self:
        """The private keys, too, of which a line is enough."""
        files = [path.read_text(encoding="ascii") for path in folder.iterdir() if path.suffix in {".pem", ".key"}]
        lines = [text.split("PRIVATE KEY-----\n")[1].splitlines()[1] for text in files if "PRIVATE KEY-----" in text]
        assert lines
        return type(self)(mark=self.mark, texts=(*self.texts, *lines))

    def among(self, shown: Mapping[str, bytes]) -> list[str]:
        """The names of the texts that have any of them."""
        words = [text.encode() for text in self.texts]
        return sorted(name for name, data in shown.items() if any(word in data for word in words))


@dataclass(kw_only=True)
class Secured:
    """The running stack, what its users ran, and every command line that was seen meanwhile."""

    stack: LocalStack
    planted: Planted
    events: Path
    ended: list[Ended] = field(default_factory=list)
    commands: set[str] = field(default_factory=set)
    _over: threading.Event = field(default_factory=threading.Event)

    def run(self, user: str, *commands: Sequence[str]) -> None:
        """Run commands of the user in one process, with Spark's event log on; see ``secured_program``."""
        inherited = {key: text for key, text in os.environ.items() if not key.startswith(("TIDEMARK_", "AWS_"))}
        brief = {**BRIEF_JVM, **spark_options(self.events.parent)}
        own = {"COLUMNS": "300", "SPARK_CONF_DIR": str(self.events.parent)}
        with TemporaryDirectory(dir=self.events.parent) as name:
            done = subprocess.run(
                [sys.executable, "-m", "tests.secured_program", name, json.dumps(commands)],
                cwd=PROJECT,
                env={**inherited, **brief, **self.stack.env_of(user), **own},
                capture_output=True,
                text=True,
                timeout=TIMEOUT_S,
                check=False,
            )
            folder = Path(name)
            for number, words in enumerate(commands):
                command, code = f"{user} {' '.join(words)}", folder / f"{number}.code"
                assert code.exists(), f"{command} did not end: {done.returncode}\n{done.stderr[-4000:]}"
                self.ended.append(
                    Ended(
                        command=command,
                        code=int(code.read_text(encoding="ascii")),
                        output=code.with_suffix(".out").read_text(encoding="utf-8"),
                        messages=code.with_suffix(".err").read_text(encoding="utf-8"),
                    )
                )

    def watch(self) -> None:
        own = psutil.Process()
        while not self._over.wait(SAMPLED_EVERY_S):
            for process in own.children(recursive=True):
                with suppress(psutil.Error):
                    self.commands.add(" ".join(process.cmdline()))

    def end(self) -> None:
        self._over.set()

    def files(self) -> dict[str, bytes]:
        """Everything below the stack's folder, and Spark's event logs, except for what must hold secrets.

        The servers run on: a file that is renamed or deleted meanwhile is not there.
        """
        keepers = {path for pattern in KEEPERS for path in self.stack.folder.glob(pattern)}
        assert all(path.is_dir() or path.stat().st_mode & 0o077 == 0 for path in keepers), keepers
        found = [path for folder in (self.stack.folder, self.events) for path in folder.rglob("*")]
        read = {}
        for path in found:
            with suppress(FileNotFoundError):
                if path.is_file() and path not in keepers:
                    read[str(path)] = path.read_bytes()
        return read

    def objects(self) -> dict[str, bytes]:
        """Every object of the bucket, unpacked."""
        store, found = ObjectStore(self.stack.settings), {}
        for item in store.list(""):
            data = store.get(item.key)
            if data is not None and not item.key.endswith("/"):
                found[item.key] = gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data
        return found


@contextmanager
def secured(root: Path, streams: Path) -> Iterator[Secured]:
    """A fresh stack, which permits its users what the streams in the folder need."""
    conf = root / "spark-conf"
    events = conf / "events"
    events.mkdir(parents=True)
    lines = ("enabled true", f"dir file://{events}", "compress false", "rolling.enabled false")
    (conf / "spark-defaults.conf").write_text("".join(f"spark.eventLog.{line}\n" for line in lines), encoding="utf-8")
    stack = LocalStack("secured", root=root, streams_dir=streams, secure=True)
    planted = Planted.in_folder(stack.folder)
    with stack:
        found = Secured(stack=stack, planted=planted.with_keys(stack.folder / "certificates"), events=events)
        watcher = threading.Thread(target=found.watch, name="commands")
        watcher.start()
        try:
            yield found
        finally:
            found.end()
            watcher.join()
