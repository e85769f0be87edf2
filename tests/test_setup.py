"""The setup: wrong jars, wrong Javas, missing packages, and make."""

import os
import re
import subprocess
import sys
from hashlib import sha256
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

import setup_browser
import setup_java
import setup_packages
import setup_postgres
import setup_prometheus
from tidemark.installation import PROJECT
from tidemark.spark.jars import complaint, difference, read_sums, sums_text

GOOD = {"kafka/a-1.jar": "aa" * 32, "spark/b-2.jar": "bb" * 32}


def executable(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    path.chmod(0o755)
    return path


def java(path: Path, printed: str) -> Path:
    return executable(path, f"#!/bin/sh\necho '{printed}' >&2\n")


@pytest.mark.parametrize(
    ("found", "sentence"),
    [
        (GOOD, None),
        (
            {**GOOD, "spark/b-2.jar": "cc" * 32},
            f"spark/b-2.jar is not the locked file: expected SHA-256 {'bb' * 32}, found {'cc' * 32}.",
        ),
        (
            {"kafka/a-1.jar": "aa" * 32},
            f"spark/b-2.jar is missing: expected SHA-256 {'bb' * 32}, found no such file.",
        ),
        (
            {**GOOD, "s3/extra.jar": "dd" * 32},
            f"s3/extra.jar is not listed in SHA256SUMS: expected no such file, found SHA-256 {'dd' * 32}.",
        ),
    ],
    ids=["right", "changed", "missing", "extra"],
)
def test_the_first_wrong_jar_is_named_with_both_sums(found: dict[str, str], sentence: str | None) -> None:
    assert difference(found, GOOD) == sentence


def test_every_jar_of_the_ivy_file_has_a_sum_and_no_other_has() -> None:
    tree = ET.parse(PROJECT / "jars" / "ivy.xml")  # noqa: S314 - our own file
    wanted = {
        f"{item.attrib['conf'].partition('->')[0]}/{item.attrib['name']}-{item.attrib['rev']}{classifier}.jar"
        for item in tree.iter("dependency")
        for classifier in _classifiers(item)
    }
    text = (PROJECT / "jars" / "SHA256SUMS").read_text(encoding="utf-8")
    assert set(read_sums(text)) == wanted
    assert sums_text(read_sums(text)) == text
    assert {item.attrib.get("transitive") for item in tree.iter("dependency")} == {"false"}


def _classifiers(dependency: ET.Element) -> list[str]:
    """The endings of its jars' names: none, unless it names other artefacts."""
    found = [item.get("{http://ant.apache.org/ivy/maven}classifier") for item in dependency.iter("artifact")]
    return [f"-{name}" if name else "" for name in found or [None]]


class Jars:
    """A project folder whose Ivy is a script: it puts files with the given content where -retrieve says."""

    def __init__(self, root: Path) -> None:
        self.root = root
        (root / "jars").mkdir()
        (root / "jars" / "ivy.xml").write_text("<ivy-module/>")
        self.delivers({"spark/b-2.jar": b"two"})

    def delivers(self, files: dict[str, bytes], code: int = 0) -> None:
        copies = "".join(
            f"mkdir -p .tidemark/jars.new/{Path(name).parent}; printf '{body.decode()}' > .tidemark/jars.new/{name}\n"
            for name, body in files.items()
        )
        text = f"#!/bin/sh\n[ $# -gt 6 ] || exit 9\n{copies}echo 'WARN: unresolved dependency: x#y;1'\nexit {code}\n"
        executable(self.root / "java" / "bin" / "java", text)

    def lock(self, files: dict[str, bytes]) -> None:
        sums = {name: sha256(body).hexdigest() for name, body in files.items()}
        (self.root / "jars" / "SHA256SUMS").write_text(sums_text(sums))

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, str(PROJECT / "scripts" / "setup_jars.py"), *arguments]
        environment = {**os.environ, "JAVA_HOME": str(self.root / "java")}
        return subprocess.run(command, cwd=self.root, env=environment, capture_output=True, text=True, check=False)

    def installed(self) -> dict[str, bytes]:
        folder = self.root / ".tidemark" / "jars"
        return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.glob("*/*")}


@pytest.fixture
def jars(tmp_path: Path) -> Jars:
    return Jars(tmp_path)


def test_jars_are_fetched_once_and_then_only_verified(jars: Jars) -> None:
    jars.lock({"spark/b-2.jar": b"two"})
    done = jars.run()
    assert done.returncode == 0, done.stderr
    assert jars.installed() == {"spark/b-2.jar": b"two"}
    jars.delivers({}, code=1)  # from now on any fetch fails
    done = jars.run()
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_jar_changed_on_disk_is_named_and_fetched_again(jars: Jars) -> None:
    jars.lock({"spark/b-2.jar": b"two"})
    jars.run()
    (jars.root / ".tidemark/jars/spark/b-2.jar").write_bytes(b"tampered")
    done = jars.run()
    assert done.returncode == 0, done.stderr
    assert "Replacing the jars in .tidemark/jars: spark/b-2.jar is not the locked file" in done.stdout
    assert jars.installed() == {"spark/b-2.jar": b"two"}


def test_a_fetched_jar_with_another_sum_is_refused_and_the_old_jars_stay(jars: Jars) -> None:
    jars.lock({"spark/b-2.jar": b"two"})
    jars.run()
    jars.lock({"spark/b-2.jar": b"another"})
    done = jars.run()
    assert done.returncode == 1
    expected, found = sha256(b"another").hexdigest(), sha256(b"two").hexdigest()
    assert f"spark/b-2.jar is not the locked file: expected SHA-256 {expected}, found {found}." in done.stderr
    assert "Traceback" not in done.stderr
    assert jars.installed() == {"spark/b-2.jar": b"two"}


def test_many_unfetchable_jars_are_one_sentence_with_the_first_and_the_cause() -> None:
    output = """:: problems summary ::
:::: WARNINGS
\t\t::          UNRESOLVED DEPENDENCIES         ::
\t\t:: org.a#b;1.0: not found
\t\t:: org.c#d;2.0: not found
:::: ERRORS
\tServer access error at url https://jars.example/b.pom (javax.net.ssl.SSLHandshakeException: PKIX path)
\tServer access error at url https://jars.example/d.pom (javax.net.ssl.SSLHandshakeException: PKIX path)
"""
    assert complaint(output) == (
        "Ivy could not fetch the jars. 2 jars are missing, the first is org.a#b;1.0. "
        "Server access error at url https://jars.example/b.pom (javax.net.ssl.SSLHandshakeException: PKIX path)"
    )


def test_an_unresolvable_set_fails_with_ivys_message(jars: Jars) -> None:
    jars.lock({"spark/b-2.jar": b"two"})
    jars.delivers({}, code=1)
    done = jars.run()
    assert (done.returncode, done.stderr) == (
        1,
        "Ivy could not fetch the jars. WARN: unresolved dependency: x#y;1\n",
    )


def test_locking_writes_the_sums_of_what_was_fetched(jars: Jars) -> None:
    done = jars.run("--lock")
    assert done.returncode == 0, done.stderr
    assert (jars.root / "jars" / "SHA256SUMS").read_text() == f"{sha256(b'two').hexdigest()}  spark/b-2.jar\n"


@pytest.mark.parametrize(
    ("printed", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('openjdk version "21" 2023-09-19', 21),
        ('openjdk version "17-ea" 2021-09-14', 17),
        ('java version "1.8.0_392"', 8),
        ('Picked up JAVA_TOOL_OPTIONS: -Xmx1g\nopenjdk version "21.0.1" 2023-10-17', 21),
        ("The operation couldn't be completed. Unable to locate a Java Runtime.", None),
        ("", None),
    ],
)
def test_the_java_version_is_parsed_from_javas_output(printed: str, version: int | None) -> None:
    assert setup_java.parse_version(printed) == version


@pytest.mark.parametrize("version", ["17.0.15", "21.0.1"])
def test_a_supported_java_passes(tmp_path: Path, version: str) -> None:
    command = java(tmp_path / "java", f'openjdk version "{version}"')
    assert setup_java.check(str(command)) == int(version[:2])


@pytest.mark.parametrize("printed", ['openjdk version "11.0.2" 2019-01-15', 'openjdk version "25" 2025-09-16'])
def test_another_java_is_refused_with_what_was_found_and_what_to_install(tmp_path: Path, printed: str) -> None:
    command = java(tmp_path / "java", printed)
    with pytest.raises(setup_java.JavaError) as caught:
        setup_java.check(str(command))
    assert str(caught.value) == (
        f"Tidemark needs Java 17 or 21, and {command} says: {printed}; install the package openjdk-17-jre-headless "
        "and set JAVA_HOME to it."
    )


def test_java_home_counts_before_the_path_and_must_hold_a_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    on_path = java(tmp_path / "bin" / "java", "")
    home = java(tmp_path / "home" / "bin" / "java", "")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    assert setup_java.java_command() == str(on_path)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    assert setup_java.java_command() == str(home)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "elsewhere"))
    with pytest.raises(
        setup_java.JavaError, match=re.escape(f"JAVA_HOME is {tmp_path / 'elsewhere'}, and there is no")
    ):
        setup_java.java_command()


def run_java_setup(path: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(PROJECT / "scripts" / "setup_java.py")]
    return subprocess.run(command, env={"PATH": str(path)}, capture_output=True, text=True, check=False)


def test_without_java_and_without_apt_one_sentence_names_the_package(tmp_path: Path) -> None:
    done = run_java_setup(tmp_path)
    assert done.returncode == 1
    assert done.stderr == (
        "Java 17 or 21 is missing; install the package openjdk-17-jre-headless (or what your system calls it) "
        "and try again.\n"
    )


def test_a_missing_java_is_installed_from_debian_if_allowed_and_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    executable(
        tmp_path / "apt-cache", '#!/bin/sh\n[ "$2" = openjdk-21-jre-headless ]\n'
    )  # an older one is not available
    executable(tmp_path / "apt-get", f'#!/bin/sh\necho "$*" >> "{tmp_path}/calls"\n')
    assert setup_packages.install(setup_java.PACKAGES, "Java 17 or 21") == "openjdk-21-jre-headless"
    printed = "Java 17 or 21 is missing: installing Debian's package openjdk-21-jre-headless.\n"
    assert capfd.readouterr().out == printed
    assert (tmp_path / "calls").read_text().splitlines() == [
        "update -qq",
        "install -y -qq --no-install-recommends openjdk-21-jre-headless",
    ]


def test_without_root_and_without_passwordless_sudo_nothing_is_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setenv("PATH", str(tmp_path))
    executable(tmp_path / "apt-get", f"#!/bin/sh\n: > '{tmp_path}/called'\n")
    executable(tmp_path / "sudo", "#!/bin/sh\nexit 1\n")
    with pytest.raises(setup_packages.PackageError, match="install the package python3-venv"):
        setup_packages.install(["python3-venv"], "Python's venv module")
    assert not (tmp_path / "called").exists()


def test_make_help_is_the_default_and_lists_every_target() -> None:
    done = subprocess.run(["make", "--no-print-directory"], cwd=PROJECT, capture_output=True, text=True, check=True)
    listed = re.findall(r"(?m)^  make ([\w-]+) +\S", done.stdout)
    benches = [
        f"bench-{name}"
        for name in ("archive", "speed", "plan", "requests", "rebuild", "certificate", "audit", "late", "pages")
    ]
    tests = ["test", "test-all", "test-quick", "measure-tests", "guards", "soak"]
    assert listed == [
        "help",
        "install",
        "chart",
        "schemas",
        "check",
        *tests,
        "wheels",
        "demo",
        "docs",
        "secrets",
        "compose-test",
        *benches,
        "lock",
        "clean",
    ]
    phony = re.search(r"(?m)^\.PHONY: (.*)$", (PROJECT / "Makefile").read_text(encoding="utf-8"))
    assert phony is not None
    assert set(listed) | {"FORCE", "classes", "java", "postgres", "prometheus", "helm", "browser"} == set(
        phony[1].split()
    )


def test_debians_newest_postgresql_is_found_or_else_one_on_the_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(setup_postgres, "FOLDERS", tmp_path / "postgresql")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert setup_postgres.programs() is None
    executable(tmp_path / "initdb", "")
    assert setup_postgres.programs() == tmp_path
    for version in ("9.6", "15", "13"):
        executable(tmp_path / "postgresql" / version / "bin" / "initdb", "")
    assert setup_postgres.programs() == tmp_path / "postgresql" / "15" / "bin"


def test_a_postgresql_that_is_missing_is_installed_or_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(setup_postgres, "FOLDERS", tmp_path / "postgresql")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(setup_packages.PackageError, match="server is missing; install the package postgresql"):
        setup_postgres.install()
    folder = tmp_path / "postgresql" / "15" / "bin"
    monkeypatch.setattr(setup_packages, "install", lambda *_: executable(folder / "initdb", ""))
    assert setup_postgres.install() == folder


def test_a_prometheus_that_is_missing_is_installed_or_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(setup_packages.PackageError, match="Prometheus is missing; install the package prometheus"):
        setup_prometheus.install()
    executable(tmp_path / "prometheus", "")
    monkeypatch.setattr(setup_packages, "install", lambda *_: executable(tmp_path / "promtool", ""))
    setup_prometheus.install()


def test_a_browser_that_is_missing_is_installed_or_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(setup_packages.PackageError, match="Chromium is missing; install the package chromium"):
        setup_browser.install()
    monkeypatch.setattr(setup_packages, "install", lambda *_: executable(tmp_path / "chromium", ""))
    assert setup_browser.install() == tmp_path / "chromium"


@pytest.mark.parametrize(
    ("fails", "ran", "code"),
    [("none", ["install", "check classes", "test"], 0), ("check", ["install", "check classes"], 2)],
)
def test_ci_stops_at_the_first_failure_and_says_how_long_each_phase_took(
    tmp_path: Path, fails: str, ran: list[str], code: int
) -> None:
    executable(tmp_path / "make", f'#!/bin/sh\nshift 2\necho "$*" >> "{tmp_path}/ran"\n[ "$1" != {fails} ] || exit 2\n')
    command, environment = [PROJECT / ".ci" / "run"], {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, (tmp_path / "ran").read_text().splitlines()) == (code, ran)
    minutes = [f"{targets.split()[0]} 0.0" for targets in ran]
    assert done.stdout == f"Minutes: {', '.join(minutes)}, total 0.0\n"


def test_ci_warns_if_it_took_longer_than_its_goal(tmp_path: Path) -> None:
    executable(tmp_path / "make", "#!/bin/sh\nexit 0\n")
    # A clock that is 13 minutes later each time it is read.
    executable(
        tmp_path / "date", f'#!/bin/sh\necho >> "{tmp_path}/reads"\necho $(($(wc -l < "{tmp_path}/reads") * 780))\n'
    )
    command, environment = [PROJECT / ".ci" / "run"], {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [
        "Minutes: install 13.0, check 13.0, test 13.0, total 91.0",
        "Warning: this run took longer than 15 minutes",
    ]
