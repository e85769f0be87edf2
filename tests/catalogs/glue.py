"""AWS Glue by moto, in this process."""

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

import pytest
from moto.core.exceptions import JsonRESTError
from moto.core.responses import ActionResult
from moto.glue.responses import GlueResponse
from moto.server import ThreadedMotoServer

from tidemark.stack.files import free_ports


@contextmanager
def glue() -> Iterator[str]:
    """The endpoint of a Glue that refuses an update of an old version, as AWS does and moto does not."""
    update, one_at_a_time = GlueResponse.update_table, Lock()

    def update_table(self: GlueResponse) -> ActionResult:
        asked = self.parameters.get("VersionId")
        name = self.parameters["TableInput"]["Name"]
        with one_at_a_time:
            current = self.glue_backend.get_table(self.parameters["DatabaseName"], name).as_dict()["VersionId"]
            if asked not in (None, current):
                raise JsonRESTError("ConcurrentModificationException", f"version {asked} is not the current {current}")
            return update(self)

    (port,) = free_ports(1)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=port, verbose=False)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(GlueResponse, "update_table", update_table)
        server.start()
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            server.stop()
