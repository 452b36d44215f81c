"""Which partitions of a table hold the rows of which partition of its asset, and whom a commit concerns."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

import dagster as dg

from lsm_assets.model.pins import CommitFacts
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
        names = [KEY]
        if isinstance(self.definition, dg.MultiPartitionsDefinition):
            names = [one.name for one in self.definition.partitions_defs]
        if {f"{{{name}}}" for name in names} <= {*self.columns.values()}:
            return []  # they spell the whole key
        own = {self.values(key) for key in keys}
        return [key for key in everything if key not in keys and self.values(key) in own]


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


class PartitionLayout:
    """In which directories of a table each partition of its asset is kept.

    `kept`: by asset partition, the parts of its directories' paths that its values tell ("month=1", joined
    by slashes); `places`: where those stand in a path. No places: any directory.
    `is_certain` false: a directory that fits no partition may belong to any of them.
    """

    def __init__(
        self, kept: Mapping[str, str], places: Sequence[int] = (), *, is_certain: bool = True
    ) -> None:
        self.kept, self.is_certain = kept, is_certain
        self._places = places
        self._kept_there: dict[str, list[str]] = {}
        for key, there in kept.items():
            self._kept_there.setdefault(there, []).append(key)

    def holds_alone(self, key: str) -> bool:
        """Whether no other asset partition is kept in the same directories."""
        there = self.kept.get(key)
        return there is not None and len(self._kept_there[there]) == 1

    def kept_in(self, paths: Iterable[str] | None) -> set[str]:
        """Return the asset partitions that have rows in some directories; None: in any."""
        if paths is None:
            return set(self.kept)
        found: set[str] = set()
        for there in {told_by(path, self._places) for path in paths}:
            keys = self._kept_there.get(there, ())
            if not keys and not self.is_certain:
                return set(self.kept)
            found.update(keys)
        return found

    def outside_of(self, keys: Collection[str], paths: Iterable[str]) -> list[str]:
        """Return the directories in which none of some asset partitions is kept."""
        own = {self.kept[key] for key in keys if key in self.kept}
        return [path for path in paths if told_by(path, self._places) not in own]


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
    if writer is None:
        return layout.kept_in(commit.partitions)
    own = set() if writer.has_recorded else set(writer.partitions)
    if commit.partitions is None:
        return own
    changed = own & layout.kept_in(commit.partitions)
    return changed | layout.kept_in(layout.outside_of(writer.partitions, commit.partitions))


def moved_partitions(
    recorded: Mapping[str, TableVersion],
    commits: Iterable[CommitFacts],
    writer_of: WriterOf,
    layout: PartitionLayout,
) -> dict[str, TableVersion]:
    """Return the partitions that commits (oldest first) have changed since what is recorded of each.

    With the last such commit of each. One that nothing is recorded of counts where its directories
    are its own: of several that share one, nobody knows which of them a commit has filled.
    """
    moved: dict[str, TableVersion] = {}
    for commit in commits:
        if commit.partitions == frozenset():
            continue
        for name in concerned(commit, writer_of(commit), layout):
            known = recorded.get(name)
            is_newer = known is None or known.snapshot_id < commit.version.snapshot_id
            if is_newer and (known is not None or layout.holds_alone(name)):
                moved[name] = commit.version
    return moved
