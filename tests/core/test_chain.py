"""A writer's manifests chain by digest; a broken link is a finding."""

import hashlib
from dataclasses import replace

from tests.core.worlds import DAYS, log, manifest_of, span
from tidemark.core.manifest import Manifest
from tidemark.core.manifest_chain import BrokenLink, broken_links


def sha(manifest: Manifest) -> str:
    return hashlib.sha256(manifest.to_json()).hexdigest()


def chain(writer: str, length: int) -> list[Manifest]:
    found: list[Manifest] = []
    for at in range(length):
        manifest = manifest_of(writer, at, {log(): span(at, at + 1)}, {log(): (DAYS[0],) * length}, "whole")
        found.append(replace(manifest, previous=sha(found[-1]) if found else None))
    return found


def test_two_writers_whole_chains_have_no_broken_link_in_any_order() -> None:
    both = chain("a", 4) + chain("b", 3)
    assert broken_links(both[::-1]) == ()


def test_a_deleted_manifest_breaks_the_link_of_the_next_one() -> None:
    whole = chain("a", 4)
    (link,) = broken_links([whole[0], whole[1], whole[3]])
    assert link == BrokenLink(writer="a", batch=3, after=1, expected=sha(whole[1]), found=sha(whole[2]))
    assert str(link) == (
        f"broken chain: writer a, batch 3 after batch 1: expected previous {sha(whole[1])}, found {sha(whole[2])}"
    )


def test_a_deleted_first_manifest_shows_in_the_second() -> None:
    whole = chain("a", 2)
    (link,) = broken_links(whole[1:])
    assert (link.after, link.expected, link.found) == (None, None, sha(whole[0]))
    assert "as the writer's first: expected previous none" in str(link)


def test_an_altered_manifest_breaks_the_link_of_the_next_one() -> None:
    whole = chain("a", 3)
    altered = replace(whole[1], committed_at_us=5)
    (link,) = broken_links([whole[0], altered, whole[2]])
    assert (link.batch, link.expected, link.found) == (2, sha(altered), sha(whole[1]))
