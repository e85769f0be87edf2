"""The Iceberg catalog: reached, and for those who write tables, a commit and its removal."""

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from importlib.metadata import version

from tidemark.inspect.doctor.checkup import Checkup, Probe
from tidemark.inspect.doctor.roles import CATALOG, READS_TABLES, S3, WRITES_TABLES, Role
from tidemark.inspect.doctor.s3 import CONNECTION
from tidemark.settings import Settings

_CONFLICT = "Use another catalog: two runs at the same moment would overwrite each other's commits"


def catalog_checks(settings: Settings, roles: Sequence[Role], files: tuple[str, ...]) -> Iterator[Probe]:
    """Checks for the roles that use tables; ``files`` are the keys of the checks of the tables' folder."""
    if READS_TABLES & set(roles):
        yield Probe(subject=CATALOG, name=CONNECTION, ask=partial(_connection, settings))
    if WRITES_TABLES & set(roles):
        needs = (f"{CATALOG}: {CONNECTION}", f"{S3}: {CONNECTION}", *files)
        yield Probe(subject=CATALOG, name="commit", ask=partial(_commit, settings), needs=needs)


def _connection(settings: Settings, probe: Probe) -> Iterable[Checkup]:
    from tidemark.tables.round_trip import known_tables

    found = known_tables(settings)
    address = settings.catalog_uri or settings.s3_region
    yield probe.ok(
        f"{settings.catalog_type} at {address}: {found} tables in {settings.namespace}"
        f" (pyiceberg {version('pyiceberg')})"
    )


def _commit(settings: Settings, probe: Probe) -> Iterable[Checkup]:
    from tidemark.tables.round_trip import commit_round_trip

    found = commit_round_trip(settings)
    if found.rows != 1:
        yield probe.failed(f"a table with one committed row shows {found.rows}", _CONFLICT)
    elif not found.conflict_refused:
        yield probe.failed("a commit on an outdated table succeeded", _CONFLICT)
    else:
        yield probe.ok("a table was created, committed to, read and removed; a conflicting commit was refused")
