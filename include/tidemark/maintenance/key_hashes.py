"""Sets of millions of keys at eight bytes a key; a set of strings takes 200."""

from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import blake2b
from typing import Self

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, slots=True, eq=False)
class KeyHashes:
    """The keys' hashes, ascending. ``in`` is always true for a key of the set; for another key it is true with a
    probability of the set's size in 2**64."""

    hashes: npt.NDArray[np.uint64]

    @classmethod
    def of(cls, keys: Iterable[str]) -> Self:
        """The set of these keys."""
        return cls(np.unique(np.fromiter(map(_hash, keys), np.uint64)))

    def __len__(self) -> int:
        return len(self.hashes)

    def __contains__(self, key: str) -> bool:
        own = np.uint64(_hash(key))
        at = int(np.searchsorted(self.hashes, own))
        return at < len(self.hashes) and bool(self.hashes[at] == own)

    def without(self, other: "KeyHashes") -> "KeyHashes":
        """The keys that are not in the other set; a key with the same hash as one of those is left out, too."""
        return KeyHashes(np.setdiff1d(self.hashes, other.hashes, assume_unique=True))


def _hash(key: str) -> int:
    return int.from_bytes(blake2b(key.encode(), digest_size=8).digest())
