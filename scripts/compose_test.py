"""``make compose-test``: builds and runs docker-compose.yaml, and writes what happened to .tidemark/compose-test.log.

It makes the images, starts everything, sends the demo's two days, lets Airflow reconcile them while a Spark worker is
killed, and checks the result. In the end nothing of it runs, and its volumes are removed.

Without a registry, the base image is made from Debian's packages, and Prometheus from its Go module. Grafana is left
out then. The project has a name of its own, so that another one on this machine keeps its data.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode
from urllib.request import urlopen

import yaml

import compose_check
from tidemark.core.errors import StackError, TidemarkError
from tidemark.demo.source import DAYS
from tidemark.installation import PROJECT
from tidemark.orchestration.steps import STEPS, dag_id
from tidemark.stack.airflow_api import AirflowApi, TaskState
from tidemark.stack.compose.secrets import AIRFLOW_USER, ENV_FILE, FOLDER, write_secrets
from tidemark.stack.files import free_ports

LOG = PROJECT / ".tidemark" / "compose-test.log"
OVERRIDE = PROJECT / ".tidemark" / "compose-test.yaml"
NAME = "tidemark-test"
STREAM = "flights"
BASE = "debian:bookworm-slim"
IMAGES = ("servers", "postgres", "spark", "airflow")
IMAGE_BYTES_MAX = 2_500_000_000
AUTHORITIES = Path("/usr/local/share/ca-certificates")
PROMETHEUS_MODULE = "github.com/prometheus/prometheus/cmd/prometheus"
UP_S, RUN_S, POLL_S = 1200, 1800, 2
KILLED = "spark-worker-1"
# Airflow runs only what the test triggers, not also yesterday's scheduled run.
_OVERRIDE = {
    "services": {"airflow-scheduler": {"environment": {"AIRFLOW__SCHEDULER__USE_JOB_SCHEDULE": "False"}}},
}
_GO = "module stand-in\n\ngo 1.24\n"
_PROMETHEUS = """\
FROM {base}
RUN apt-get update && apt-get install -y --no-install-recommends busybox && ln -s /bin/busybox /usr/local/bin/wget \\
    && install -d -o 65534 -g 65534 /prometheus && rm -rf /var/lib/apt/lists/*
COPY prometheus /bin/prometheus
ENTRYPOINT ["/bin/prometheus"]
"""


class Report:
    """Prints lines with the time since the start, and writes them to the log."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("w", encoding="utf-8")
        self._start = time.monotonic()

    def say(self, text: str) -> None:
        for line in text.rstrip().splitlines():
            seconds = int(time.monotonic() - self._start)
            text_with_time = f"{seconds // 60}:{seconds % 60:02}  {line.rstrip()}"
            print(text_with_time, flush=True)
            self._file.write(f"{text_with_time}\n")
            self._file.flush()

    @contextmanager
    def step(self, text: str) -> Iterator[None]:
        self.say(f"== {text}")
        yield


def docker(*arguments: str, timeout_s: float = 1800, check: bool = True) -> subprocess.CompletedProcess[str]:
    """Run a command of Docker. Raises StackError with its last lines if it fails."""
    done = subprocess.run(
        ["docker", *arguments],
        cwd=PROJECT,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    if check and done.returncode != 0:
        found = "\n".join((done.stdout + done.stderr).strip().splitlines()[-30:])
        raise StackError(f"docker {' '.join(arguments[:6])} failed", found=f"exit code {done.returncode}\n{found}")
    return done


def compose(*arguments: str, timeout_s: float = 1800, check: bool = True) -> subprocess.CompletedProcess[str]:
    """Run a command of Docker Compose on the test's project."""
    files = ("--file", "docker-compose.yaml", "--file", str(OVERRIDE))
    return docker("compose", "--project-name", NAME, *files, *arguments, timeout_s=timeout_s, check=check)


def tool(*command: str) -> str:
    """The output of a command in the service ``tools``."""
    return compose("run", "--rm", "--no-deps", "--no-TTY", "tools", *command).stdout


def until(wanted: Callable[[], Any], what: str, timeout_s: float) -> Any:
    """Poll until the answer is true. Raises StackError after the time-out."""
    deadline = time.monotonic() + timeout_s
    while not (found := wanted()):
        if time.monotonic() > deadline:
            raise StackError(f"waited in vain: {what}", expected=f"within {timeout_s:.0f} s")
        time.sleep(POLL_S)
    return found


def available(image: str) -> bool:
    """Whether the image is here, or can be pulled."""
    if docker("image", "inspect", image, check=False).returncode == 0:
        return True
    return docker("pull", "--quiet", image, check=False).returncode == 0


def make_base(report: Report) -> None:
    """The base image from Debian's packages, with this machine's own certificate authorities."""
    if shutil.which("mmdebstrap") is None:
        raise StackError(f"{BASE} can't be pulled", hint="Install the package mmdebstrap, which makes it")
    report.say(f"{BASE} can't be pulled: it is made from Debian's packages")
    with tempfile.TemporaryDirectory() as folder:
        tar = Path(folder) / "base.tar"
        own = [f"--customize-hook=copy-in {path} {AUTHORITIES}" for path in sorted(AUTHORITIES.glob("*.crt"))]
        make = [f'--customize-hook=mkdir -p "$1{AUTHORITIES}"', *own]
        subprocess.run(["mmdebstrap", "--quiet", "--variant=minbase", *make, "bookworm", str(tar)], check=True)
        bundle = "/etc/ssl/certs/ca-certificates.crt"
        trust = ["--change", f"ENV PIP_CERT={bundle} SSL_CERT_FILE={bundle}"] if own else []
        docker("import", *trust, str(tar), BASE)


def make_prometheus(report: Report, image: str) -> bool:
    """Prometheus from its Go module; False without Go."""
    if shutil.which("go") is None:
        return False
    report.say(f"{image} can't be pulled: it is made from its Go module")
    major, minor, patch = map(int, image.rpartition(":v")[2].split("."))
    version = f"v0.{major}{minor:02}.{patch}"  # 3.16.0 is the module's 0.316.0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "go.mod").write_text(_GO, encoding="utf-8")
        for command in (
            ["go", "get", f"{PROMETHEUS_MODULE}@{version}"],
            ["go", "build", "-trimpath", "-ldflags=-s -w", "-o", "prometheus", PROMETHEUS_MODULE],
        ):
            subprocess.run(command, cwd=folder, env={**os.environ, "GOFLAGS": "-mod=mod"}, check=True)
        (folder / "Dockerfile").write_text(_PROMETHEUS.format(base=BASE), encoding="utf-8")
        docker("build", "--quiet", "--network", "host", "--tag", image, str(folder))
    return True


def services(report: Report) -> list[str]:
    """The services to start: all but those whose image is not to be had."""
    found = yaml.safe_load((PROJECT / "docker-compose.yaml").read_text(encoding="utf-8"))["services"]
    chosen = []
    for name, service in found.items():
        if "tools" in service.get("profiles", ()):
            continue
        image = str(service["image"])
        ours = image.startswith("tidemark-")
        if ours or available(image) or (name == "prometheus" and make_prometheus(report, image)):
            chosen.append(name)
        else:
            report.say(f"{name} is left out: {image} can't be pulled")
    return chosen


def build(report: Report) -> None:
    """The images, one after the other. Raises StackError if one is too large."""
    for target in IMAGES:
        arguments = ["--build-arg", f"UID={os.getuid() or 1000}", "--target", target, "--tag", f"tidemark-{target}"]
        docker("build", "--quiet", "--network", "host", *arguments, ".", timeout_s=3600)
        size = int(docker("image", "inspect", "--format", "{{.Size}}", f"tidemark-{target}").stdout)
        report.say(f"tidemark-{target:<9} {size / 1e9:.2f} GB")
        if size > IMAGE_BYTES_MAX:
            raise StackError("an image is too large", expected=f"at most {IMAGE_BYTES_MAX}", found=f"{target}: {size}")


def show_services(report: Report) -> None:
    """One line per container."""
    report.say(compose("ps", "--all", "--format", "{{.Service}}\t{{.Status}}").stdout.expandtabs(24))


def applications() -> list[str]:
    """The names of the Spark applications that have executors."""
    ask = f"from urllib.request import urlopen; print(urlopen({compose_check.MASTER!r}).read().decode())"
    found = json.loads(compose("exec", "--no-TTY", "spark-master", "python", "-c", ask).stdout)
    return [item["name"] for item in found["activeapps"] if item["state"] == "RUNNING"]


def reconcile(report: Report, airflow: AirflowApi) -> None:
    """Let Airflow reconcile both days, and kill a Spark worker while it rebuilds. Raises StackError if it fails."""
    dag = dag_id(STREAM)
    until(lambda: airflow.dag_known(dag), f"Airflow finds {dag}", 300)
    airflow.unpause(dag)
    run = airflow.trigger(dag, {"from_day": DAYS[0].isoformat(), "to_day": DAYS[-1].isoformat()})
    killed = False
    shown: dict[str, str] = {}

    def ended() -> str | None:
        nonlocal killed
        states = {item.task: item for item in airflow.task_states(dag, run)}
        for step in STEPS:
            item = states.get(step.name)
            if item is not None and item.state in ("success", "failed") and shown.get(item.task) != item.state:
                shown[item.task] = item.state
                report.say(f"{item.task:<16} {_outcome(item)}")
        if not killed and any("rebuild" in name for name in applications()):
            compose("kill", KILLED)
            report.say(f"{KILLED} is killed while it runs tasks of rebuild")
            killed = True
        state = airflow.run_state(dag, run)
        return state if state in ("success", "failed") else None

    if until(ended, f"{dag} runs", RUN_S) != "success" or not killed:
        raise StackError("the reconcile run failed", found=f"{shown}, worker killed: {killed}")
    compose("up", "--detach", "--no-deps", "--wait", KILLED)
    report.say(f"{KILLED} runs again")


def _outcome(item: TaskState) -> str:
    attempt = f", attempt {item.tries}" if item.tries > 1 else ""
    seconds = "" if item.seconds is None else f" after {item.seconds:.0f} s"
    return f"{item.state}{attempt}{seconds}"


def metrics(port: int) -> str:
    """How many records Prometheus counts by layer. Raises StackError if it lacks one."""
    query = urlencode({"query": "sum by (tidemark_layer) (tidemark_records_total)"})

    def counted() -> dict[str, float]:
        with urlopen(f"http://127.0.0.1:{port}/api/v1/query?{query}", timeout=10) as answer:
            result = json.load(answer)["data"]["result"]
        found = {item["metric"]["tidemark_layer"]: float(item["value"][1]) for item in result}
        return found if {"archive", "speed"} <= found.keys() else {}

    return ", ".join(f"{layer} {value:.0f}" for layer, value in sorted(until(counted, "metrics", 120).items()))


def run(report: Report) -> None:
    """All of it, from the images to the checks."""
    OVERRIDE.write_text(json.dumps(_OVERRIDE), encoding="utf-8")
    with report.step("images"):
        if not available(BASE):
            make_base(report)
        build(report)
        chosen = services(report)
    with report.step("make secrets"):
        report.say(f"{len(write_secrets(FOLDER, ENV_FILE))} files written")
    ports = dict(zip(("AIRFLOW_PORT", "PROMETHEUS_PORT", "GRAFANA_PORT"), free_ports(3), strict=True))
    os.environ.update({name: str(port) for name, port in ports.items()})
    with report.step("docker compose up --wait"):
        compose("up", "--detach", "--no-build", "--wait", "--wait-timeout", str(UP_S), *chosen)
        show_services(report)
    with report.step("tools tidemark doctor flights"):
        lines = tool("tidemark", "doctor", STREAM).splitlines()
        report.say("\n".join(line for line in lines if not line.startswith("ok")))
        report.say(f"{sum(line.startswith('ok') for line in lines)} lines are ok, no line is FAILED")
    with report.step("tools python -m tidemark.demo.deployment send"):
        report.say(tool("python", "-m", "tidemark.demo.deployment", "send"))
    with report.step(f"Airflow runs {dag_id(STREAM)} for {DAYS[0]} and {DAYS[-1]}"):
        url = f"http://127.0.0.1:{ports['AIRFLOW_PORT']}"
        password = json.loads((FOLDER / "airflow-users.json").read_text(encoding="utf-8"))[AIRFLOW_USER]
        reconcile(report, AirflowApi(url, f"{url}/execution/", AIRFLOW_USER, password))
    for day in DAYS:
        with report.step(f"tools tidemark verify {STREAM} {day}"):
            report.say(tool("tidemark", "verify", STREAM, str(day)))
    with report.step("tools python -m tidemark.demo.deployment check"):
        report.say(tool("python", "-m", "tidemark.demo.deployment", "check"))
    with report.step("tools tidemark status"):
        report.say(tool("tidemark", "status"))
    if "prometheus" in chosen:
        with report.step("records that Prometheus counts"):
            report.say(metrics(ports["PROMETHEUS_PORT"]))


def remove(report: Report) -> None:
    """Stop and remove everything. Raises StackError if something is left."""
    with report.step("docker compose down --volumes"):
        compose("--profile", "tools", "down", "--volumes", "--remove-orphans")
        label = ("--filter", f"label=com.docker.compose.project={NAME}", "--quiet")
        left = docker("ps", "--all", *label).stdout + docker("volume", "ls", *label).stdout
        if left.strip():
            raise StackError("containers or volumes are left", found=left)
        report.say("no container and no volume is left")


def main(arguments: Sequence[str]) -> int:
    """Run the test; 0 if everything held. With ``--keep``, a failed one stays up."""
    report, code = Report(LOG), 1
    try:
        run(report)
        code = 0
    except (TidemarkError, OSError, subprocess.SubprocessError) as error:
        report.say(f"FAILED: {error}")
        show_services(report)
        logs = compose("logs", "--no-color", "--tail", "60", check=False).stdout
        LOG.with_suffix(".containers.log").write_text(logs, encoding="utf-8")
    finally:
        if code == 0 or "--keep" not in arguments:
            remove(report)
    report.say("Everything held." if code == 0 else "It failed.")
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
