"""Each writer's manifests form a chain by digest; a broken link shows a manifest that was deleted or altered."""

from collections.abc import Iterable
from dataclasses import dataclass

from tidemark.core.manifest import Manifest, digest


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokenLink:
    """A manifest whose ``previous`` (``found``) is not the digest of the writer's manifest before it (``expected``).

    ``after`` is that manifest's batch; None where there is none, so that no digest at all was expected.
    """

    writer: str
    batch: int
    after: int | None
    expected: str | None
    found: str | None

    def __str__(self) -> str:
        behind = "as the writer's first" if self.after is None else f"behind batch {self.after}"
        return (
            f"broken chain: writer {self.writer}, batch {self.batch} {behind}: "
            f"expected previous {self.expected or 'none'}, found {self.found or 'none'}"
        )


def broken_links(manifests: Iterable[Manifest]) -> tuple[BrokenLink, ...]:
    """Every broken link, by writer and batch. A writer's last manifest can't be missed this way: it shows as a gap."""
    links = []
    before: Manifest | None = None
    for manifest in sorted(manifests, key=lambda item: (item.writer, item.batch)):
        if before is not None and before.writer != manifest.writer:
            before = None
        expected = None if before is None else digest(before.to_json())
        if manifest.previous != expected:
            links.append(
                BrokenLink(
                    writer=manifest.writer,
                    batch=manifest.batch,
                    after=None if before is None else before.batch,
                    expected=expected,
                    found=manifest.previous,
                )
            )
        before = manifest
    return tuple(links)
