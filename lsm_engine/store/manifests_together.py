"""Manifest lists and manifests of many tables: read one by one, decoded together.

What a small file costs is mostly work per column, and looking at one costs as much as at a thousand.
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
"""Files decoded by one call: of so many the loop is interpreted, and the compiler is not loaded for it."""


def keep_lists(wanted: Iterable[tuple[ManifestStore, str, int | None]]) -> None:
    """Read manifest lists, decoded in one go, and have their stores keep them: (store, name, checksum) of each.

    Whatever is wrong with one is left to `ManifestStore.read_list`.
    """
    found = [
        ((store, name), data)
        for store, name, checksum in wanted
        if (data := _content(store, name, checksum)) is not None
    ]
    for some, opened in _alike(found):
        with suppress(LsmError):
            for (store, name), metas in zip(some, decode_manifest_lists(opened), strict=True):
                store.take_list(name, metas)


def joined_entries(
    wanted: Sequence[tuple[ManifestStore, ManifestFileMeta]], columns: Collection[str]
) -> Iterator[tuple[pa.Table, Longs, Sequence[int]]]:
    """Yield entries of manifests, for each the place of its manifest in `wanted`, and the places of all.

    Manifests that are large, or that something is wrong with, are in none: `ManifestStore.read` them.
    """
    for tracks_rows in (False, True):
        found = [
            (place, data)
            for place, (store, meta) in enumerate(wanted)
            if store.tracks_rows is tracks_rows
            and meta.file_size <= SMALL_BYTES
            and (data := _content(store, meta.file_name, meta.checksum)) is not None
        ]
        for places, opened in _alike(found):
            with suppress(LsmError):
                yield from _joined(wanted, places, opened, columns)


def _joined(
    wanted: Sequence[tuple[ManifestStore, ManifestFileMeta]],
    places: Sequence[int],
    opened: Sequence[Container],
    columns: Collection[str],
) -> Iterator[tuple[pa.Table, Longs, Sequence[int]]]:
    joined = joined_manifests(opened, {*columns, *GATE_COLUMNS})
    if joined is None:
        return
    entries, counts = joined
    wanted[places[0]][0].refuse_entries(entries, file_name="", table="")
    metas = [wanted[place][1] for place in places]
    whole = [
        count == meta.added_file_count + meta.deleted_file_count
        for count, meta in zip(counts, metas, strict=True)
    ]
    kept = np.repeat(whole, counts)
    asked = [name for name in entries.column_names if name in columns]
    yield (
        entries.select(asked).filter(pa.array(kept)),
        np.repeat(np.array(places, np.int64), counts)[kept],
        list(compress(places, whole)),
    )


def _content(store: ManifestStore, name: str, checksum: int | None) -> bytes | None:
    with suppress(LsmError):
        return store.content(name, checksum)
    return None


def _alike(found: Iterable[tuple[K, bytes]]) -> Iterator[tuple[list[K], list[Container]]]:
    """Yield files of one schema together, not too many; what is no Avro file is left out."""
    grouped: dict[int, tuple[list[K], list[Container]]] = {}
    for key, data in found:
        with suppress(LsmError):
            container = read_container(data, file_name="")
            # Texts that are equal are decoded into the same object.
            keys, opened = grouped.setdefault(id(container.schema), ([], []))
            keys.append(key)
            opened.append(container)
    for keys, opened in grouped.values():
        for at in range(0, len(keys), _TOGETHER):
            yield keys[at : at + _TOGETHER], opened[at : at + _TOGETHER]
