"""Airflow of the local stack: API servers, scheduler, DAG processor and triggerer as separate, supervised processes.

One API server is for people, the other one for tasks. In one process they could block each other: Airflow logs what
people change in its event loop, where it waits for SQLite's one writer, a task's request that waits for the event loop.

``.tidemark/<name>/airflow/`` holds ``airflow.cfg`` and ``passwords.json`` (mode 600, kept over restarts), the SQLite
database, and the tasks' logs. Everything listens on 127.0.0.1 only.
"""

import configparser
import io
import json
import os
import secrets
import shutil
import sys
import time
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from pathlib import Path
from threading import Event

from tidemark.core.errors import ServiceError, StackError
from tidemark.installation import DAGS, PROJECT
from tidemark.stack.airflow_api import AirflowApi
from tidemark.stack.files import free_ports, write_private
from tidemark.stack.local import LocalStack
from tidemark.stack.processes import Managed
from tidemark.stack.secure import AIRFLOW

TASKS_API = "airflow-tasks-api"
COMPONENTS = {
    "airflow-api": ("api-server", "--apps", "core"),
    TASKS_API: ("api-server", "--apps", "execution"),
    "airflow-scheduler": ("scheduler", "--skip-serve-logs"),
    "airflow-dag-processor": ("dag-processor",),
    "airflow-triggerer": ("triggerer", "--skip-serve-logs"),
}
MIGRATION = "airflow-migrate"
USER = "admin"
# Tidemark's pages inside Airflow's, where the plugin puts them.
PAGES = "plugin/tidemark/tidemark/"
READY_S = 600
POLL_S = 0.5


class LocalAirflow:
    """Airflow for a running LocalStack. Its processes belong to the stack's."""

    def __init__(
        self, stack: LocalStack, *, schedules: bool = True, extra_env: Mapping[str, str] | None = None
    ) -> None:
        """Without ``schedules``, Airflow runs only what is triggered, even for unpaused DAGs."""
        self._extra_env = dict(extra_env or {})
        self.stack = stack
        self.home = stack.folder / "airflow"
        self.schedules = schedules
        self.components: dict[str, Managed] = {}
        self._api: AirflowApi | None = None
        self._cancelled = Event()

    @property
    def password_file(self) -> Path:
        return self.home / "passwords.json"

    @property
    def api(self) -> AirflowApi:
        """A client of the running API server; raises StackError before ``start``."""
        if self._api is None:
            raise StackError("Airflow is not running", where=self.stack.name)
        return self._api

    @property
    def pages_url(self) -> str:
        """The address of Tidemark's pages; raises StackError before ``start``."""
        return f"{self.api.url}/{PAGES}"

    @property
    def env(self) -> dict[str, str]:
        """Variables for ``airflow`` commands of this stack, including the stack's own."""
        return {
            **self.stack.env_of(AIRFLOW),
            "AIRFLOW_HOME": str(self.home),
            "AIRFLOW_CONN_SPARK_DEFAULT": json.dumps({"conn_type": "spark", "host": self.stack.settings.spark_master}),
            # spark-submit and airflow are in this Python's folder.
            "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)]),
            "NO_COLOR": "1",
            **self._extra_env,
        }

    def start(self, *, supervised: bool = False) -> None:
        """Migrate the database, start every component, and return when Airflow is healthy.

        Raises StackError with the log of a component that is not ready within ten minutes, or ends. With
        ``supervised``, an ended component is no error: a supervisor restarts it.
        """
        if shutil.which("spark-submit", path=self.env["PATH"]) is None:
            raise StackError("spark-submit is missing", where=self.env["PATH"], hint="Run 'make install' first")
        self.home.mkdir(parents=True, exist_ok=True, mode=0o700)
        port, tasks_port = free_ports(2, wanted=(self._config().getint("api", "port", fallback=0),))
        tasks_url = f"http://127.0.0.1:{tasks_port}/execution/"
        self._configure(port, tasks_url)
        self._migrate()
        for name, arguments in COMPONENTS.items():
            self._check_wanted()
            own = ("--port", str(tasks_port)) if name == TASKS_API else ()
            self.components[name] = self._start(name, *arguments, *own)
        password = str(json.loads(self.password_file.read_text(encoding="utf-8"))[USER])
        self._api = AirflowApi(f"http://127.0.0.1:{port}", tasks_url, USER, password)
        self._await_healthy(supervised=supervised)

    def stop(self) -> None:
        """Stop Airflow's processes, the last started first. The stack keeps running."""
        for component in reversed(self.components.values()):
            component.stop()

    def unhealthy(self) -> str | None:
        """Why Airflow is not healthy, or None."""
        try:
            health = self.api.health()
        except ServiceError as error:
            return str(error)
        parts = ("metadatabase", "scheduler", "dag_processor", "triggerer", "tasks_api")
        bad = [name for name in parts if health.get(name) != "healthy"]
        return f"not healthy yet: {', '.join(bad)}" if bad else None

    def cancel(self) -> None:
        """Make a ``start`` on another thread fail soon."""
        self._cancelled.set()

    def _check_wanted(self) -> None:
        if self._cancelled.is_set():
            raise StackError("Airflow's start was cancelled", where=self.stack.name)

    def _start(self, name: str, *arguments: str) -> Managed:
        """Start an ``airflow`` command without waiting: the components start together."""
        return self.stack.processes.start(
            name,
            [str(Path(sys.executable).parent / "airflow"), *arguments],
            env=self.env,
            ready=lambda: True,
            timeout_s=READY_S,  # not used: it counts as ready at once
            log=self.stack.logs / f"{name}.log",
            cwd=PROJECT,
        )

    def _await_healthy(self, *, supervised: bool) -> None:
        deadline = time.monotonic() + READY_S
        while (found := self.unhealthy()) is not None:
            self._check_wanted()
            for component in self.components.values():
                if component.died and not supervised:
                    raise component.failure("Airflow could not start")
            if time.monotonic() > deadline:
                raise StackError(
                    "Airflow did not become healthy",
                    expected=f"within {READY_S} s",
                    found=found,
                    where=f"logs: {self.stack.logs}/airflow-*.log",
                )
            time.sleep(POLL_S)

    def _migrate(self) -> None:
        migration = self._start(MIGRATION, "db", "migrate")
        deadline = time.monotonic() + READY_S
        while migration.returncode is None:
            self._check_wanted()
            if time.monotonic() > deadline:
                raise migration.failure(f"Airflow's database was not migrated within {READY_S} s")
            time.sleep(POLL_S)
        if migration.returncode != 0:
            raise migration.failure("Airflow's database could not be migrated")
        migration.stop()  # it has ended on purpose, and must not count as dead

    def _configure(self, port: int, tasks_url: str) -> None:
        before = self._config()
        config = configparser.ConfigParser(interpolation=None)
        config.read_dict(self._options(port, tasks_url, before))
        text = io.StringIO()
        config.write(text)
        # Airflow's own reader interpolates.
        write_private(self.home / "airflow.cfg", text.getvalue().replace("%", "%%"))
        if not self.password_file.exists():
            write_private(self.password_file, json.dumps({USER: secrets.token_urlsafe(12)}) + "\n")

    def _options(self, port: int, tasks_url: str, before: configparser.ConfigParser) -> dict[str, dict[str, str]]:
        def kept(section: str, key: str, fresh: str) -> str:
            return before.get(section, key, fallback=fresh)

        return {
            "core": {
                "dags_folder": str(DAGS),
                "plugins_folder": str(PROJECT / "plugins"),
                "load_examples": "False",
                "executor": "LocalExecutor",
                "parallelism": "4",
                # Two cores can run two Spark applications at once.
                "default_pool_task_slot_count": "2",
                "simple_auth_manager_users": f"{USER}:admin",
                "simple_auth_manager_passwords_file": str(self.password_file),
                "fernet_key": kept("core", "fernet_key", urlsafe_b64encode(secrets.token_bytes(32)).decode()),
                "execution_api_server_url": tasks_url,
                "hostname_callable": "socket.gethostname",
            },
            # By default a process waits 5 s for another one's write, too little while tasks are busy.
            "database": {"sql_alchemy_conn": f"sqlite:///{self.home / 'airflow.db'}?timeout=60"},
            "logging": {"base_log_folder": str(self.home / "logs"), "colored_console_log": "False"},
            "api": {
                "host": "127.0.0.1",
                "port": str(port),
                "base_url": f"http://127.0.0.1:{port}",
                "secret_key": kept("api", "secret_key", secrets.token_hex(32)),
            },
            "api_auth": {"jwt_secret": kept("api_auth", "jwt_secret", secrets.token_hex(64))},
            "scheduler": {
                "use_job_schedule": str(self.schedules),
                "job_heartbeat_sec": "2",
                "scheduler_heartbeat_sec": "2",
                "scheduler_idle_sleep_time": "0.5",
                # Airflow notices a killed task or scheduler within a minute, and retries the task.
                "task_instance_heartbeat_timeout": "30",
                "task_instance_heartbeat_timeout_detection_interval": "5",
                "orphaned_tasks_check_interval": "15",
                "scheduler_health_check_threshold": "15",
            },
            "dag_processor": {
                "parsing_processes": "1",
                "min_file_process_interval": "30",
                "health_check_threshold": "30",
            },
        }

    def _config(self) -> configparser.ConfigParser:
        config = configparser.ConfigParser(interpolation=None)
        config.read(self.home / "airflow.cfg", encoding="utf-8")
        return config
