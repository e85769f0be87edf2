"""The requests to S3 of one batch, of a stream's start and of an idle stream, and their price.

Each function is one part of a process, and says where each request comes from. ``make bench-requests`` counts all of
them, and a test counts those of a batch.
"""

from dataclasses import astuple, dataclass, fields
from math import ceil, inf

HEARTBEAT_S = 10.0  # how often an idle stream writes its heartbeat
LEASE_CHECK_S = 5.0  # how often a stream reads its lease
MANIFESTS_PER_LIST = 1_000  # S3's largest page


@dataclass(frozen=True, slots=True, kw_only=True)
class Requests:
    """Numbers of requests by kind, of any span of time.

    - put: objects written in one request.
    - post: starts and completions of multipart uploads.
    - part: parts of multipart uploads.
    - get: reads of an object or of its end, those of missing objects included.
    - head: reads of an object's metadata.
    - list: pages of listings.
    - delete: objects deleted.
    """

    put: float = 0
    post: float = 0
    part: float = 0
    get: float = 0
    head: float = 0
    list: float = 0
    delete: float = 0

    def __add__(self, other: "Requests") -> "Requests":
        pairs = zip(fields(self), astuple(self), astuple(other), strict=True)
        return Requests(**{field.name: own + more for field, own, more in pairs})

    def times(self, number: float) -> "Requests":
        """So many times each."""
        return Requests(**{field.name: own * number for field, own in zip(fields(self), astuple(self), strict=True)})

    @property
    def writes(self) -> float:
        """Those that Amazon charges as PUT, COPY, POST and LIST."""
        return self.put + self.post + self.part + self.list

    @property
    def reads(self) -> float:
        """Those that Amazon charges as GET and all others."""
        return self.get + self.head

    @property
    def total(self) -> float:
        return float(sum(astuple(self)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """A price list in dollars. Deletions are free; transfer within a region is, too."""

    name: str
    million_writes: float
    million_reads: float
    gb_month: float

    def cost(self, requests: Requests) -> float:
        """The price of the requests, without storage."""
        return (requests.writes * self.million_writes + requests.reads * self.million_reads) / 1_000_000


# An assumption, not a quotation: regions, classes and contracts differ.
ASSUMED_PRICES = Prices(
    name="S3 Standard in us-east-1, list price of 2025", million_writes=5.0, million_reads=0.4, gb_month=0.023
)


def checkpoint_file() -> Requests:
    """Spark writes ``offsets/N`` or ``commits/N``.

    It asks three times whether the file exists, the last time before it closes it, and once whether the folder does.
    For S3A each question about a missing object or a folder is a HEAD and a LIST.
    """
    return Requests(head=4, list=4, put=1)


def checkpoint_purge() -> Requests:
    """Spark deletes the file of 100 batches ago: S3A asks for it, deletes it, and lists what is left of the folder."""
    return Requests(head=1, delete=1, list=1)


def checkpoint_batch() -> Requests:
    """Both files of a batch, once the checkpoint has 100 batches."""
    return (checkpoint_file() + checkpoint_purge()).times(2)


def archive_commit() -> Requests:
    """The archive's driver in one batch.

    - GET: the lease three times; the previous manifest three times, for the topic's id before and after the read, and
      for the digest; the write-ahead log's files N-1 and N, and N for the batch's time; this batch's manifest twice,
      which is missing.
    - LIST: whether the archive was ever compacted.
    - PUT: the manifest.
    """
    return Requests(get=3 + 3 + 3 + 2, list=1, put=1)


def data_object(size: float, part_bytes: int) -> Requests:
    """One data object of so many bytes: a GET finds its name free. Above ``part_bytes`` it goes up in parts."""
    if size <= part_bytes:
        return Requests(get=1, put=1)
    return Requests(get=1, post=2, part=ceil(size / part_bytes))


def heartbeats(seconds: float, interval: float) -> Requests:
    """A stream's heartbeats while it has a batch every ``interval`` seconds, which is infinite for an idle stream.

    One after each batch, and one whenever the last is 10 s old.
    """
    if interval == inf:
        return Requests(put=seconds / HEARTBEAT_S)
    return Requests(put=seconds / interval * max(ceil(interval / HEARTBEAT_S), 1))


def lease_checks(seconds: float) -> Requests:
    """The driver's main thread reads the lease every 5 s."""
    return Requests(get=seconds / LEASE_CHECK_S)


def reconcile_run(*, objects: float, manifests: float, folders: float) -> Requests:
    """A reconcile run of one small day: its data objects, the manifests after the ledger, the folders of the objects.

    - Each folder is listed for the rebuild. Spark looks at each object four times, and reads it three times: its end
      and its columns. An object with more row groups is read more often.
    - The steps ``wait``, ``plan``, ``seal`` and ``report`` read the new manifests, the last one for the status.
    - The rest does not depend on the day's size: 58 objects of the table, its branch, the history, results, seal,
      certificate and lease are written. Each further file of the table is one more.
    """
    return Requests(put=58, get=177 + 3 * objects + 4 * manifests, head=44 + 4 * objects, list=26 + folders)
