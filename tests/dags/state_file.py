"""Airflow's state of a task in a file, which outlives the task's process."""

import json
from pathlib import Path
from typing import Any


class StateFile:
    """As ``context["task_state_store"]``."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def values(self) -> dict[str, Any]:
        return json.loads(self.path.read_text(encoding="utf-8")) if self.path.exists() else {}

    def get(self, key: str, default: Any = None) -> Any:
        return self.values.get(key, default)

    def set(self, key: str, value: Any) -> None:
        self.path.write_text(json.dumps(self.values | {key: value}), encoding="utf-8")

    def clear(self) -> None:
        self.path.write_text("{}", encoding="utf-8")
