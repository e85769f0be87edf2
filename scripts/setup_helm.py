"""Builds the renderer of the Helm chart, which is Helm's own engine, if there is Go. Standard library only.

With ``--write``, it also renders the chart's examples into ``deploy/helm/rendered``.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
HELM = ROOT / "deploy" / "helm"
SOURCE = HELM / "render"
RENDERER = ROOT / ".tidemark" / "helm" / "render"
# Its own installer puts it here, and not on the PATH.
FOLDER = Path("/usr/local/go/bin")


class GoError(Exception):
    """One sentence about the Go that is missing or too old."""


def needed() -> tuple[int, ...]:
    """The oldest version of Go that the renderer builds with."""
    found = re.search(r"^go ([\d.]+)$", (SOURCE / "go.mod").read_text(encoding="utf-8"), re.MULTILINE)
    if found is None:
        raise GoError(f"There is no version of Go in {SOURCE}/go.mod.")
    return tuple(map(int, found[1].split(".")))


def go_command() -> str:
    """The command of a Go that is new enough. Raises GoError."""
    oldest = ".".join(map(str, needed()))
    command = shutil.which("go") or shutil.which("go", path=str(FOLDER))
    if command is None:
        raise GoError(f"Go is missing, so the Helm chart is not rendered; install Go {oldest} or newer.")
    done = subprocess.run([command, "env", "GOVERSION"], capture_output=True, text=True, check=False)
    found = re.match(r"go(\d+(?:\.\d+)*)", done.stdout.strip())
    if found is None or tuple(map(int, found[1].split("."))) < needed():
        raise GoError(f"The Helm chart needs Go {oldest} or newer, and {command} is {done.stdout.strip() or 'broken'}.")
    return command


def build() -> Path:
    """The renderer, built if its source changed. Raises GoError, or CalledProcessError if the build fails."""
    command = go_command()
    if not RENDERER.exists():
        print("Building the renderer of the Helm chart (a minute for the first time) ...", flush=True)
    subprocess.run(
        [command, "build", "-trimpath", "-ldflags=-s -w", "-o", str(RENDERER), "."],
        cwd=SOURCE,
        env={**os.environ, "GOTOOLCHAIN": "local", "GOFLAGS": "-mod=readonly", "CGO_ENABLED": "0"},
        check=True,
    )
    return RENDERER


def main() -> None:
    """Build the renderer; without Go, say so and remove an earlier one."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="render the examples again")
    arguments = parser.parse_args()
    try:
        renderer = build()
    except GoError as error:
        RENDERER.unlink(missing_ok=True)
        sys.exit(str(error) if arguments.write else print(error))
    if arguments.write:
        for values in sorted((HELM / "examples").glob("*.yaml")):
            command = [str(renderer), str(HELM / "tidemark"), "DOCUMENTS", str(values)]
            done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
            (HELM / "rendered" / values.name).write_bytes(done.stdout)


if __name__ == "__main__":
    main()
