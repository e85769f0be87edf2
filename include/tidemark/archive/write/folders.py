"""A bound on the folders of a batch: a producer decides how many values a partitioner's field has."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from tidemark.core.layout import Layout
from tidemark.core.manifest import DataFile
from tidemark.definitions.sections import DefaultPartitioner, FieldPartitioner, TimePartitioner
from tidemark.spark.paths import folder_name

Key = tuple[str, int, str]  # topic, partition, path
# No value and no time is encoded with a bare "~".
OVERFLOW = "~overflow"


def overflow_folder(partitioner: DefaultPartitioner | FieldPartitioner | TimePartitioner) -> str:
    """The folder of rows beyond ``max_folders``, with the levels of a field partitioner's other folders."""
    if isinstance(partitioner, FieldPartitioner):
        return "/".join(f"{folder_name(path)}={OVERFLOW}" for path in partitioner.fields)
    return OVERFLOW


def in_overflow(layout: Layout, file: DataFile) -> bool:
    """Whether the file is in an overflow folder."""
    return layout.parse_data_key(file.key).path.endswith(OVERFLOW)


@dataclass(slots=True, kw_only=True)
class FolderBound:
    """The folders that each log's rows may fill: the first ``most`` in offset order, and ``overflow`` for the others.

    A task has all rows of a log's range in offset order. So a retry fills the same folders, whatever its Arrow batches.
    """

    most: int
    overflow: str
    _filled: dict[tuple[str, int], set[str]] = field(default_factory=dict)

    def apply(self, keys: Sequence[Key], codes: npt.NDArray[np.int32]) -> tuple[list[Key], npt.NDArray[np.int32]]:
        """The distinct keys of rows in order of appearance, and each row's position among them, within the bound."""
        bounded = [self._bounded(key) for key in keys]
        places = {key: place for place, key in enumerate(dict.fromkeys(bounded))}
        if len(places) == len(keys):
            return bounded, codes
        return list(places), np.array([places[key] for key in bounded], dtype=codes.dtype)[codes]

    def _bounded(self, key: Key) -> Key:
        filled = self._filled.setdefault(key[:2], set())
        if key[2] not in filled:
            if len(filled) >= self.most:
                return (*key[:2], self.overflow)
            filled.add(key[2])
        return key
