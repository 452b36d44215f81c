"""Batched decoding of manifest lists and manifests of many tables.

The cost of a small file is mostly work per column, which one batch pays once for all files.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import compress
from typing import TypeVar

import numpy as np
import pyarrow as pa

from lsm_engine.base.errors import LsmError
from lsm_engine.codec.avro_container import Container, read_container
from lsm_engine.codec.entry_checks import joined_manifests
from lsm_engine.codec.manifest import decode_manifest_lists
from lsm_engine.codec.manifest_gate import GATE_COLUMNS
from lsm_engine.kernels.arrow_views import Longs
from lsm_engine.meta.manifest import ManifestFileMeta
from lsm_engine.store.manifests import SMALL_BYTES, ManifestStore

K = TypeVar("K")

_TOGETHER = 256
"""Files decoded by one call: the loop over so few is interpreted, without loading the compiler."""


def keep_lists(lists: Iterable[tuple[ManifestStore, str, int | None]]) -> None:
    """Read manifest lists, given by (store, name, checksum), and cache them in their stores.

    `ManifestStore.read_list` reports the errors of a damaged one.
    """
    contents = [
        ((store, name), data)
        for store, name, checksum in lists
        if (data := _content(store, name, checksum)) is not None
    ]
    for keys, containers in _alike(contents):
        with suppress(LsmError):
            for (store, name), metas in zip(keys, decode_manifest_lists(containers), strict=True):
                store.take_list(name, metas)


def joined_entries(
    manifests: Sequence[tuple[ManifestStore, ManifestFileMeta]], columns: Collection[str]
) -> Iterator[tuple[pa.Table, Longs, Sequence[int]]]:
    """Yield batches: entries, for each the position of its manifest in `manifests`, and all positions.

    Large and damaged manifests are in no batch: read them by `ManifestStore.read`.
    """
    for tracks_rows in (False, True):
        contents = [
            (place, data)
            for place, (store, meta) in enumerate(manifests)
            if store.tracks_rows is tracks_rows
            and meta.file_size <= SMALL_BYTES
            and (data := _content(store, meta.file_name, meta.checksum)) is not None
        ]
        for places, containers in _alike(contents):
            with suppress(LsmError):
                yield from _joined(manifests, places, containers, columns)


def _joined(
    manifests: Sequence[tuple[ManifestStore, ManifestFileMeta]],
    places: Sequence[int],
    containers: Sequence[Container],
    columns: Collection[str],
) -> Iterator[tuple[pa.Table, Longs, Sequence[int]]]:
    joined = joined_manifests(containers, {*columns, *GATE_COLUMNS})
    if joined is None:
        return
    entries, counts = joined
    manifests[places[0]][0].refuse_entries(entries, file_name="", table="")
    metas = [manifests[place][1] for place in places]
    are_complete = [
        count == meta.added_file_count + meta.deleted_file_count
        for count, meta in zip(counts, metas, strict=True)
    ]
    mask = np.repeat(are_complete, counts)
    names = [name for name in entries.column_names if name in columns]
    yield (
        entries.select(names).filter(pa.array(mask)),
        np.repeat(np.array(places, np.int64), counts)[mask],
        list(compress(places, are_complete)),
    )


def _content(store: ManifestStore, name: str, checksum: int | None) -> bytes | None:
    with suppress(LsmError):
        return store.content(name, checksum)
    return None


def _alike(files: Iterable[tuple[K, bytes]]) -> Iterator[tuple[list[K], list[Container]]]:
    """Yield batches of files of one schema; files that are not Avro are left out."""
    grouped: dict[int, tuple[list[K], list[Container]]] = {}
    for key, data in files:
        with suppress(LsmError):
            container = read_container(data, file_name="")
            # Texts that are equal are decoded into the same object.
            keys, containers = grouped.setdefault(id(container.schema), ([], []))
            keys.append(key)
            containers.append(container)
    for keys, containers in grouped.values():
        for start in range(0, len(keys), _TOGETHER):
            yield keys[start : start + _TOGETHER], containers[start : start + _TOGETHER]
