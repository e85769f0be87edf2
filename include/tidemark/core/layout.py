"""The key of every object in S3, each with one format and one parse function.

Positions are zero-padded so that a listing is in log order. ``prefix`` is the archive's folder in the
bucket, without a trailing slash; it may be empty.
"""

import re
from dataclasses import dataclass
from datetime import date

from tidemark.core.errors import FormatError
from tidemark.core.offsets import OffsetRange

_DATA = re.compile(
    r"(?P<path>.+)/(?P<topic>[A-Za-z0-9._-]+)\+(?P<partition>\d+)\+(?P<start>\d{20})\+(?P<end>\d{20})"
    r"\+(?P<seq>\d{4,})\.parquet"
)
_MANIFEST = re.compile(r"(?P<writer>[^/]+)/(?P<batch>\d{12,})\.json")
_LEDGER = re.compile(r"(?P<number>\d{8,})\.ledger")
_VERSION = re.compile(r"(?P<day>\d{4}-\d{2}-\d{2})/(?P<version>\d{4,})\.json")
_SUMMARY = re.compile(r"(?P<month>\d{4}-\d{2})\.json")


@dataclass(frozen=True, slots=True, kw_only=True)
class DataName:
    """The parts of a data object's key. ``range`` is the committed range, not that of its own rows."""

    path: str
    topic: str
    partition: int
    range: OffsetRange
    seq: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """The keys of one stream's objects below the archive's prefix."""

    prefix: str
    stream: str

    def _under(self, kind: str) -> str:
        return "/".join(part for part in (self.prefix, kind, self.stream) if part) + "/"

    @property
    def data_prefix(self) -> str:
        return self._under("data")

    @property
    def manifest_prefix(self) -> str:
        return self._under("manifests")

    @property
    def ledger_prefix(self) -> str:
        return self._under("ledger")

    @property
    def seal_prefix(self) -> str:
        return self._under("seals")

    @property
    def lease_key(self) -> str:
        return f"{self._under('leases')}reconcile.json"

    @property
    def log_extents_key(self) -> str:
        """The key of the offsets that reconcile runs have seen in Kafka."""
        return f"{self._under('log-extents')}reconcile.json"

    @property
    def run_prefix(self) -> str:
        return self._under("runs")

    def checkpoint_prefix(self, layer: str) -> str:
        """The folder of a query's checkpoint (``archive``, ``speed``, ``departures``), or of the ``replay`` plans."""
        return f"{self._under('checkpoints')}{layer}/"

    def data_key(self, name: DataName) -> str:
        return (
            f"{self.data_prefix}{name.path}/{name.topic}+{name.partition}"
            f"+{name.range.start:020}+{name.range.end:020}+{name.seq:04}.parquet"
        )

    def parse_data_key(self, key: str) -> DataName:
        form = "<path>/<topic>+<partition>+<start>+<end>+<seq>.parquet"
        found = _parse(_DATA, self.data_prefix, key, "a data object's", form)
        return DataName(
            path=found["path"],
            topic=found["topic"],
            partition=int(found["partition"]),
            range=OffsetRange(start=int(found["start"]), end=int(found["end"])),
            seq=int(found["seq"]),
        )

    def manifest_key(self, writer: str, batch: int) -> str:
        return f"{self.manifest_prefix}{writer}/{batch:012}.json"

    def parse_manifest_key(self, key: str) -> tuple[str, int]:
        found = _parse(_MANIFEST, self.manifest_prefix, key, "a manifest's", "<writer>/<batch>.json")
        return found["writer"], int(found["batch"])

    def ledger_key(self, number: int) -> str:
        """The key of a ledger segment; numbers count from 1."""
        return f"{self.ledger_prefix}{number:08}.ledger"

    def parse_ledger_key(self, key: str) -> int:
        found = _parse(_LEDGER, self.ledger_prefix, key, "a ledger segment's", "<number>.ledger")
        return int(found["number"])

    def seal_key(self, day: date, version: int) -> str:
        return f"{self.seal_prefix}{day.isoformat()}/{version:04}.json"

    def parse_seal_key(self, key: str) -> tuple[date, int]:
        found = _parse(_VERSION, self.seal_prefix, key, "a seal's", "<day>/<version>.json")
        return date.fromisoformat(found["day"]), int(found["version"])

    @property
    def certificate_prefix(self) -> str:
        return self._under("certificates")

    def certificate_key(self, day: date, version: int) -> str:
        return f"{self.certificate_prefix}{day.isoformat()}/{version:04}.json"

    def parse_certificate_key(self, key: str) -> tuple[date, int]:
        found = _parse(_VERSION, self.certificate_prefix, key, "a certificate's", "<day>/<version>.json")
        return date.fromisoformat(found["day"]), int(found["version"])

    def object_list_key(self, day: date, sha256: str) -> str:
        """The key of the list of objects with this digest, which seals of the day name."""
        return f"{self.certificate_prefix}{day.isoformat()}/{sha256}.objects"

    @property
    def summary_prefix(self) -> str:
        return self._under("summaries")

    def summary_key(self, month: str) -> str:
        """The key of a month's summaries of seals; ``month`` is YYYY-MM."""
        return f"{self.summary_prefix}{month}.json"

    def parse_summary_key(self, key: str) -> str:
        return _parse(_SUMMARY, self.summary_prefix, key, "a month's summaries'", "<YYYY-MM>.json")["month"]

    @property
    def status_key(self) -> str:
        """The key of the stream's saved status."""
        return "/".join(part for part in (self.prefix, "status", f"{self.stream}.json") if part)

    def heartbeat_key(self, layer: str) -> str:
        """The key of a layer's heartbeat; ``layer`` is ``archive``, ``speed`` or ``departures``."""
        return f"{self._under('heartbeats')}{layer}.json"

    @property
    def last_run_key(self) -> str:
        """The key of the name of the run that wrote a report last."""
        return f"{self.run_prefix}last"

    @property
    def last_delivery_key(self) -> str:
        """The key of the name of the run that audited the delivery last."""
        return f"{self.run_prefix}delivery-last"

    @property
    def report_index_key(self) -> str:
        """The key of the page that links the reports of the runs."""
        return f"{self.run_prefix}index.html"

    def run_key(self, run: str, name: str) -> str:
        """The key of one artefact (``plan.json``, ``report.html``, …) of a reconcile run."""
        return f"{self.run_prefix}{run}/{name}"


def data_docs_name(day: date) -> str:
    """The name of a day's Data Docs among the artefacts of a run."""
    return f"data-docs-{day.isoformat()}.html"


def parse_data_docs_name(name: str) -> date | None:
    """The day of ``data_docs_name``; None for another name."""
    found = re.fullmatch(r"data-docs-(\d{4}-\d\d-\d\d)\.html", name, re.ASCII)
    return date.fromisoformat(found[1]) if found else None


def _parse(pattern: re.Pattern[str], prefix: str, key: str, what: str, form: str) -> re.Match[str]:
    if not key.startswith(prefix):
        raise FormatError("a key outside its folder", expected=f"{prefix}…", found=key)
    found = pattern.fullmatch(key, len(prefix))
    if found is None:
        raise FormatError(f"not {what} key", expected=f"{prefix}{form}", found=key)
    return found
