"""docker-compose.yaml without Docker: what each service must have, and what 'make secrets' writes for it."""

import json
import os
import re
import shlex
import shutil
import stat
import subprocess
import sys
import tomllib
from configparser import ConfigParser
from pathlib import Path
from typing import Any

import pytest
import yaml
from cryptography import x509
from dotenv import dotenv_values

import compose_check
from tests.deploy.test_contents import accept
from tests.pages import blocks
from tidemark.installation import PROJECT
from tidemark.settings import resolve
from tidemark.stack.compose.secrets import write_secrets

COMPOSE: dict[str, Any] = yaml.safe_load((PROJECT / "docker-compose.yaml").read_text(encoding="utf-8"))
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
DOCKERFILE = (PROJECT / "Dockerfile").read_text(encoding="utf-8")
by_service = pytest.mark.parametrize("name", SERVICES)


def stages() -> dict[str, str]:
    """The text of each stage of the Dockerfile."""
    parts = re.split(r"(?m)^FROM \S+ AS (\S+)$", re.sub(r"(?m)^#.*\n", "", DOCKERFILE))
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def mounts(service: dict[str, Any]) -> dict[str, str]:
    """A service's secrets by their path below /run/secrets."""
    found = [{"source": item} if isinstance(item, str) else item for item in service.get("secrets", ())]
    return {item.get("target", item["source"]): item["source"] for item in found}


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder like the project's, after 'make secrets'."""
    folder = tmp_path_factory.mktemp("compose")
    write_secrets(folder / "secrets", folder / ".env")
    return folder


@by_service
def test_a_service_is_checked_limited_and_has_no_rights(name: str) -> None:
    service = SERVICES[name]
    check = service["healthcheck"]
    if check.get("disable"):
        assert service["restart"] == "no", "only a service that ends needs no check"
    else:
        assert check["test"][0] == "CMD"
        assert {"interval", "timeout", "retries"} <= set(check)
    assert re.fullmatch(r"\d+[mg]", service["mem_limit"])
    user = str(service["user"])
    assert user.startswith("${CONTAINER_UID:?") or int(user.partition(":")[0]) > 0
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert all(port.startswith("127.0.0.1:") for port in service.get("ports", ()))


@by_service
def test_an_image_is_built_here_or_pinned(name: str) -> None:
    image = str(SERVICES[name]["image"])
    built = {str(service["image"]): service["build"]["target"] for service in SERVICES.values() if "build" in service}
    if image.startswith("tidemark-"):
        assert built[image] == image.removeprefix("tidemark-")
        assert built[image] in stages()
    else:
        assert re.fullmatch(r"[\w./-]+:v?\d+\.\d+\.\d+(@sha256:[0-9a-f]{64})?", image)


def test_the_images_have_a_user_of_their_own_and_every_file_that_they_copy() -> None:
    allowed = {
        line.removeprefix("!") for line in (PROJECT / ".dockerignore").read_text().splitlines() if line[0] == "!"
    }
    found = stages()
    for service in SERVICES.values():
        if "build" in service:
            assert found[service["build"]["target"]].rstrip().endswith("\nUSER tidemark")
    for sources in re.findall(r"(?m)^COPY (?!--from)(.+) \S+$", DOCKERFILE):
        for source in sources.split():
            assert (PROJECT / source).exists()
            assert source.split("/")[0] in allowed
    assert set(re.findall(r"--from=(\S+)", DOCKERFILE)) <= set(found)
    for name in ("spark", "airflow"):
        assert '\nENTRYPOINT ["/tidemark/compose/spark.sh"]\n' in found[name]
    for script in re.findall(r"scripts/\w+\.py|compose/[\w.]+", json.dumps(SERVICES)):
        assert (PROJECT / script).exists() or (PROJECT / script).is_dir()


def test_the_images_package_is_made_of_the_files_that_its_stage_has_copied(tmp_path: Path) -> None:
    before, installation, _ = stages()["build"].partition("setup_python.py spark")
    assert installation
    for line in re.findall(r"(?m)^COPY (.+)$", before):
        *sources, target = line.split()
        (tmp_path / target).mkdir(parents=True, exist_ok=True)
        for source in sources:
            shutil.copy(PROJECT / source, tmp_path / target)
    (tmp_path / "README.md").touch()
    make = "from hatchling.build import build_editable; print(build_editable('.'))"
    made = subprocess.run(
        [sys.executable, "-c", make], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60
    )
    assert made.stdout.endswith(".whl\n"), made.stderr


@pytest.mark.parametrize("command", [["sh", "-c", "umask; echo $SPARK_HOME"], ["driver"]], ids=["any", "driver"])
def test_the_entry_point_runs_any_command_and_a_driver_that_kubernetes_starts(
    command: list[str], tmp_path: Path
) -> None:
    seen = tmp_path / "spark-submit"
    seen.write_text('#!/bin/sh\numask\nprintf "%s\\n" "$@"\n', encoding="utf-8")
    seen.chmod(0o755)
    given = ["--properties-file", "/opt/spark/conf/spark.properties", "local:///tidemark/spark_apps/audit.py", "a b"]
    done = subprocess.run(
        [PROJECT / "compose" / "spark.sh", *command, *(given if command == ["driver"] else [])],
        env={
            "PATH": f"{tmp_path}:{os.environ['PATH']}",
            "SPARK_HOME": "/home",
            "SPARK_DRIVER_BIND_ADDRESS": "10.0.0.9",
        },
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    expected = ["--deploy-mode", "client", "--conf", "spark.driver.bindAddress=10.0.0.9", *given]
    assert done.stdout.splitlines() == ["0077", *(expected if command == ["driver"] else ["/home"])]


@by_service
def test_no_secret_stands_in_the_file(name: str) -> None:
    values = dict(SERVICES[name].get("environment", {}))
    for key, value in values.items():
        assert not re.search(r"://[^/@\s]*:[^/@\s]*@", str(value)), key
        if re.search(r"SECRET|PASSWORD(?!S_FILE)|ACCESS_KEY|CREDENTIAL|TOKEN|FERNET|PROPERTIES", key):
            assert str(value).startswith("/run/secrets/"), key


def test_every_variable_is_required_and_written_or_a_port(written: Path) -> None:
    text = (PROJECT / "docker-compose.yaml").read_text(encoding="utf-8")
    used = re.findall(r"\$\{(\w+)(:?[-?])?", text)
    assert {name for name, default in used if default == ":-"} == {"AIRFLOW_PORT", "PROMETHEUS_PORT", "GRAFANA_PORT"}
    assert {name for name, default in used if default == ":?"} == set(dotenv_values(written / ".env"))
    assert {default for _, default in used} == {":-", ":?"}


def test_every_secret_is_written_for_its_owner_alone_declared_and_used(written: Path) -> None:
    files = {name: written / item["file"] for name, item in COMPOSE["secrets"].items()}
    assert [name for name, path in files.items() if not path.is_file()] == []
    assert {source for service in SERVICES.values() for source in mounts(service).values()} == set(files)
    everything = [path for path in (written / "secrets").rglob("*") if path.is_file()]
    assert {stat.S_IMODE(path.stat().st_mode) for path in everything} == {0o600}
    assert stat.S_IMODE((written / "secrets").stat().st_mode) == 0o700
    key = (written / "secrets" / "certificates" / "ca.key").name
    assert not any(item["file"].endswith(key) for item in COMPOSE["secrets"].values())


def test_another_run_changes_nothing_and_keeps_what_a_person_wrote(written: Path, tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("AIRFLOW_PORT=8081", encoding="utf-8")
    first = write_secrets(tmp_path / "secrets", tmp_path / ".env")
    assert tmp_path / ".env" in first
    assert dotenv_values(tmp_path / ".env")["AIRFLOW_PORT"] == "8081"
    (tmp_path / "secrets" / "spark-defaults.conf").write_text("spark.ui.enabled true\n", encoding="utf-8")
    (tmp_path / "secrets" / "archive.env").unlink()
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert write_secrets(tmp_path / "secrets", tmp_path / ".env") == [tmp_path / "secrets" / "archive.env"]
    after = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert after.pop(tmp_path / "secrets" / "archive.env") is not None
    assert after == before
    own = json.loads((written / "secrets" / "secrets.json").read_text())
    other = json.loads((tmp_path / "secrets" / "secrets.json").read_text())
    assert all(own[name] != other[name] for name in own)


@pytest.mark.parametrize("name", [name for name, item in SERVICES.items() if "tidemark" in mounts(item)])
def test_the_settings_of_a_service_are_complete_and_its_users_own(name: str, written: Path) -> None:
    service = SERVICES[name]
    variables = {key: str(value) for key, value in service["environment"].items()}
    secret = mounts(service)["tidemark"]
    assert variables["TIDEMARK_ENV_FILE"] == "/run/secrets/tidemark"
    variables["TIDEMARK_ENV_FILE"] = str(written / COMPOSE["secrets"][secret]["file"])
    found = resolve(variables=variables).settings
    kafka = found.kafka_properties.get_secret_value()
    assert kafka["sasl.username"] == secret.removesuffix("-env")
    assert kafka["security.protocol"] == "SASL_SSL"
    assert str(found.s3_endpoint).startswith("https://")
    assert found.s3_secret_key.get_secret_value()
    assert found.catalog_uri.startswith("jdbc:postgresql://postgres:")
    assert found.spark_master == "spark://spark-master:7077"
    assert "/run/secrets/ca" in (f"/run/secrets/{target}" for target in mounts(service))


def test_three_brokers_need_two_copies_and_encrypt_everything(written: Path) -> None:
    for node in (1, 2, 3):
        lines = (written / "secrets" / f"kafka-{node}.properties").read_text().splitlines()
        found = dict(line.split("=", 1) for line in lines)
        assert found["node.id"] == str(node)
        assert f"SCRAM://kafka-{node}:9092" in found["advertised.listeners"]
        assert found["default.replication.factor"] == found["offsets.topic.replication.factor"] == "3"
        assert found["min.insync.replicas"] == found["transaction.state.log.min.isr"] == "2"
        protocols = dict(item.split(":") for item in found["listener.security.protocol.map"].split(","))
        used = re.findall(r"(\w+)://", found["listeners"])
        assert {protocols[listener] for listener in used} == {"SASL_SSL"}
        assert found["authorizer.class.name"].endswith("StandardAuthorizer")


@pytest.mark.parametrize("host", ["kafka-1", "kafka-2", "kafka-3", "s3", "postgres"])
def test_a_servers_certificate_has_the_name_that_clients_use(host: str, written: Path) -> None:
    folder = written / "secrets" / "certificates"
    own, ca = (x509.load_pem_x509_certificate((folder / f"{name}.pem").read_bytes()) for name in (host, "ca"))
    own.verify_directly_issued_by(ca)
    names = own.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == [host, "localhost"]
    assert host in SERVICES


def test_spark_and_airflow_get_secrets_that_no_other_file_shows(written: Path) -> None:
    folder = written / "secrets"
    spark = dict(line.split() for line in (folder / "spark-defaults.conf").read_text().splitlines())
    page = blocks(PROJECT / "docs" / "how-to" / "use-a-spark-cluster.md")
    (advised,) = (block.text for block in page if "spark.deploy.recoveryMode" in block.text)
    same = dict(line.split() for line in advised.splitlines())
    own_values = {"spark.authenticate.secret", "spark.deploy.recoveryDirectory"}
    assert {key: spark.get(key) for key in same.keys() - own_values} == {
        key: same[key] for key in same.keys() - own_values
    }
    (volume,) = SERVICES["spark-master"]["volumes"]
    assert spark["spark.deploy.recoveryDirectory"].startswith(f"{volume.partition(':')[2]}/")
    for name, service in SERVICES.items():
        if "SPARK_CONF_DIR" in service.get("environment", {}) and name not in ("setup", "airflow-api"):
            assert mounts(service)["spark/spark-defaults.conf"] == "spark-defaults"
    airflow = ConfigParser(interpolation=None)
    airflow.read(folder / "airflow.cfg")
    assert airflow["database"]["sql_alchemy_conn"].startswith("postgresql+psycopg2://airflow:")
    known = json.loads((folder / "secrets.json").read_text())
    assert spark["spark.authenticate.secret"] == known["spark"]
    assert json.loads((folder / "airflow-users.json").read_text()) == {"admin": known["airflow"]["password"]}


PAGE = PROJECT / "docs" / "how-to" / "deploy-with-compose.md"
COMMANDS = [shlex.split(line) for block in blocks(PAGE) if block.language == "sh" for line in block.text.splitlines()]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_a_command_of_the_page_names_a_service_and_is_accepted(
    command: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """``make compose-test`` runs them all, in a project of its own; only the images it makes one by one."""
    match command:
        case ["make", "secrets"] | ["docker", "compose", "build"] | ["docker", "compose", "up", "--wait"]:
            pass
        case ["docker", "compose", "run", "--rm", service, "tidemark", *arguments]:
            assert SERVICES[service]["profiles"] == [service]
            accept(["tidemark", *arguments], monkeypatch)
        case ["docker", "compose", "run", "--rm", "tools", "python", "-m", "tidemark.demo.deployment", "send"]:
            pass
        case _:
            pytest.fail("no test runs this command")


def test_prometheus_and_grafana_load_the_rules_and_the_dashboard() -> None:
    config = yaml.safe_load((PROJECT / "compose" / "prometheus.yml").read_text(encoding="utf-8"))
    grafana = PROJECT / "compose" / "grafana"
    (provider,) = yaml.safe_load((grafana / "dashboards" / "provider.yaml").read_text(encoding="utf-8"))["providers"]
    assert config["rule_files"] == ["/monitoring/alerts.yaml"]
    assert provider["options"]["path"] == "/monitoring"
    for name in ("prometheus", "grafana"):
        assert "./deploy/monitoring:/monitoring:ro" in SERVICES[name]["volumes"]
    (source,) = yaml.safe_load((grafana / "datasources" / "prometheus.yaml").read_text(encoding="utf-8"))["datasources"]
    assert (source["type"], source["isDefault"]) == ("prometheus", True)


def test_prometheus_scrapes_the_status() -> None:
    config = yaml.safe_load((PROJECT / "compose" / "prometheus.yml").read_text(encoding="utf-8"))
    jobs = {item["job_name"]: item["static_configs"][0]["targets"] for item in config["scrape_configs"]}
    port = SERVICES["metrics"]["command"][-1].rpartition(":")[2]
    assert jobs["tidemark"] == [f"metrics:{port}"]


def test_streams_and_steps_push_to_the_address_of_prometheus() -> None:
    command = SERVICES["prometheus"]["command"]
    assert "--web.enable-otlp-receiver" in command
    for name in ("archive-flights", "speed-flights", "airflow-scheduler", "airflow-triggerer"):
        endpoint = SERVICES[name]["environment"]["OTEL_EXPORTER_OTLP_METRICS_ENDPOINT"]
        assert endpoint == "http://prometheus:9090/api/v1/otlp/v1/metrics"
    config = yaml.safe_load((PROJECT / "compose" / "prometheus.yml").read_text())
    assert config["otlp"]["translation_strategy"] == "UnderscoreEscapingWithSuffixes"


@pytest.mark.parametrize(
    ("arguments", "answer", "problem"),
    [
        (("airflow", "scheduler"), {"scheduler": {"status": "healthy"}}, None),
        (("airflow", "scheduler"), {"scheduler": {"status": "unhealthy"}}, "scheduler is unhealthy"),
        (("airflow", "triggerer"), {"triggerer": None}, "triggerer is None"),
        (("master", "1"), {"status": "ALIVE", "aliveworkers": 2}, None),
        (("master", "2"), {"status": "ALIVE", "aliveworkers": 1}, "ALIVE, 1 workers"),
        (("master", "1"), {"status": "STANDBY", "aliveworkers": 1}, "STANDBY, 1 workers"),
        (("worker", ""), {"id": "worker-1"}, None),
    ],
)
def test_a_health_check_says_what_is_wrong(
    monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, str], answer: dict[str, Any], problem: str | None
) -> None:
    monkeypatch.setattr(compose_check, "answer", lambda _: answer)
    assert compose_check.problem(*arguments) == problem


def test_the_images_python_and_names_fit_the_project() -> None:
    wanted = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]["requires-python"]
    assert wanted == ">=3.11,<3.14"
    assert "python3.11/site-packages/pyspark" in DOCKERFILE
