"""Fresh environments with a stock Airflow and the two wheels, as other people have them."""

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tidemark.installation import PROJECT

FOLDER = Path(__file__).parent
CONSTRAINTS = [f"--constraint={FOLDER / name}" for name in ("airflow.txt", "tidemark.txt")]
UV = Path(sys.executable).with_name("uv")
TIMEOUT_S = 300
# What this test's own Python and settings would bring along.
_NOT_PASSED_ON = ("TIDEMARK_", "AIRFLOW", "PYTHON", "VIRTUAL_ENV", "SPARK_", "PYSPARK_")


def build_wheels(folder: Path) -> list[Path]:
    """Both wheels, as ``make wheels`` builds them."""
    for project in (PROJECT, PROJECT / "airflow_provider"):
        command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
        subprocess.run(command, cwd=project, check=True, capture_output=True)
    return sorted(folder.glob("*.whl"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """A virtual environment, and a folder for its Airflow and for the commands that run in it."""

    bin: Path
    home: Path

    @classmethod
    def create(cls, folder: Path, python: Path) -> "Environment":
        subprocess.run([UV, "venv", "--quiet", "--python", python, folder / "venv"], check=True)
        home = folder / "home"
        home.mkdir()
        return cls(bin=folder / "venv" / "bin", home=home)

    def install(self, *arguments: str) -> None:
        """Install packages within the constraints, with hard links to uv's cache."""
        command = [str(UV), "pip", "install", "--quiet", "--python", str(self.bin / "python"), *CONSTRAINTS, *arguments]
        done = subprocess.run(command, cwd=self.home, capture_output=True, text=True, check=False, timeout=TIMEOUT_S)
        assert done.returncode == 0, done.stderr

    def variables(self, more: Mapping[str, str]) -> dict[str, str]:
        own = {name: text for name, text in os.environ.items() if not name.startswith(_NOT_PASSED_ON)}
        return {
            **own,
            "PATH": f"{self.bin}{os.pathsep}{own['PATH']}",
            "AIRFLOW_HOME": str(self.home / "airflow"),
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "AIRFLOW__LOGGING__LOGGING_LEVEL": "ERROR",
            "COLUMNS": "300",
            "NO_COLOR": "1",
            **more,
        }

    def run(self, *command: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """Run one of the environment's commands in its folder."""
        return subprocess.run(
            [str(self.bin / command[0]), *command[1:]],
            cwd=self.home,
            env=self.variables(variables),
            capture_output=True,
            text=True,
            check=False,
            timeout=TIMEOUT_S,
        )

    def remove(self) -> None:
        """Remove it, because pytest keeps the folders of several runs."""
        shutil.rmtree(self.bin.parent)
