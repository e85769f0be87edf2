"""A released version's fixture: the objects of one stream, its definition, and the rows that it held."""

import io
import json
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any, Self

HERE = Path(__file__).parent
_FILES, _FACTS = "files.tar.gz", "facts.json"
# In the archive, so that today's linters leave them as they were released.
_OBJECTS, _STREAMS = "objects/", "streams/"


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """``tables`` holds where each table's newest metadata is. Its absolute paths contain bucket and prefix.

    ``versions`` holds, by day, each version's rows and quarantined offsets, as ``Topic.rows`` in
    ``tests.upgrades.write`` gives them.
    """

    folder: Path
    bucket: str
    prefix: str
    namespace: str
    stream: str
    topic: str
    topic_id: str
    tables: Mapping[str, str]
    versions: Mapping[date, list[dict[str, Any]]]
    lost: list[list[int]]

    @classmethod
    def read(cls, version: str) -> Self:
        folder = HERE / version
        facts = json.loads((folder / _FACTS).read_text(encoding="utf-8"))
        days = {date.fromisoformat(day): versions for day, versions in facts.pop("versions").items()}
        return cls(folder=folder, versions=days, **facts)

    def objects(self) -> dict[str, bytes]:
        """Every object by its key."""
        return self._below(_OBJECTS)

    def definition(self) -> dict[str, bytes]:
        """The files of the streams' folder by name."""
        return self._below(_STREAMS)

    def _below(self, start: str) -> dict[str, bytes]:
        found = {}
        with tarfile.open(self.folder / _FILES) as tar:
            for member in tar:
                if member.name.startswith(start):
                    file = tar.extractfile(member)
                    assert file is not None
                    found[member.name.removeprefix(start)] = file.read()
        return found


def kept_versions() -> list[str]:
    """The released versions, in order."""
    return sorted(
        (path.parent.name for path in HERE.glob(f"*/{_FACTS}")),
        key=lambda name: [int(part) for part in name.split(".")],
    )


def write_kept(
    version: str, facts: Mapping[str, Any], *, objects: Mapping[str, bytes], definition: Mapping[str, bytes]
) -> Path:
    """Write the fixture of a version, in place of an earlier one; its largest file."""
    folder = HERE / version
    folder.mkdir(exist_ok=True)
    (folder / _FACTS).write_text(json.dumps(facts, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    files = {_OBJECTS + key: body for key, body in objects.items()}
    files |= {_STREAMS + name: body for name, body in definition.items()}
    with tarfile.open(folder / _FILES, "w:gz", compresslevel=9) as tar:
        for name, body in sorted(files.items()):
            member = tarfile.TarInfo(name)
            member.size = len(body)
            tar.addfile(member, io.BytesIO(body))
    return folder / _FILES
