"""Which partitions of a table hold the rows of which partition of its asset, and whom a commit concerns."""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime

import dagster as dg

from lsm_assets.model.pins import Changed, CommitFacts, Range
from lsm_assets.model.versions import TableVersion
from lsm_engine import ErrorKind, InvalidInputError, record

KEY = "key"
"""What a template calls the key of an asset whose partitions have one dimension."""


@record
class PartitionTemplates:
    """How partition keys of an asset spell values of a table's partition columns.

    `columns`: a Python format text per column, such as "{key}" or, of partitions by time, "{key:%m}" for
    the month in which the partition begins; dimensions of a multi-partition go by their names,
    "{region}". Columns without one may hold any value. `is_given` false: they are only a guess.
    """

    definition: dg.PartitionsDefinition
    columns: Mapping[str, str]
    is_given: bool = True

    def values(self, key: str) -> tuple[str, ...]:
        """Return the values of the columns, in their order, as text.

        Raises InvalidInputError, naming the template, for one that does not fit the definition.
        """
        names = _names_of(self.definition, key)
        try:
            return tuple(template.format(**names) for template in self.columns.values())
        except (KeyError, IndexError, ValueError, AttributeError) as error:
            raise InvalidInputError(
                "the template of a partition column does not fit the asset's partitions; it may use "
                + ", ".join(f"{{{name}}}" for name in names),
                kind=ErrorKind.INVALID_NAME,
                templates=dict(self.columns),
                partition=key,
            ) from error

    def sharing(self, keys: Collection[str], everything: Iterable[str]) -> list[str]:
        """Return those of all partitions, without `keys`, that have the columns' values of one of `keys`."""
        if {f"{{{name}}}" for name in self._dimensions} <= {*self.columns.values()}:
            return []  # they spell the whole key
        own = {self.values(key) for key in keys}
        return [key for key in everything if key not in keys and self.values(key) in own]

    @property
    def _dimensions(self) -> dict[str, dg.PartitionsDefinition]:
        if isinstance(self.definition, dg.MultiPartitionsDefinition):
            return {each.name: each.partitions_def for each in self.definition.partitions_defs}
        return {KEY: self.definition}

    def holds_times(self, column: str) -> bool:
        """Whether a column's template is a whole key of partitions by time."""
        whole = {f"{{{name}}}": each for name, each in self._dimensions.items()}
        return isinstance(whole.get(self.columns[column]), dg.TimeWindowPartitionsDefinition)

    def window(self, column: str, key: str) -> tuple[datetime, datetime]:
        """Return when the partition begins and ends whose key a column holds."""
        times = _names_of(self.definition, key)[self.columns[column][1:-1]]
        assert isinstance(times, _TimeKey)
        window = times.definition.time_window_for_partition_key(str(times))
        return window.start, window.end


def templates_of(
    definition: dg.PartitionsDefinition | None,
    given: Mapping[str, str],
    partitioned_by: Sequence[str],
) -> PartitionTemplates | None:
    """Return how an asset's partitions are stored; None for an asset that has none.

    Where nothing is given: dimensions are columns of the same name, and one dimension is the only column.
    """
    if definition is None:
        return None
    if given:
        return PartitionTemplates(definition=definition, columns=given)
    if isinstance(definition, dg.MultiPartitionsDefinition):
        dimensions = {each.name for each in definition.partitions_defs}
        guessed = {name: f"{{{name}}}" for name in partitioned_by if name in dimensions}
    else:
        guessed = {partitioned_by[0]: f"{{{KEY}}}"} if len(partitioned_by) == 1 else {}
    return PartitionTemplates(definition=definition, columns=guessed, is_given=False)


class _TimeKey(str):
    """A key of partitions by time: as text the key, with a format the time at which it begins."""

    definition: dg.TimeWindowPartitionsDefinition

    def __format__(self, spec: str) -> str:
        if not spec:
            return str(self)
        return self.definition.start_time_for_partition_key(str(self)).strftime(spec)


def _names_of(definition: dg.PartitionsDefinition, key: str) -> dict[str, str]:
    if isinstance(definition, dg.MultiPartitionsDefinition):
        keys = definition.get_partition_key_from_str(key).keys_by_dimension
        return {
            each.name: _key(each.partitions_def, keys[each.name])
            for each in definition.partitions_defs
        }
    return {KEY: _key(definition, key)}


def _key(definition: dg.PartitionsDefinition, key: str) -> str:
    if not isinstance(definition, dg.TimeWindowPartitionsDefinition):
        return key
    found = _TimeKey(key)
    found.definition = definition
    return found


@record
class Spans:
    """The values of a column in the rows of each asset partition, from the least to the greatest.

    No two spans overlap. `is_exact`: the column is one of the table's partition columns.
    """

    column: str
    of: Mapping[str, Range]
    is_exact: bool = False


class PartitionLayout:
    """In which directories of a table each partition of its asset is kept.

    `kept`: by asset partition, the parts of its directories' paths that its values tell ("month=1", joined
    by slashes); `places`: where those stand in a path. No places: any directory. `spans`: what else
    tells apart those that are kept in the same directories.
    `is_certain` false: a directory that fits no partition may belong to any of them.
    """

    def __init__(
        self,
        kept: Mapping[str, str],
        places: Sequence[int] = (),
        *,
        is_certain: bool = True,
        spans: Spans | None = None,
    ) -> None:
        self.kept, self.is_certain, self.spans = kept, is_certain, spans
        self._places = places
        self._kept_there: dict[str, list[str]] = {}
        for key, there in kept.items():
            self._kept_there.setdefault(there, []).append(key)
        self._in_order = {
            there: _InOrder(keys, spans.of) for there, keys in self._kept_there.items() if spans
        }

    @property
    def column(self) -> str | None:
        """The column that tells partitions apart that are kept in the same directories."""
        return self.spans.column if self.spans is not None else None

    def alone_in(self, changed: Changed | None) -> set[str]:
        """Return the asset partitions that have rows there where no other has any; None: anywhere."""
        if changed is None:
            tells = self.spans is not None and self.spans.is_exact
            return {
                key for keys in self._kept_there.values() if tells or len(keys) == 1 for key in keys
            }
        return {key for keys in self._held(changed) if len(keys) == 1 for key in keys}

    def kept_in(self, changed: Changed | None) -> set[str]:
        """Return the asset partitions that have rows in some directories; None: in any."""
        if changed is None:
            return set(self.kept)
        return {key for keys in self._held(changed) for key in keys}

    def outside_of(self, keys: Collection[str], changed: Changed) -> Changed:
        """Return the directories, and ranges there, in which none of some asset partitions is kept."""
        left: dict[str, frozenset[Range] | None] = {}
        for path, ranges in changed.items():
            parts: list[Range | None] = [None] if ranges is None else list(ranges)
            there = told_by(path, self._places)
            others = [
                part for part in parts if not any(key in keys for key in self._at(there, part))
            ]
            if others:
                left[path] = None if ranges is None else frozenset(filter(None, others))
        return left

    def _held(self, changed: Changed) -> Iterator[Collection[str]]:
        """Yield the asset partitions that have rows in each directory, and in each range there."""
        parts = {
            (told_by(path, self._places), part)
            for path, ranges in changed.items()
            for part in ([None] if ranges is None else ranges)
        }
        for there, part in parts:
            keys = self._at(there, part)
            yield keys if keys or self.is_certain else self.kept

    def _at(self, there: str, part: Range | None) -> Sequence[str]:
        if part is None or self.spans is None or there not in self._in_order:
            return self._kept_there.get(there, ())
        return self._in_order[there].meeting(part)


class _InOrder:
    """Asset partitions that are kept in the same directories, by their spans."""

    def __init__(self, keys: Iterable[str], of: Mapping[str, Range]) -> None:
        # A span without any value is of an hour that the clock shows twice: its rows are the other's.
        self._keys = sorted((key for key in keys if of[key][0] <= of[key][1]), key=of.__getitem__)
        self._first = [of[key][0] for key in self._keys]
        self._last = [of[key][1] for key in self._keys]

    def meeting(self, part: Range) -> Sequence[str]:
        """Return the partitions whose span has values of a range."""
        low, high = part
        return self._keys[bisect_left(self._last, low) : bisect_right(self._first, high)]


def told_by(path: str, places: Sequence[int]) -> str:
    """Return what a directory's path has at some places, joined by slashes.

    Paths of a table that had the name before, with fewer columns, do not have them all.
    """
    parts = path.split("/")
    return "/".join(parts[place] for place in places if place < len(parts))


@record
class Writer:
    """The run of the table's own asset that made a commit, and the partitions that it was for.

    `has_recorded`: it has ended well, and so has recorded what it wrote.
    """

    partitions: frozenset[str]
    has_recorded: bool


WriterOf = Callable[[CommitFacts], Writer | None]


def concerned(commit: CommitFacts, writer: Writer | None, layout: PartitionLayout) -> set[str]:
    """Return the asset partitions whose rows a commit may have changed without Dagster recording it.

    Of a commit by the asset's own run (`writer`) only partitions that it was not for, in directories
    that hold none of those it was for; and, where it did not end well, those that it was for.
    """
    changed = commit.changed
    if writer is None:
        return layout.kept_in(changed)
    own = set() if writer.has_recorded else set(writer.partitions)
    if changed is None:
        return own
    others = layout.kept_in(layout.outside_of(writer.partitions, changed))
    return (own & layout.kept_in(changed)) | others


def moved_partitions(
    recorded: Mapping[str, TableVersion],
    commits: Iterable[CommitFacts],
    writer_of: WriterOf,
    layout: PartitionLayout,
) -> dict[str, TableVersion]:
    """Return the partitions that commits (oldest first) have changed since what is recorded of each.

    With the last such commit of each. One that nothing is recorded of counts where the changes can be
    no other's: of several that share a directory, nobody knows which of them a commit has filled.
    """
    moved: dict[str, TableVersion] = {}
    for commit in commits:
        if commit.partitions == frozenset():
            continue
        names = concerned(commit, writer_of(commit), layout)
        alone = layout.alone_in(commit.changed) if names - recorded.keys() else set()
        for name in names:
            known = recorded.get(name)
            if known is None and name not in alone:
                continue
            if known is None or known.snapshot_id < commit.version.snapshot_id:
                moved[name] = commit.version
    return moved
