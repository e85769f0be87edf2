"""A writer's manifests form a chain by digest; a broken link shows that a manifest was deleted or changed."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from tidemark.core.manifest import Manifest, digest


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokenLink:
    """A manifest whose ``previous`` (``found``) is not the digest of the writer's manifest before it (``expected``).

    ``after`` is that manifest's batch; None without one, when no digest was expected.
    """

    writer: str
    batch: int
    after: int | None
    expected: str | None
    found: str | None

    def __str__(self) -> str:
        place = "as the writer's first" if self.after is None else f"after batch {self.after}"
        return (
            f"broken chain: writer {self.writer}, batch {self.batch} {place}: "
            f"expected previous {self.expected or 'none'}, found {self.found or 'none'}"
        )


def broken_links(
    manifests: Iterable[Manifest], last: Mapping[str, tuple[int, str]] = MappingProxyType({})
) -> tuple[BrokenLink, ...]:
    """Every broken link, by writer and batch. A missing last manifest breaks no link; it shows as a gap in a plan.

    ``last`` holds batch and digest of the manifest before a writer's first one here.
    """
    links = []
    known = dict(last)
    for manifest in sorted(manifests, key=lambda item: (item.writer, item.batch)):
        after, expected = known.get(manifest.writer, (None, None))
        if manifest.previous != expected:
            links.append(
                BrokenLink(
                    writer=manifest.writer,
                    batch=manifest.batch,
                    after=after,
                    expected=expected,
                    found=manifest.previous,
                )
            )
        known[manifest.writer] = (manifest.batch, digest(manifest.to_json()))
    return tuple(links)
