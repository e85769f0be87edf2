"""A container's health check: ``airflow COMPONENT``, ``master WORKERS`` or ``worker`` as arguments.

It ends with 0 if what the address says is healthy, and else with the reason. Standard library only.
"""

import json
import sys
from typing import Any
from urllib.request import urlopen

TIMEOUT_S = 5
AIRFLOW = "http://airflow-api:8080/api/v2/monitor/health"
MASTER = "http://spark-master:8080/json/"
WORKER = "http://127.0.0.1:8081/json/"


def answer(url: str) -> Any:
    """The JSON at the address. Raises OSError or ValueError."""
    with urlopen(url, timeout=TIMEOUT_S) as response:  # noqa: S310 - one of the addresses above
        return json.load(response)


def problem(what: str, wanted: str) -> str | None:
    """Why the container is not healthy; None if it is."""
    if what == "airflow":
        status = (answer(AIRFLOW).get(wanted) or {}).get("status")
        return None if status == "healthy" else f"{wanted} is {status}"
    if what == "master":
        found = answer(MASTER)
        healthy = found["status"] == "ALIVE" and found["aliveworkers"] >= int(wanted)
        return None if healthy else f"{found['status']}, {found['aliveworkers']} workers"
    return None if answer(WORKER)["id"] else "no worker"


if __name__ == "__main__":
    sys.exit(problem(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else ""))
