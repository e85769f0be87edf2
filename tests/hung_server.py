"""A server that accepts connections and never answers, as one whose process hangs."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from threading import Timer


@dataclass(frozen=True, slots=True, kw_only=True)
class HungServer:
    address: str
    socket: socket.socket

    def connections(self) -> int:
        """How many there were since the last call."""
        count = 0
        self.socket.setblocking(False)
        with suppress(BlockingIOError):
            while True:
                self.socket.accept()[0].close()
                count += 1
        return count


@contextmanager
def hung_server(end_s: float = 60) -> Iterator[HungServer]:
    """The kernel completes each connection, and nobody reads from it.

    After ``end_s`` they are broken: so a client without a time limit gets another error, and its test fails.
    """
    with socket.create_server(("127.0.0.1", 0), backlog=128) as server:
        end = Timer(end_s, server.close)
        end.daemon = True
        end.start()
        try:
            yield HungServer(address=f"127.0.0.1:{server.getsockname()[1]}", socket=server)
        finally:
            end.cancel()


def hung_catalogs(address: str) -> dict[str, dict[str, object]]:
    """The settings of a catalog of each type at the address."""
    return {
        "jdbc": {"catalog_uri": f"jdbc:postgresql://{address}/lake"},
        "rest": {"catalog_uri": f"http://{address}"},
        "glue": {"catalog_properties": {"glue.endpoint": f"http://{address}", "glue.max-retries": "0"}},
        "hive": {"catalog_uri": f"thrift://{address}"},
        "nessie": {"catalog_uri": f"http://{address}/api/v2"},
    }
