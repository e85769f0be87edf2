"""Which checks there are, for whom, and in which order."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from types import MappingProxyType

from tidemark.core.errors import ConfigError, TidemarkError
from tidemark.definitions.stream import Stream, load_stream, stream_names
from tidemark.inspect.doctor import catalog, kafka, kafka_rights, machine, s3, s3_rights
from tidemark.inspect.doctor.checkup import Checkup, Probe, failure, run_checks
from tidemark.inspect.doctor.roles import KAFKA, LIVE_KAFKA, S3, SETTINGS, USES_KAFKA, USES_LIVE_KAFKA, Role
from tidemark.inspect.doctor.s3_needs import S3Need, s3_needs, tables_folder, writable
from tidemark.settings import Settings


def doctor(
    settings: Settings,
    stream: str | None,
    roles: Sequence[Role],
    begin: Callable[[Probe], None],
    sources: Mapping[str, str] = MappingProxyType({}),
) -> Iterator[Checkup]:
    """Probe everything that the roles need for the stream, or for every stream of the deployment.

    ``begin`` is called before a check starts. ``sources`` say where each setting comes from.
    Raises ConfigError if there is no such stream.
    """
    names = stream_names(settings.streams_dir)
    if stream is not None and stream not in names:
        raise ConfigError(
            "no such stream",
            expected=f"one of {', '.join(names)}" if names else "<name>.yaml files",
            found=stream,
            where=str(settings.streams_dir),
        )
    streams, errors = _loaded(settings, [stream] if stream else names)
    for name, source in sources.items():
        if source != "default":
            yield Checkup(subject=SETTINGS, name=name, state="ok", found=f"from {source}")
    yield from run_checks(_checks(settings, streams, errors, roles), begin)


def _loaded(settings: Settings, names: Sequence[str]) -> tuple[list[Stream], list[tuple[str, TidemarkError]]]:
    streams, errors = [], []
    for name in names:
        try:
            streams.append(load_stream(name, settings.streams_dir))
        except TidemarkError as error:
            errors.append((name, error))
    return streams, errors


def _checks(
    settings: Settings, streams: list[Stream], errors: list[tuple[str, TidemarkError]], roles: Sequence[Role]
) -> list[Probe]:
    found = [Probe(subject=SETTINGS, name="deployment", ask=partial(_deployment, settings))]
    found.append(Probe(subject=SETTINGS, name="streams", ask=partial(_streams, settings, streams, errors)))
    found += machine.checks_without_java(settings)
    if USES_KAFKA & set(roles):
        found += kafka.connection_checks(settings.kafka, KAFKA)
    if USES_LIVE_KAFKA & set(roles) and settings.speed_kafka_bootstrap is not None:
        found += kafka.connection_checks(settings.speed_kafka, LIVE_KAFKA)
    found += kafka_rights.rights_checks(settings, streams, roles)
    found += s3.connection_checks(settings)
    needs = s3_needs(settings, roles)
    found += s3_rights.rights_checks(settings, needs)
    if (place := writable(needs)) is not None:
        found += s3.conditional_checks(settings, place.key, (f"{S3}: {place.name}",))
    found += catalog.catalog_checks(settings, roles, _keys(needs, tables_folder(settings)))
    return [*found, *machine.java_checks(streams)]


def _keys(needs: Sequence[S3Need], folder: str) -> tuple[str, ...]:
    """The checks of the permissions on a folder of the bucket."""
    return tuple(f"{S3}: {need.name}" for need in needs if need.key.startswith(folder))


def _deployment(settings: Settings, probe: Probe) -> Iterable[Checkup]:
    """Two deployments of one name on one Kafka cluster would share transactional ids and markers."""
    default = "/".join(part for part in (settings.bucket, settings.prefix) if part)
    text = f"{settings.deployment}: bucket {settings.bucket}, prefix {settings.prefix or '(none)'}"
    if settings.deployment == default:
        text += "; set TIDEMARK_DEPLOYMENT if a deployment with an equal bucket name uses this Kafka cluster"
    yield probe.ok(text)


def _streams(
    settings: Settings, streams: Sequence[Stream], errors: Sequence[tuple[str, TidemarkError]], probe: Probe
) -> Iterable[Checkup]:
    for name, error in errors:
        line = failure(probe, error, name=f"stream {name}")
        yield probe.failed(line.found, line.hint or "'tidemark streams' checks it", name=line.name)
    if not streams and not errors:
        yield probe.warning(f"none in {settings.streams_dir}", "Set TIDEMARK_STREAMS_DIR, or define a stream")
    elif not errors:
        yield probe.ok(", ".join(stream.name for stream in streams))
