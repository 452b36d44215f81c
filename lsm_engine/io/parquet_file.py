"""Data files in Parquet, being read: row group by row group, with the bounds of its footer."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from lsm_engine.io.object_input import ObjectInput
from lsm_engine.io.parquet_stats import ColumnBounds, column_bounds, leaf_positions
from lsm_engine.kernels.arrow_views import Longs
from lsm_engine.kernels.selection import take

if TYPE_CHECKING:
    from lsm_engine.io.parquet_pages import PageReader

_REPEATED_BYTES = 4
"""Bytes per value of a column that its dictionary makes small, dictionary included."""

_TOGETHER_BYTES = 16 << 20
"""How much of a far file's row groups is fetched together; one that is larger comes alone."""


class ParquetFile:
    """One Parquet file being read, its pages' checksums verified where it has them if asked to."""

    def __init__(self, source: Any, footer: "pq.FileMetaData", *, verify_checksums: bool) -> None:
        self._source = source
        self._verify_checksums = verify_checksums
        self._file = open_parquet(source, footer, verify_checksums=verify_checksums)
        self.schema: pa.Schema = self._file.schema_arrow
        self.group_rows = tuple(footer.row_group(i).num_rows for i in range(footer.num_row_groups))
        self._has_dots = any("." in name for name in self.schema.names)
        self._expected: Sequence[int] = ()
        self._held: frozenset[int] = frozenset()
        self._held_names: Sequence[str] | None = None

    @property
    def members(self) -> Mapping[bytes, bytes]:
        """Texts that the writer put into the footer."""
        metadata: Mapping[bytes, bytes] | None = self._file.metadata.metadata
        return metadata or {}

    @cached_property
    def _pages(self) -> "PageReader":
        from lsm_engine.io.parquet_pages import PageReader  # noqa: PLC0415 -- most reads are of all rows

        return PageReader(
            self._source,
            self._file.metadata,
            self.schema,
            verify_checksums=self._verify_checksums,
        )

    @cached_property
    def _leaves(self) -> dict[str, int]:
        return leaf_positions(self.schema)

    def read_group(self, group: int, names: Sequence[str]) -> pa.Table:
        """Return columns of one row group."""
        # A dot in a name is a path to PyArrow: then every column is read, and chosen later.
        columns = None if self._has_dots else list(names)
        if isinstance(self._source, ObjectInput):  # columns come together, not one after the other
            self._hold(group, columns)
        return self._file.read_row_group(group, columns=columns, use_threads=False)

    def expect_groups(self, groups: Sequence[int]) -> None:
        """Have these row groups in mind, in this order: of a far file small ones are fetched together."""
        self._expected = groups

    def _hold(self, group: int, names: Sequence[str] | None) -> None:
        if group in self._held and names == self._held_names:
            return
        position = self._expected.index(group) if group in self._expected else len(self._expected)
        ranges, groups = self._ranges(group, names), [group]
        for later in self._expected[position + 1 :]:
            later_ranges = self._ranges(later, names)
            if sum(count for _, count in (*ranges, *later_ranges)) > _TOGETHER_BYTES:
                break
            ranges += later_ranges
            groups.append(later)
        self._source.hold_ranges(ranges)
        self._held, self._held_names = frozenset(groups), names

    def _ranges(self, group: int, names: Sequence[str] | None) -> list[tuple[int, int]]:
        """Return offset and length of the chunks of columns (None: all) in a row group."""
        facts = self._file.metadata.row_group(group)
        chunks = map(facts.column, range(facts.num_columns))
        roots = None if names is None else frozenset(names)
        ranges = []
        for chunk in chunks:
            if roots is None or chunk.path_in_schema.partition(".")[0] in roots:
                pages = chunk.data_page_offset
                start = min(pages, chunk.dictionary_page_offset or pages)
                ranges.append((start, chunk.total_compressed_size))
        return ranges

    def read_rows(self, group: int, names: Sequence[str], rows: Longs) -> pa.Table:
        """Return columns of some rows of one row group, which ascend; pages without any are left out."""
        columns: dict[str, pa.ChunkedArray] = {}
        flat = {name: self._leaves[name] for name in names if name in self._leaves}
        if flat and self._pages.pays(group, rows):
            columns = self._pages.rows(group, flat, rows)
        remaining = [name for name in names if name not in columns]
        if remaining:
            table = take(self.read_group(group, remaining), rows)
            columns |= dict(zip(table.column_names, table.columns, strict=True))
        return pa.table({name: columns[name] for name in names})

    def keep_dictionaries(self) -> None:
        """Return text that is stored by dictionary as such from now on (StoredFile)."""
        names = [name for name, leaf in self._leaves.items() if self._is_repeated_text(name, leaf)]
        if names:
            self._file = open_parquet(
                self._source,
                self._file.metadata,
                verify_checksums=self._verify_checksums,
                dictionaries=names,
            )

    def _is_repeated_text(self, name: str, leaf: int) -> bool:
        """Whether a column's values are numbers of a dictionary, judged by the first row group.

        Where a writer has given a dictionary up for plain text, making one here would cost more.
        """
        kind = self.schema.field(name).type
        if not (pa.types.is_string(kind) or pa.types.is_binary(kind)) or not self.group_rows:
            return False
        chunk = self._file.metadata.row_group(0).column(leaf)
        small = chunk.total_uncompressed_size <= _REPEATED_BYTES * max(chunk.num_values, 1)
        return small and not self._has_dots and "RLE_DICTIONARY" in chunk.encodings

    def bounds(self, name: str) -> ColumnBounds | None:
        """Return what is known per row group of a flat column, in its stored type."""
        leaf = self._leaves.get(name)
        if leaf is None:
            return None
        stored = self.schema.field(name).type
        footer = self._file.metadata
        groups = [footer.row_group(i) for i in range(footer.num_row_groups)]
        return column_bounds(groups, leaf, stored)


def open_parquet(
    source: Any,
    footer: "pq.FileMetaData | None",
    *,
    verify_checksums: bool,
    dictionaries: Sequence[str] = (),
) -> "pq.ParquetFile":
    """Return a reader of one file, with nothing inferred from its path and no threads of its own.

    `footer`: of the same file; None: it is read. `dictionaries`: columns to return dictionary-encoded.
    """
    return pq.ParquetFile(
        source,
        metadata=footer,
        read_dictionary=list(dictionaries) or None,
        pre_buffer=False,
        page_checksum_verification=verify_checksums,
        arrow_extensions_enabled=False,
    )
