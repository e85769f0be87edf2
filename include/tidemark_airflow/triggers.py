"""What deferred tasks wait for in Airflow's triggerer."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from airflow.triggers.base import BaseTrigger, TriggerEvent
from asgiref.sync import sync_to_async

UNDER_WAY = ["queued", "running"]


class IdleTrigger(BaseTrigger):
    """Fires once no run of the DAG is queued or running."""

    def __init__(self, *, dag_id: str, poll_interval: float) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # Airflow has no types for it
        self.dag_id = dag_id
        self.poll_interval = poll_interval

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """The class and its arguments, as Airflow keeps them."""
        return f"{__name__}.{type(self).__name__}", {"dag_id": self.dag_id, "poll_interval": self.poll_interval}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Ask Airflow until the DAG is idle."""
        from airflow.sdk.execution_time.task_runner import RuntimeTaskInstance  # parsing a DAG needs none of it

        count = sync_to_async(RuntimeTaskInstance.get_dr_count)
        while True:
            if not await count(dag_id=self.dag_id, states=UNDER_WAY):
                yield TriggerEvent(None)  # type: ignore[no-untyped-call]
                return
            await asyncio.sleep(self.poll_interval)
