"""Sets of keys that may be millions: eight bytes a key, where a set of strings takes 200."""

from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import blake2b
from typing import Self

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, slots=True, eq=False)
class KeyHashes:
    """What keys hash to, ascending. A key that was added is ``in``; any other one is with a chance of their number in
    2**64."""

    hashes: npt.NDArray[np.uint64]

    @classmethod
    def of(cls, keys: Iterable[str]) -> Self:
        """The keys, each read once."""
        return cls(np.unique(np.fromiter(map(_hash, keys), np.uint64)))

    def __len__(self) -> int:
        return len(self.hashes)

    def __contains__(self, key: str) -> bool:
        own = np.uint64(_hash(key))
        at = int(np.searchsorted(self.hashes, own))
        return at < len(self.hashes) and bool(self.hashes[at] == own)

    def without(self, other: "KeyHashes") -> "KeyHashes":
        """Those that the other has not; a key that only hashes like one of the other's goes with them."""
        return KeyHashes(np.setdiff1d(self.hashes, other.hashes, assume_unique=True))


def _hash(key: str) -> int:
    return int.from_bytes(blake2b(key.encode(), digest_size=8).digest())
