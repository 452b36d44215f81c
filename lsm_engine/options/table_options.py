"""The options of one table: as text, read typed, and refused by name where unsupported."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from types import MappingProxyType
from typing import Any, NoReturn, TypeVar

from lsm_engine.base.errors import ErrorKind, InvalidOptionError, UnsupportedError
from lsm_engine.base.names import did_you_mean
from lsm_engine.base.record import record
from lsm_engine.base.units import parse_bytes
from lsm_engine.options import core_options
from lsm_engine.options.foreign import Verdict, other_option
from lsm_engine.options.modes import ExternalAccess, FileFormat, FileIndexType
from lsm_engine.options.option import FieldOption, Option, at_least, between, fraction

T = TypeVar("T")
_CHANGELOG_FILES: tuple[tuple[Option[Any], str, str], ...] = (
    (
        core_options.CHANGELOG_FILE_FORMAT,
        core_options.FILE_FORMAT.key,
        core_options.FILE_FORMAT_PER_LEVEL.key,
    ),
    (
        core_options.CHANGELOG_FILE_COMPRESSION,
        core_options.FILE_COMPRESSION.key,
        core_options.FILE_COMPRESSION_PER_LEVEL.key,
    ),
    (core_options.CHANGELOG_FILE_STATS_MODE, core_options.STATS_MODE.key, ""),
)
"""An option of changelog files, the one of all files that it stands for, and that one per level."""
_OF_CHANGELOG_FILES = "changelog-file.*"
_INDEXED_COLUMNS: Mapping[FileIndexType, Option[Any]] = MappingProxyType(
    {
        FileIndexType.BLOOM_FILTER: core_options.FILE_INDEX_BLOOM_FILTER_COLUMNS,
        FileIndexType.BITMAP: core_options.FILE_INDEX_BITMAP_COLUMNS,
        FileIndexType.BSI: core_options.FILE_INDEX_BSI_COLUMNS,
        FileIndexType.RANGE_BITMAP: core_options.FILE_INDEX_RANGE_BITMAP_COLUMNS,
    }
)
_BLOCK_BYTES = 16 << 10
_SHORT = 2
"""Bytes of a number of which a range bitmap needs no chunks by default, as there are few values."""
_UNSUPPORTED = "*"


@record
class IndexedColumn:
    """A column of which each new data file has an index, by options `file-index.<type>.*`.

    `items` None: as many as the file has rows. `block_bytes` None: by the type of the column.
    """

    name: str
    type: FileIndexType
    fpp: float = 0.1
    items: int | None = None
    version: int = 2
    block_bytes: int | None = None

    @property
    def key(self) -> str:
        """The option that lists the column."""
        return _INDEXED_COLUMNS[self.type].key

    @property
    def block_limit(self) -> int:
        """Bytes of a block of a bitmap index."""
        return _BLOCK_BYTES if self.block_bytes is None else self.block_bytes

    def chunk_limit(self, width: int | None) -> int:
        """Return the bytes of a chunk of values of a range bitmap. `width`: bytes of a number, None of text."""
        if self.block_bytes is None:
            return 0 if width is not None and width <= _SHORT else _BLOCK_BYTES
        return self.block_bytes


@record
class TableOptions:
    """The options of one table, as text; `options[core_options.TARGET_FILE_SIZE]` reads one, typed.

    A text is parsed when it is first read; the value is kept as long as the object. `unread_columns`: the types, by
    name, of columns in the table's schema that this version does not read; nothing is written beside them.
    """

    texts: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    unread_columns: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    _values: dict[str, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __getitem__(self, option: Option[T]) -> T:
        try:
            value: T = self._values[option.key]
        except KeyError:
            value = self._values.setdefault(option.key, self._parsed(option))
        except AttributeError:
            key: object = option
            if isinstance(key, Option):
                raise
            instead = f"texts.get({key!r})" if isinstance(key, str) else "dict(options.texts)"
            raise TypeError(f"options by their names are in `texts`: {instead}") from None
        return value

    def __setitem__(self, key: object, value: object) -> NoReturn:
        raise TypeError(f"an option is set by table.alter(lsm.SetOption({key!r}, {value!r}))")

    @property
    def hides_level_0(self) -> bool:
        """Whether reads of a table with a key leave level 0 out: first-row, or deletion vectors."""
        has_vectors = self[core_options.DELETION_VECTORS_ENABLED]
        return self[core_options.MERGE_ENGINE].policy.keeps_first_row or (
            has_vectors and not self[core_options.DELETION_VECTORS_MERGE_ON_READ]
        )

    @property
    def writes_iceberg(self) -> bool:
        """Whether commits write Iceberg metadata beside the table's own."""
        return self[core_options.METADATA_ICEBERG_STORAGE] != "disabled"

    @property
    def iceberg_location(self) -> str | None:
        """Where Iceberg metadata lies: `table-location` or `catalog-location`; None: there is none."""
        storage = self[core_options.METADATA_ICEBERG_STORAGE]
        if storage == "disabled":
            return None
        by_storage = "table-location" if storage == "table-location" else "catalog-location"
        return self[core_options.METADATA_ICEBERG_STORAGE_LOCATION] or by_storage

    @property
    def indexed_columns(self) -> tuple[IndexedColumn, ...]:
        """The columns of which each new data file has an index, for each of its types."""
        return tuple(
            self._indexed_column(name, kind)
            for kind, option in _INDEXED_COLUMNS.items()
            for name in dict.fromkeys(self[option])
        )

    def _indexed_column(self, name: str, kind: FileIndexType) -> IndexedColumn:
        def value(suffix: str, parse: Callable[[str], Any]) -> Any:
            key = f"file-index.{kind.value}.{name}.{suffix}"
            text = self.texts.get(key)
            return (
                None
                if text is None
                else Option(key=key, parse=parse, default=None, doc="").parsed(text)
            )

        match kind:
            case FileIndexType.BLOOM_FILTER:
                fpp, items = value("fpp", fraction), value("items", at_least(1))
                return IndexedColumn(name=name, type=kind, fpp=fpp or 0.1, items=items)
            case FileIndexType.BITMAP:
                size = value("index-block-size", parse_bytes)
                version = value("version", between(1, 2)) or 2
                return IndexedColumn(name=name, type=kind, version=version, block_bytes=size)
            case FileIndexType.BSI:
                return IndexedColumn(name=name, type=kind)
            case FileIndexType.RANGE_BITMAP:
                size = value("chunk-size", parse_bytes)
                return IndexedColumn(name=name, type=kind, block_bytes=size)

    def _parsed(self, option: Option[T]) -> T:
        for key in (option.key, *option.aliases):
            if key in self.texts:
                return self.value_of(option, key)
        return option.default

    def value_of(self, option: Option[T], key: str) -> T:
        """Return what the text of `key` means, which is the option's own key or an alias of it."""
        try:
            value: T = self._values[key]
        except KeyError:
            # Of threads that come first at once each parses; all get one of the values.
            value = self._values.setdefault(key, option.parsed(self.texts[key]))
        return value

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (dict(self.texts), dict(self.unread_columns))

    def of_field(self, column: str, suffix: str) -> str | None:
        """Return `fields.<column>.<suffix>`, or None."""
        return self.texts.get(f"fields.{column}.{suffix}")

    def with_texts(self, changes: Mapping[str, str]) -> "TableOptions":
        """Return a copy with `changes` on top."""
        return replace(self, texts=MappingProxyType({**self.texts, **changes}))

    @property
    def unsupported(self) -> "tuple[UnsupportedOption, ...]":
        """Every option that this version does not support, harmless ones included."""
        unsupported: tuple[UnsupportedOption, ...] | None = self._values.get(_UNSUPPORTED)
        if unsupported is None:
            unsupported = self._values.setdefault(_UNSUPPORTED, tuple(_unsupported_among(self)))
        return unsupported

    def require_readable(self) -> None:
        """Raise UnsupportedError, naming the options, for values that stand in the way of reading."""
        self._refuse({Verdict.REFUSES_READING})

    def require_writable(self) -> None:
        """Raise UnsupportedError, naming the options, for values that stand in the way of writing.

        Unknown options do: what writers owe them is not known.
        """
        self._refuse({Verdict.REFUSES_READING, Verdict.REFUSES_WRITING, Verdict.UNKNOWN})

    def require_whole_schema(self) -> None:
        """Raise UnsupportedError, naming it, for a column that is not read: a new schema would be without it."""
        self._refuse_first([refused for refused in self.unsupported if refused.is_column])

    def _refuse(self, verdicts: set[Verdict]) -> None:
        self._refuse_first([refused for refused in self.unsupported if refused.verdict in verdicts])

    @staticmethod
    def _refuse_first(refusing: "Sequence[UnsupportedOption]") -> None:
        if not refusing:
            return
        first = refusing[0]
        option = core_options.find(first.key)
        if isinstance(option, Option) and not first.is_column:
            option.parsed(first.text)  # raises InvalidOptionError for an unknown value
        facts = {"column" if first.is_column else "option": first.key, "value": first.text}
        others_text = "".join(f"; also {refused}" for refused in refusing[1:])
        raise UnsupportedError(
            f"{first.label} is not supported by this version "
            f"({first.reason}); nothing was read or written{others_text}",
            kind=ErrorKind.UNSUPPORTED_TYPE if first.is_column else None,
            **facts,
        )

    # Derived defaults (semantics section 1).

    @property
    def stop_trigger(self) -> int:
        """Runs at which writers wait: never below the compaction trigger."""
        trigger = self[core_options.NUM_SORTED_RUN_COMPACTION_TRIGGER]
        stop = self[core_options.NUM_SORTED_RUN_STOP_TRIGGER]
        return max(trigger, trigger + 3 if stop is None else stop)

    @property
    def level_count(self) -> int:
        """Levels of a tree, level 0 included."""
        return (
            self[core_options.NUM_LEVELS]
            or self[core_options.NUM_SORTED_RUN_COMPACTION_TRIGGER] + 1
        )

    @property
    def spill_threshold(self) -> int:
        """Runs that one merge pass reads at most."""
        return self[core_options.SORT_SPILL_THRESHOLD] or self.stop_trigger + 1

    @property
    def lookup_compact_max_interval(self) -> int:
        """Every how many-th pick takes level 0 by force where `lookup-compact` is gentle."""
        trigger = self[core_options.NUM_SORTED_RUN_COMPACTION_TRIGGER]
        return max(trigger, self[core_options.LOOKUP_COMPACT_MAX_INTERVAL] or 2 * trigger)

    @property
    def commit_retries(self) -> int | None:
        """Lost races that a commit survives; None: as many as `commit.timeout` leaves time for."""
        retries = core_options.COMMIT_MAX_RETRIES
        return self[retries] if retries.key in self.texts else None

    def file_format(self, level: int) -> FileFormat:
        """Format of new data files of a level."""
        own = self[core_options.FILE_FORMAT_PER_LEVEL]
        return dict(own).get(level, self[core_options.FILE_FORMAT])

    def file_compression(self, level: int) -> str:
        """Compression of new data files of a level."""
        own = self[core_options.FILE_COMPRESSION_PER_LEVEL]
        return dict(own).get(level, self[core_options.FILE_COMPRESSION])

    def of_changelog_files(self) -> "TableOptions":
        """Return the options that changelog files are written by: `changelog-file.*` come first."""
        if not any(own.key in self.texts for own, _, _ in _CHANGELOG_FILES):
            return self
        texts = dict(self.texts)
        for own, shared, per_level in _CHANGELOG_FILES:
            if own.key in texts:
                texts[shared] = texts[own.key]
                texts.pop(per_level, None)
        options = TableOptions(texts=MappingProxyType(texts))
        derived: TableOptions = self._values.setdefault(_OF_CHANGELOG_FILES, options)
        return derived

    def target_file_size(self, *, has_primary_key: bool) -> int:
        """Bytes at which a data file rolls."""
        return self[core_options.TARGET_FILE_SIZE] or (128 << 20 if has_primary_key else 256 << 20)


def _restored(texts: dict[str, str], unread_columns: dict[str, str]) -> TableOptions:
    return foreign_options(texts, unread_columns)


def given_options(texts: Mapping[str, object]) -> TableOptions:
    """Return options that a user hands in: every key must be known, parse, and be supported.

    Raises InvalidOptionError for unknown keys (with the nearest known one) and for values that do
    not parse, UnsupportedError for known options that this version does not support.
    """
    stored_texts = {key: _as_text(value) for key, value in texts.items()}
    for key in stored_texts:
        if core_options.find(key) is None:
            hint = did_you_mean(key, core_options.BY_KEY, "; the page Options lists all")
            raise InvalidOptionError(
                f"no such table option{hint}", kind=ErrorKind.UNKNOWN_OPTION, key=key
            )
    options = TableOptions(texts=MappingProxyType(stored_texts))
    options.require_writable()
    return options


def with_implied_options(options: TableOptions, *, has_primary_key: bool) -> TableOptions:
    """Return options with those that others stand for, where they are not given.

    `iceberg-compatibility.enabled` sets the storage of Iceberg metadata, and deletion vectors of a table with a key.
    Vectors need format version 3, which Java takes from the options alone: it refuses to go on from metadata of a version
    that is higher than its own.
    """
    implied: dict[str, str] = {}
    if options[core_options.ICEBERG_COMPATIBILITY_ENABLED]:
        implied[core_options.METADATA_ICEBERG_STORAGE.key] = "table-location"
        # The rows of first-row are read without a merge anyway, and no vector deletes any.
        if has_primary_key and not options[core_options.MERGE_ENGINE].policy.keeps_first_row:
            implied[core_options.DELETION_VECTORS_ENABLED.key] = "true"
    stated_options = options.with_texts({**implied, **options.texts})
    if stated_options.writes_iceberg and stated_options[core_options.DELETION_VECTORS_ENABLED]:
        implied[core_options.METADATA_ICEBERG_FORMAT_VERSION.key] = "3"
    return options.with_texts({**implied, **options.texts}) if implied else options


def foreign_options(
    texts: Mapping[str, str], unread_columns: Mapping[str, str] | None = None
) -> TableOptions:
    """Return options found on a table, kept verbatim, unknown keys included; `unread_columns` as in TableOptions."""
    return TableOptions(
        texts=MappingProxyType(dict(texts)),
        unread_columns=MappingProxyType(dict(unread_columns or {})),
    )


@record
class UnsupportedOption:
    """An option of a table that this version does not support, and what access it prevents.

    `is_column`: a column, by its name and its type, stands in for one.
    """

    key: str
    text: str
    verdict: Verdict
    reason: str
    is_column: bool = False

    @property
    def label(self) -> str:
        """The option and its value, or the column and its type."""
        if self.is_column:
            return f"column {self.key!r} of type {self.text}"
        return f"option {self.key!r} = {self.text!r}"

    def __str__(self) -> str:
        return f"{self.label} {self.verdict.value}: {self.reason}"


def unsupported_options(options: TableOptions) -> list[UnsupportedOption]:
    """Return every option of a table that this version does not support, harmless ones included."""
    return list(options.unsupported)


def _unsupported_among(options: TableOptions) -> list[UnsupportedOption]:
    unsupported = [
        UnsupportedOption(
            key=name,
            text=kind,
            verdict=Verdict.REFUSES_WRITING,
            reason="its values are not read; other columns are",
            is_column=True,
        )
        for name, kind in options.unread_columns.items()
    ]
    # The table's own options first: a merge engine means more than what it does to one column.
    for key, text in sorted(options.texts.items(), key=lambda item: item[0].startswith("fields.")):
        match core_options.find(key):
            case Option() as option:
                if not _parses(options, option, key):
                    unsupported.append(
                        _unsupported(key, text, option.guards, "the value is unknown")
                    )
                elif not option.is_supported(options.value_of(option, key)):
                    unsupported.append(_unsupported(key, text, option.guards, option.doc))
            case FieldOption(supported=False, guards=guards, doc=doc):
                unsupported.append(_unsupported(key, text, guards, doc))
            case FieldOption():
                pass
            case None:
                unknown = other_option(key)
                verdict = unknown.verdict_of(text)
                unsupported.append(
                    UnsupportedOption(key=key, text=text, verdict=verdict, reason=unknown.reason)
                )
    return unsupported


def _parses(options: TableOptions, option: Option[Any], key: str) -> bool:
    try:
        options.value_of(option, key)
    except InvalidOptionError:
        return False
    return True


def _unsupported(key: str, text: str, guards: ExternalAccess, reason: str) -> UnsupportedOption:
    reads = guards is ExternalAccess.READ
    verdict = Verdict.REFUSES_READING if reads else Verdict.REFUSES_WRITING
    return UnsupportedOption(key=key, text=text, verdict=verdict, reason=reason)


def _as_text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)
