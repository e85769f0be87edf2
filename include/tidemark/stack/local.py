"""The local stack as one object: Kafka, S3, settings, and an environment for the programs that use them.

``<root>/.tidemark/<name>/`` holds ``stack.env`` (settings, mode 600), ``stack.json`` (pids, ports), ``kafka/``,
``s3/``, ``catalog.db`` and ``logs/``. A new start with the same folder keeps data, credentials and free ports.
"""

import fcntl
import json
import os
import re
import secrets
import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import psutil
from dotenv import dotenv_values

from tidemark.connections.sources import ENV_FILE_VARIABLE
from tidemark.core.errors import ConfigError, StackError
from tidemark.definitions.stream import Stream, load_stream, stream_names
from tidemark.installation import JARS, PACKAGE, PROJECT
from tidemark.s3 import ensure_bucket
from tidemark.settings import Settings
from tidemark.spark.conf import submit_environment
from tidemark.stack.files import env_text, free_ports, write_private
from tidemark.stack.kafka import Node, start_kafka
from tidemark.stack.kafka_security import ADMIN, BrokerSecurity
from tidemark.stack.processes import Processes
from tidemark.stack.s3proxy import start_s3proxy
from tidemark.stack.secure import CATALOG, PORTS, USERS, Secrets, SecureServices

BUCKET = "tidemark"
OWNER = ADMIN
# In requests, which pyiceberg uses for REST catalogs, they win over the authority in the settings.
_OTHER_AUTHORITIES = ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
LOCK = "stack.lock"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")
# How long the processes of a killed supervisor may take to end; see guard.py.
LEFTOVERS_S = 20


class LocalStack:
    """Kafka and S3 on free ports of 127.0.0.1; a context manager that starts and stops them."""

    def __init__(
        self, name: str, *, root: Path, streams_dir: Path | None = None, fresh: bool = False, secure: bool = False
    ) -> None:
        """``fresh``: the start removes everything that an earlier stack of this name left in its folder.

        ``secure``: as ``tidemark.stack.secure`` describes; an earlier stack's data stay as they were.
        """
        if not _NAME.fullmatch(name):
            raise ConfigError(
                "invalid name of a local stack", expected="letters, digits, '-' and '_'", found=repr(name)
            )
        self.name = name
        self.fresh = fresh
        self.folder = root.resolve() / ".tidemark" / name
        self.jars = PROJECT / JARS
        self.streams_dir = (streams_dir or PROJECT / "include" / "streams").resolve()
        self._lock: int | None = None
        self._wants_secure = secure
        self._secure: SecureServices | None = None
        self._settings: dict[str, Settings] = {}
        self._processes: Processes | None = None

    @property
    def env_file(self) -> Path:
        return self.folder / "stack.env"

    @property
    def logs(self) -> Path:
        return self.folder / "logs"

    @property
    def settings(self) -> Settings:
        """The running stack's settings; raises StackError before ``start``. If it is secured: those of its owner."""
        if not self._settings:
            raise StackError("the local stack is not running", where=self.name)
        return self._settings[OWNER]

    def settings_of(self, user: str) -> Settings:
        """The settings of one of a secured stack's users (``secure.USERS``); those of any other stack are for all."""
        return self._settings.get(user, self.settings)

    @property
    def processes(self) -> Processes:
        """The running stack's processes; callers may add more. Raises StackError before ``start``."""
        if self._processes is None:
            raise StackError("the local stack is not running", where=self.name)
        return self._processes

    @property
    def env(self) -> dict[str, str]:
        """Variables that a program needs, besides inherited ones, to import Tidemark and use this stack."""
        return self.env_of(OWNER)

    def env_of(self, user: str) -> dict[str, str]:
        """As ``env``, for one of a secured stack's users."""
        paths = [str(PACKAGE.parent), *filter(None, [os.environ.get("PYTHONPATH")])]
        return {
            ENV_FILE_VARIABLE: str(self._env_file(user) if user in self._settings else self.env_file),
            "PYTHONPATH": os.pathsep.join(paths),
            # Drivers listen on this machine only, whatever address its host name has.
            "SPARK_LOCAL_IP": "127.0.0.1",
            **submit_environment(self.settings_of(user)),
        }

    def start(self) -> None:
        """Start Kafka and S3, and wait until both answer. Raises StackError, and leaves nothing running then."""
        self._acquire()
        assert self._lock is not None
        self._processes = Processes(keep_open=[self._lock])
        try:
            if self.fresh:
                self._clear()
            self._start()
        except BaseException:
            self.stop()
            raise

    def permit(self, *streams: Stream) -> None:
        """Grant a secured stack's users what they need in Kafka for these streams; nothing for any other stack."""
        if self._secure is not None:
            self._secure.permit(streams, self.settings)

    def _start(self) -> None:
        before = self._state()
        secure = self._wants_secure or bool(before.get("secure"))
        if self._wants_secure and before and not before.get("secure"):
            raise StackError(
                "this local stack has data and is not secured", where=str(self.folder), hint="Give it another name"
            )
        names = PORTS if secure else ("kafka", "controller", "s3")
        wanted = tuple(before.get("ports", {}).get(name, 0) for name in names)
        ports = dict(zip(names, free_ports(len(names), wanted=wanted), strict=True))
        if secure:
            self._start_secure(ports)
        else:
            self._start_plain(ports)
        pids = {managed.name: managed.pid for managed in self.processes}
        state = {"secure": secure, "ports": ports, "pids": {"stack": os.getpid(), **pids}}
        write_private(self.folder / "stack.json", json.dumps(state, indent=2) + "\n")

    def _start_plain(self, ports: Mapping[str, int]) -> None:
        values = self._plain_values(ports["kafka"], ports["s3"])
        settings = _settings(values)
        self._start_servers(ports, settings, None)
        write_private(self.env_file, env_text(values))
        self._settings = {OWNER: settings}

    def _start_secure(self, ports: Mapping[str, int]) -> None:
        for name in _OTHER_AUTHORITIES:
            os.environ.pop(name, None)
        known = Secrets.kept(self.folder / "secrets.json")
        access_key, secret_key = known.upstream
        own = {"TIDEMARK_S3_ACCESS_KEY": access_key, "TIDEMARK_S3_SECRET_KEY": secret_key}
        upstream = _settings(self._plain_values(ports["kafka"], ports["s3"]) | own)
        services = SecureServices(self.folder, ports, self._shared_values(), known, upstream)
        values = {user: services.variables(user) for user in (OWNER, *USERS)}
        settings = {user: _settings(of_user) for user, of_user in values.items()}
        self._start_servers(ports, upstream, services.security)
        services.start(self.processes, jars=self.jars, logs=self.logs, catalog=settings[CATALOG])
        for user, of_user in values.items():
            write_private(self._env_file(user), env_text(of_user))
        self._settings, self._secure = settings, services
        self.permit(*(load_stream(name, self.streams_dir) for name in stream_names(self.streams_dir)))

    def _start_servers(self, ports: Mapping[str, int], s3: Settings, security: BrokerSecurity | None) -> None:
        """Start Kafka, and the S3 server of the settings with its bucket."""
        start_kafka(
            self.processes,
            self.folder / "kafka",
            Node(port=ports["kafka"], voters={1: ports["controller"]}, essential=True, security=security),
            jars=self.jars / "kafka",
            log=self.logs / "kafka.log",
        )
        start_s3proxy(
            self.processes,
            self.folder / "s3",
            jars=self.jars / "s3",
            log=self.logs / "s3proxy.log",
            port=ports["s3"],
            settings=s3,
        )
        ensure_bucket(s3)

    def stop(self) -> None:
        """Stop every process, the last started first, and keep the data. May be called if nothing runs."""
        self._settings, self._secure = {}, None
        if self._processes is not None:
            self._processes.stop()
            self._processes = None
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _acquire(self) -> None:
        """Lock the folder. The guard holds the lock too: it is released after a killed supervisor's processes ended."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self.folder.chmod(0o700)  # the servers' own files, with every record, are readable for all
        except (FileExistsError, NotADirectoryError) as error:
            raise StackError("there is a file in place of a local stack's folder", where=str(self.folder)) from error
        path = self.folder / LOCK
        lock = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        deadline = time.monotonic() + LEFTOVERS_S
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                owner = int(os.pread(lock, 20, 0) or b"0")
                if psutil.pid_exists(owner) or time.monotonic() > deadline:
                    os.close(lock)
                    raise StackError(
                        f"the local stack '{self.name}' is running already",
                        found=f"pid {owner}",
                        where=str(self.folder),
                        hint="Use it, or stop it with Ctrl-C",
                    ) from None
                time.sleep(0.2)
        os.ftruncate(lock, 0)
        os.pwrite(lock, str(os.getpid()).encode(), 0)
        self._lock = lock

    def _clear(self) -> None:
        """Empty the folder, except for the lock."""
        for path in self.folder.iterdir():
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            elif path.name != LOCK:
                path.unlink()

    def _state(self) -> dict[str, Any]:
        try:
            state = json.loads((self.folder / "stack.json").read_text(encoding="utf-8"))
        except (FileNotFoundError, ValueError):
            return {}
        return state if isinstance(state, dict) else {}

    def _env_file(self, user: str) -> Path:
        return self.env_file if user == OWNER else self.folder / f"stack-{user}.env"

    def _shared_values(self) -> dict[str, str]:
        return {
            "TIDEMARK_BUCKET": BUCKET,
            "TIDEMARK_STREAMS_DIR": str(self.streams_dir),
            "TIDEMARK_JARS_DIR": str(self.jars / "spark"),
            # The settings are complete. An Airflow connection of another deployment must not add to them.
            **{f"TIDEMARK_{kind}_CONNECTION": "" for kind in ("KAFKA", "S3", "CATALOG")},
        }

    def _plain_values(self, kafka_port: int, s3_port: int) -> dict[str, str]:
        before = dotenv_values(self.env_file, interpolate=False) if self.env_file.exists() else {}
        return {
            "TIDEMARK_KAFKA_BOOTSTRAP": f"127.0.0.1:{kafka_port}",
            "TIDEMARK_S3_ENDPOINT": f"http://127.0.0.1:{s3_port}",
            "TIDEMARK_S3_ACCESS_KEY": before.get("TIDEMARK_S3_ACCESS_KEY") or secrets.token_hex(10),
            "TIDEMARK_S3_SECRET_KEY": before.get("TIDEMARK_S3_SECRET_KEY") or secrets.token_hex(20),
            "TIDEMARK_CATALOG_URI": f"jdbc:sqlite:{self.folder / 'catalog.db'}",
            **self._shared_values(),
        }


def running_stacks(root: Path) -> tuple[str, ...]:
    """The sorted names of the running local stacks: those with a held lock."""
    found = []
    for path in sorted((root / ".tidemark").glob(f"*/{LOCK}")):
        with path.open("rb") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                found.append(path.parent.name)
    return tuple(found)


def _settings(values: Mapping[str, str]) -> Settings:
    """Settings from exactly these variables, without those of another deployment in this shell."""
    return Settings.model_validate({name.removeprefix("TIDEMARK_").lower(): text for name, text in values.items()})
