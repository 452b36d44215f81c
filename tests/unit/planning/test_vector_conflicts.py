"""Deletion vectors of two commits that cannot both be."""

import pytest

from lsm_engine.format.data_file import EMPTY_ROW
from lsm_engine.format.index_file import DELETION_VECTORS, DeletionVectorMeta, IndexFileMeta
from lsm_engine.format.index_file import IndexManifestEntry as Index
from lsm_engine.format.manifest import ManifestEntry
from lsm_engine.options.modes import CommitKind, EntryKind
from lsm_engine.planning.commit import plan_commit
from lsm_engine.planning.conflicts import ConflictReason, find_vector_conflict
from lsm_engine.planning.proposal import CommitStep
from tests.unit.planning.facts import entry, snapshot

ADD, DELETE = EntryKind.ADD, EntryKind.DELETE


def index(name: str, *data_files: str, kind: EntryKind = ADD, bucket: int = 0) -> Index:
    vectors = tuple(
        DeletionVectorMeta(data_file_name=file, offset=1 + 10 * at, length=9)
        for at, file in enumerate(data_files)
    )
    file = IndexFileMeta(
        index_type=DELETION_VECTORS, file_name=name, file_size=99, row_count=len(vectors),
        deletion_vectors=vectors,
    )  # fmt: skip
    return Index(kind=kind, partition=EMPTY_ROW, bucket=bucket, index_file=file)


def found(
    delta: list[ManifestEntry], changes: list[Index], *, live: str, base: list[Index],
    planned: list[Index] | None,
) -> str | None:  # fmt: skip
    """The file that stands against a step, on a base one snapshot newer than it was planned on."""
    step = CommitStep(
        kind=CommitKind.COMPACT, uuid="u", commit_user="c", commit_identifier=0,
        delta=tuple(delta), index_changes=tuple(changes),
    )  # fmt: skip
    plan = plan_commit(step, snapshot(2), planned_on=snapshot(1), since=[snapshot(2)])
    if delta or any(change.kind is ADD for change in changes):
        assert not plan.scope.is_empty
    conflict = find_vector_conflict(
        plan, [entry(name) for name in live], base_index=base, planned_index=planned
    )
    assert conflict is None or conflict.reason is ConflictReason.VECTORS_CHANGED
    return None if conflict is None else conflict.file_name


GONE = [entry("a", kind=DELETE), entry("z", level=5)]
MOVED = [entry("a", kind=DELETE), entry("a", level=5)]


@pytest.mark.parametrize(
    ("delta", "changes", "live", "base", "planned", "expected"),
    [
        # nothing to do with each other
        (GONE, [], "ab", [], [], None),
        (GONE, [], "ab", [index("i", "b")], [], None),
        ([], [index("j", "a")], "ab", [index("i", "b", bucket=1)], [], None),
        # the index file that is replaced
        ([], [index("i", kind=DELETE), index("j", "a")], "a", [index("i", "a")], [index("i", "a")], None),
        ([], [index("i", kind=DELETE), index("j", "a")], "a", [index("k", "a")], [index("i", "a")], "i"),
        ([], [index("i", kind=DELETE)], "a", [], [index("i", "a")], "i"),
        # two vectors of one file
        ([], [index("j", "a")], "ab", [index("i", "a")], [], "a"),
        ([], [index("j", "a")], "ab", [index("i", "b")], [], None),
        # a file that is rewritten
        (GONE, [], "ab", [index("i", "a")], [], "a"),
        (GONE, [index("i", kind=DELETE)], "ab", [index("i", "a")], [index("i", "a")], None),
        (GONE, [], "ab", [index("i", "a")], None, "a"),
        (GONE, [], "ab", [], None, None),
        (MOVED, [], "ab", [index("i", "a")], [], None),
        # a mark on a file that is gone, or that comes with the commit
        ([], [index("j", "a")], "b", [], [], "a"),
        (GONE, [index("j", "a")], "ab", [], [], "a"),
        (GONE, [index("j", "z")], "ab", [], [], None),
        (MOVED, [index("j", "a")], "ab", [], [], None),
    ],
)  # fmt: skip
def test_conflicts_over_vectors(
    delta: list[ManifestEntry], changes: list[Index], live: str, base: list[Index],
    planned: list[Index] | None, expected: str | None,
) -> None:  # fmt: skip
    assert found(delta, changes, live=live, base=base, planned=planned) == expected
