"""Record keys of data files: as text, and what a Parquet footer keeps of them for `locate`.

The record key of one column is its value as text; of several it is "name:value" of each, joined by
commas. Binary values stand for themselves.
"""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lsm_engine.base import core_options
from lsm_engine.base.modes import BloomFilterType
from lsm_engine.base.table_options import TableOptions
from lsm_engine.codec.record_key_bloom import (
    build_record_key_bloom,
    footer_entries,
)
from lsm_engine.kernels.arrow_views import Bytes, Longs, binary_values, one_array

_EMPTY: Bytes = np.zeros(0, np.uint8)


def record_keys(names: Sequence[str], columns: Sequence[pa.Array | pa.ChunkedArray]) -> pa.Array:
    """Return the record key of each row as bytes (large_binary)."""
    texts = [_text(one_array(column)) for column in columns]
    if len(texts) == 1:
        return texts[0]
    parts = []
    for i, (name, text) in enumerate(zip(names, texts, strict=True)):
        label = f"{',' if i else ''}{name}:".encode()
        parts += [pa.scalar(label, pa.large_binary()), text]
    return pc.binary_join_element_wise(*parts, pa.scalar(b"", pa.large_binary()))


def _text(column: pa.Array) -> pa.Array:
    kind = column.type
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return column.cast(pa.large_binary())
    return column.cast(pa.string()).cast(pa.large_binary())


def key_footer_members(options: TableOptions, pieces: Sequence[pa.Array]) -> dict[bytes, bytes]:
    """Return the footer members of a file of these record keys: filter, its type, least and greatest."""
    keys = one_array(pa.chunked_array(pieces, pa.large_binary()))
    if not len(keys):
        return {}
    kind = options[core_options.INDEX_BLOOM_FILTER_TYPE]
    entries = options[core_options.INDEX_BLOOM_NUM_ENTRIES]
    if kind is BloomFilterType.SIMPLE:
        entries = max(entries, len(keys))
    data, offsets = binary_values(keys)
    stored = build_record_key_bloom(
        data,
        offsets,
        kind,
        entries=entries,
        fpp=options[core_options.INDEX_BLOOM_FPP],
        # Never fewer than there are keys: a filter that is full lets everything through.
        max_entries=max(options[core_options.INDEX_BLOOM_DYNAMIC_MAX_ENTRIES], len(keys)),
    )
    bounds = pc.min_max(keys)
    return footer_entries(stored, kind, bounds["min"].as_py(), bounds["max"].as_py())


def key_pieces(keys: pa.Array) -> tuple[Bytes, Longs]:
    """Return the bytes of record keys and their n + 1 offsets."""
    return binary_values(keys) if len(keys) else (_EMPTY, np.zeros(1, np.int64))
