"""Data files in Parquet, being read: row group by row group, with the bounds of its footer."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lsm_engine.base.record import record
from lsm_engine.format.stats import ColumnExtremes
from lsm_engine.kernels.arrow_views import Longs
from lsm_engine.kernels.selection import take
from lsm_engine.storage.object_input import ObjectInput

if TYPE_CHECKING:
    from lsm_engine.data_files.parquet_pages import PageReader


# -- Statistics of Parquet footers: minima, maxima and null counts per row group -------------------


@record
class ColumnBounds:
    """One entry per row group: `lower` and `upper` are null where nothing is known, and where every
    value is null; `null_counts` holds None where unknown.
    """

    lower: pa.Array
    upper: pa.Array
    null_counts: tuple[int | None, ...]
    is_known: tuple[bool, ...]  # whether the bounds cover every value that is not null

    def of_each(self, group_counts: Sequence[int]) -> ColumnExtremes:
        """Return the extremes of each file. The row groups of files follow each other, `group_counts` per file.

        A bound is null where any row group's is not known, a count None where any has none.
        """
        if all(count == 1 for count in group_counts):
            # Each file has one row group, so the bounds of groups are those of files.
            is_known = pa.array(self.is_known, pa.bool_())
            null = pa.scalar(None, self.lower.type)
            lower, upper = self.lower, self.upper
            # A mask costs more than it is worth where every bound is known.
            if not all(self.is_known):
                lower, upper = (pc.if_else(is_known, bound, null) for bound in (lower, upper))
            return ColumnExtremes(least=lower, greatest=upper, null_counts=self.null_counts)
        ends = list(accumulate(group_counts, initial=0))
        parts = [self._file_extremes(slice(*pair)) for pair in pairwise(ends)]
        return ColumnExtremes(
            least=pa.concat_arrays([part.least for part in parts]),
            greatest=pa.concat_arrays([part.greatest for part in parts]),
            null_counts=[part.null_counts[0] for part in parts],
        )

    def _file_extremes(self, groups: slice) -> ColumnExtremes:
        kind = self.lower.type
        lower = upper = pa.nulls(1, kind)
        if all(self.is_known[groups]):
            lower = pa.array([pc.min(self.lower[groups])], kind)
            upper = pa.array([pc.max(self.upper[groups])], kind)
        counts = self.null_counts[groups]
        known_counts = [count for count in counts if count is not None]
        return ColumnExtremes(
            least=lower,
            greatest=upper,
            null_counts=[sum(known_counts) if len(known_counts) == len(counts) else None],
        )


def column_bounds(
    row_groups: Sequence["pq.RowGroupMetaData"],
    leaf: int,
    stored: pa.DataType,
    *,
    nan_free: bool = False,
) -> ColumnBounds:
    """Return the bounds of one leaf column in row groups of any files, in its stored Arrow type.

    Unless it is known to be `nan_free`, a floating point column has no upper bound: NaN sorts last,
    and no statistics count it.
    """
    chunks = [group.column(leaf).statistics for group in row_groups]
    has_bounds = [chunk is not None and chunk.has_min_max for chunk in chunks]
    read = _reader(stored)
    lower = [read(chunk, "min") if has else None for chunk, has in zip(chunks, has_bounds)]  # noqa: B905
    upper = [read(chunk, "max") if has else None for chunk, has in zip(chunks, has_bounds)]  # noqa: B905
    if pa.types.is_floating(stored) and not nan_free:
        upper = [None] * len(upper)
    return ColumnBounds(
        lower=_typed(lower, stored),
        upper=_typed(upper, stored),
        null_counts=tuple(
            chunk.null_count if chunk is not None and chunk.has_null_count else None
            for chunk in chunks
        ),
        is_known=tuple(
            has or (chunk is not None and chunk.has_null_count and chunk.num_values == 0)
            for chunk, has in zip(chunks, has_bounds, strict=True)
        ),
    )


def _reader(stored: pa.DataType) -> Callable[[Any, str], Any]:
    if _is_number_of_bits(stored) or pa.types.is_string(stored) or pa.types.is_binary(stored):
        return _raw
    # Other types have a logical form that PyArrow has to convert.
    return _cooked


def _raw(chunk: Any, bound: str) -> Any:
    return getattr(chunk, bound + "_raw")


def _cooked(chunk: Any, bound: str) -> Any:
    return getattr(chunk, bound)


def _is_number_of_bits(stored: pa.DataType) -> bool:
    """Whether Parquet and Arrow store a type as the same integer: no detour by datetime."""
    return bool(pa.types.is_temporal(stored))


def _typed(values: list[Any], stored: pa.DataType) -> pa.Array:
    if _is_number_of_bits(stored):
        # Raw statistics of floating numbers are integers of the same bits.
        return pa.array(values, pa.int64() if stored.bit_width == 64 else pa.int32()).view(stored)
    if pa.types.is_string(stored):
        # Raw statistics of text are bytes.
        return pa.array(values, pa.binary()).cast(stored)
    return pa.array(values, stored)


def leaf_positions(schema: pa.Schema) -> dict[str, int]:
    """Return the leaf position of every flat column; structures count their leaves and have none."""
    positions = {}
    position = 0
    for field in schema:
        if not pa.types.is_nested(field.type):
            positions[field.name] = position
        position += leaf_count(field.type)
    return positions


def leaf_count(value: pa.DataType) -> int:
    """Return how many Parquet columns hold an Arrow type."""
    if pa.types.is_map(value):
        return leaf_count(value.key_type) + leaf_count(value.item_type)
    if pa.types.is_list(value) or pa.types.is_large_list(value):
        return leaf_count(value.value_type)
    if pa.types.is_struct(value):
        return sum(leaf_count(value.field(i).type) for i in range(value.num_fields))
    return 1


# -- Data files in Parquet, being read: row group by row group, with the bounds of its footer ------

_REPEATED_BYTES = 4
"""Bytes per value of a column that its dictionary makes small, dictionary included."""

_TOGETHER_BYTES = 16 << 20
"""How much of a remote file's row groups is fetched together; one that is larger comes alone."""


_WHOLE_BYTES = 32 << 20
"""Up to so many encoded, uncompressed bytes a row group is decoded whole."""

_PIECE_BYTES = 8 << 20
_BUFFER_BYTES = 256 << 10
"""Compressed bytes of each column that are read at once where a row group is read in pieces."""


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
        self._dictionaries: Sequence[str] = ()

    @property
    def members(self) -> Mapping[bytes, bytes]:
        """Texts that the writer put into the footer."""
        metadata: Mapping[bytes, bytes] | None = self._file.metadata.metadata
        return metadata or {}

    @cached_property
    def _pages(self) -> "PageReader":
        from lsm_engine.data_files.parquet_pages import PageReader  # noqa: PLC0415 -- most reads are of all rows

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

    def is_large(self, group: int) -> bool:
        """Whether a row group takes so much memory that its rows are better read in pieces."""
        size: int = self._file.metadata.row_group(group).total_byte_size
        return size > _WHOLE_BYTES

    def group_pieces(self, group: int, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield columns of one row group in pieces of about `_PIECE_BYTES`, decoded one after another."""
        columns = None if self._has_dots else list(names)
        if isinstance(self._source, ObjectInput):
            self._hold(group, columns)
        facts = self._file.metadata.row_group(group)
        rows = max(1, _PIECE_BYTES * facts.num_rows // facts.total_byte_size)
        # Without a buffer all compressed bytes of the row group would be in memory.
        buffered = open_parquet(
            self._source,
            self._file.metadata,
            verify_checksums=self._verify_checksums,
            dictionaries=self._dictionaries,
            buffer_bytes=_BUFFER_BYTES,
        )
        pieces: Iterator[pa.RecordBatch] = buffered.iter_batches(
            rows, [group], columns, use_threads=False
        )
        return pieces

    def expect_groups(self, groups: Sequence[int]) -> None:
        """Have these row groups in mind, in this order: of a remote file small ones are fetched together."""
        self._expected = groups

    def _hold(self, group: int, names: Sequence[str] | None) -> None:
        # Another read of the same columns has fetched this group already.
        if group in self._held and names == self._held_names:
            return
        # A group outside the plan has no successors to fetch with it.
        position = self._expected.index(group) if group in self._expected else len(self._expected)
        ranges, groups = self._ranges(group, names), [group]
        for later in self._expected[position + 1 :]:
            later_ranges = self._ranges(later, names)
            if sum(count for _, count in (*ranges, *later_ranges)) > _TOGETHER_BYTES:
                # The order of groups is kept: the ones after it wait for the next fetch.
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
            self._dictionaries = names
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
            # Without rows no dictionary shows what a column holds.
            return False
        chunk = self._file.metadata.row_group(0).column(leaf)
        small = chunk.total_uncompressed_size <= _REPEATED_BYTES * max(chunk.num_values, 1)
        # A dotted name would be taken for a nested field by PyArrow.
        return small and not self._has_dots and "RLE_DICTIONARY" in chunk.encodings

    def bounds(self, name: str) -> ColumnBounds | None:
        """Return what is known per row group of a flat column, in its stored type."""
        leaf = self._leaves.get(name)
        if leaf is None:
            # Nested columns have several leaves and no bounds of their own.
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
    buffer_bytes: int = 0,
) -> "pq.ParquetFile":
    """Return a reader of one file, with nothing inferred from its path and no threads of its own.

    `footer`: of the same file; None: it is read. `dictionaries`: columns to return dictionary-encoded.
    `buffer_bytes`: read so many bytes of a column at once; 0: all of a row group.
    """
    return pq.ParquetFile(
        source,
        metadata=footer,
        read_dictionary=list(dictionaries) or None,
        pre_buffer=False,
        buffer_size=buffer_bytes,
        page_checksum_verification=verify_checksums,
        arrow_extensions_enabled=False,
    )
