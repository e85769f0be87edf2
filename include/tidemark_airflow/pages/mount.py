"""What Airflow mounts. Every process of Airflow loads the plugin, and only the api-server answers requests."""

import asyncio
from typing import Any

# The key of Airflow's own app in the scope of a request to the pages.
AIRFLOW_APP = "tidemark.airflow_app"


class MountedPages:
    """Loads the pages with the first request, and keeps Airflow's own app at hand for their actions."""

    def __init__(self) -> None:
        self._app: Any = None
        self._loading = asyncio.Lock()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        async with self._loading:
            if self._app is None:
                self._app = await asyncio.to_thread(_load)
        # Airflow's app, until the pages' own app puts itself there.
        scope[AIRFLOW_APP] = scope.get("app")
        await self._app(scope, receive, send)


def _load() -> Any:
    from tidemark_airflow.pages.app import create_pages

    return create_pages()
