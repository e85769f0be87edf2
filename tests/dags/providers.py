"""Airflow's operators for Kubernetes, EMR, Databricks and Livy, in a folder beside the project's own packages."""

import hashlib
import subprocess
import sys
from pathlib import Path

from tidemark.installation import PROJECT

LOCK = Path(__file__).with_name("providers.txt")


def providers() -> Path:
    """The folder for the Python path; installed once for each lock."""
    digest = hashlib.sha256(LOCK.read_bytes()).hexdigest()[:12]
    folder = PROJECT / ".tidemark" / f"providers-{digest}"
    if not folder.exists():
        fresh = folder.with_suffix(".new")
        uv = Path(sys.executable).with_name("uv")
        options = ["--quiet", "--no-deps", "--require-hashes", "--python", sys.executable, "--target", str(fresh)]
        subprocess.run([uv, "pip", "install", *options, "-r", str(LOCK)], check=True)
        fresh.rename(folder)
    return folder
