"""What is in the wheels, and what their modules answer where no server is (this Python only)."""

import os
import re
import subprocess
import sys
import tomllib
from email.parser import Parser
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import urlsplit
from zipfile import ZipFile

import pytest
from airflow.sdk import Asset

import tidemark
from tests.wheels.environment import build_wheels
from tidemark.core.errors import ConfigError
from tidemark.installation import PROJECT
from tidemark_airflow import check_dags, tidemark_dags
from tidemark_airflow.assets import day_asset, sealed_asset
from tidemark_airflow.plugin import sealed_days
from tidemark_airflow.provider_info import checked_asset_uri, get_provider_info

LOCKED = re.compile(r"^([A-Za-z0-9._-]+)(?:\[[\w,]+\])?(?:==|===)")
# The wheel's folder of each folder of the repository.
FOLDERS = {
    "include/tidemark": "tidemark",
    "include/streams": "tidemark/streams",
    "spark_apps": "tidemark/spark_apps",
    "dags": "tidemark/dags",
    "jars": "tidemark/jars",
}


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, ZipFile]:
    paths = build_wheels(tmp_path_factory.mktemp("wheels"))
    return {path.name.partition("-")[0]: ZipFile(path) for path in paths}


def files(folder: Path) -> set[str]:
    found = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    return {name for name in found if "__pycache__" not in name}


def metadata(wheel: ZipFile) -> tuple[str, list[str]]:
    """The version and the requirements."""
    (name,) = (name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
    found = Parser().parsestr(wheel.read(name).decode())
    return str(found["Version"]), found.get_all("Requires-Dist") or []


def test_both_are_imported_from_their_wheels_and_the_command_answers(
    wheels: dict[str, ZipFile], tmp_path: Path
) -> None:
    for wheel in wheels.values():
        wheel.extractall(tmp_path)
    program = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n"
        "import tidemark, tidemark_airflow, tidemark_verify\n"
        "print(tidemark.__file__, tidemark_airflow.__file__, tidemark_verify.__file__, file=sys.stderr)\n"
        "from tidemark.cli.app import main; main()"
    )
    # -I: neither this folder nor a variable adds a place for modules.
    command = [sys.executable, "-I", "-c", program, "--version"]
    clean = {name: text for name, text in os.environ.items() if not name.startswith("TIDEMARK_")}
    done = subprocess.run(command, cwd=tmp_path, env=clean, capture_output=True, text=True, check=False)
    places = done.stderr.splitlines()[0].split()
    assert [Path(place).is_relative_to(tmp_path) for place in places] == [True] * 3, done.stderr
    assert (done.returncode, done.stdout) == (0, f"tidemark {tidemark.__version__}\n"), done.stderr


def test_each_wheel_has_the_code_and_what_the_code_reads(wheels: dict[str, ZipFile]) -> None:
    wanted = {f"{there}/{name}" for here, there in FOLDERS.items() for name in files(PROJECT / here)}
    wanted.add("tidemark_verify.py")
    assert {name for name in wheels["tidemark"].namelist() if ".dist-info/" not in name} == wanted
    assert any(name.endswith(".html.j2") for name in wanted)
    wanted = {f"tidemark_airflow/{name}" for name in files(PROJECT / "include" / "tidemark_airflow")}
    own = {name for name in wheels["airflow_provider_tidemark"].namelist() if ".dist-info/" not in name}
    assert own == wanted


def test_the_check_of_certificates_is_a_command_and_one_file_of_the_wheel(wheels: dict[str, ZipFile]) -> None:
    wheel = wheels["tidemark"]
    (name,) = (name for name in wheel.namelist() if name.endswith(".dist-info/entry_points.txt"))
    assert "tidemark-verify = tidemark_verify:main" in wheel.read(name).decode().splitlines()
    assert wheel.read("tidemark_verify.py") == (PROJECT / "include" / "tidemark_verify.py").read_bytes()


def test_both_wheels_have_one_version_and_ranges_of_what_they_need(wheels: dict[str, ZipFile]) -> None:
    (version, needs), (own_version, own_needs) = map(metadata, wheels.values())
    assert {version, own_version} == {tidemark.__version__}
    assert [text for text in (*needs, *own_needs) if LOCKED.match(text)] == []
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert set(project["optional-dependencies"]) == {"spark", "quality", "charts", "otel", "demo"}


def test_a_spark_step_finds_its_application_in_a_wheel(wheels: dict[str, ZipFile], tmp_path: Path) -> None:
    wheels["tidemark"].extractall(tmp_path)
    text = (tmp_path / "tidemark" / "installation.py").read_text(encoding="utf-8")
    found: dict[str, object] = {"__file__": str(tmp_path / "tidemark" / "installation.py"), "__name__": "copy"}
    exec(compile(text, "installation.py", "exec"), found)  # noqa: S102 - our own file, as if it were installed
    assert found["INSTALLED"] is True
    assert found["SPARK_APPS"] == tmp_path / "tidemark" / "spark_apps"
    assert found["JAR_LISTS"] == tmp_path / "tidemark" / "jars"


def test_a_streams_assets_keep_their_uris_and_another_uri_of_ours_is_refused() -> None:
    for asset, name in ((sealed_asset("flights"), "sealed"), (day_asset("flights"), "day")):
        assert (asset.name, asset.uri) == (f"flights_{name}", f"tidemark://streams/flights/{name}")
        assert checked_asset_uri(urlsplit(asset.uri)).path == f"/flights/{name}"
    for uri in ("tidemark://streams/flights", "tidemark://topics/flights/sealed", "tidemark://streams//sealed"):
        with pytest.raises(
            ValueError, match=r"expected tidemark://streams/STREAM/sealed or \S+/day, found tidemark://"
        ):
            checked_asset_uri(urlsplit(uri))


def test_the_provider_names_connections_that_the_settings_look_for() -> None:
    types = [item["connection-type"] for item in get_provider_info()["connection-types"]]
    assert types == ["tidemark_kafka", "tidemark_s3", "tidemark_catalog"]


def test_a_template_gets_the_days_of_the_events_that_triggered_its_run() -> None:
    first = SimpleNamespace(extra={"stream": "flights", "days": {"2013-01-15": 1, "2013-01-14": 2}})
    second = SimpleNamespace(extra={"stream": "trains", "days": {"2013-01-16": 1}})
    events = {Asset("a"): [first], Asset("b"): [second, SimpleNamespace(extra={})]}
    assert sealed_days(events) == ["2013-01-14", "2013-01-15", "2013-01-16"]
    assert sealed_days(events, "flights") == ["2013-01-14", "2013-01-15"]


def called(folder: Path, function: str) -> None:
    """Call the function as a DAG file in the folder does."""
    file = folder / "dag_file.py"
    namespace = {"tidemark_dags": tidemark_dags, "check_dags": check_dags, "__file__": str(file)}
    exec(compile(f"{function}('include/streams')", str(file), "exec"), namespace)  # noqa: S102 - a DAG file


def test_a_folder_that_is_not_there_is_named_with_the_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TIDEMARK_STREAMS_DIR", raising=False)
    with pytest.raises(ConfigError, match=rf"expected include/streams in {tmp_path} or a folder above, found none"):
        called(tmp_path, "tidemark_dags")


def test_a_setting_that_names_another_folder_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "include" / "streams").mkdir(parents=True)
    (tmp_path / "dags").mkdir()
    monkeypatch.setenv("TIDEMARK_STREAMS_DIR", str(tmp_path / "others"))
    with pytest.raises(ConfigError, match=r"two folders of stream definitions.*others \[TIDEMARK_STREAMS_DIR, "):
        called(tmp_path / "dags", "check_dags")
    monkeypatch.setenv("TIDEMARK_STREAMS_DIR", str(tmp_path / "include" / "streams"))
    called(tmp_path / "dags", "check_dags")
