"""Objects in memory, for tests of single objects that need no server."""

from collections.abc import Callable, Mapping
from types import MappingProxyType


class Memory:
    """As much of ``ObjectStore`` as reads and updates single objects."""

    bucket = "lake"

    def __init__(self, objects: Mapping[str, bytes] = MappingProxyType({})) -> None:
        self.objects = dict(objects)

    def get(self, key: str) -> bytes | None:
        return self.objects.get(key)

    def update(self, key: str, change: Callable[[bytes | None], bytes | None]) -> bytes | None:
        changed = change(self.objects.get(key))
        if changed is not None:
            self.objects[key] = changed
        return self.objects.get(key)
