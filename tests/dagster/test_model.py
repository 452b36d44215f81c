"""Keys, partitions, Markdown, metadata and the plan of a sync: values in, values out."""

import re

import dagster as dg
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lsm_assets import metadata
from lsm_assets.checks import problem_list
from lsm_assets.declaration import ColumnRanges, PartitionLayout, TableDeclaration
from lsm_assets.keys import (
    AssetKind,
    TableKeys,
    asset_link,
    differences,
    parse_snapshot_partition,
    sorted_snapshot_partitions,
    table_keys,
)
from lsm_assets.metadata import BucketTree, LevelFacts, TreeFacts, count_tree
from lsm_assets.pinning import inputs_markdown
from lsm_assets.sensors import KnownPartitions, LiveReferences, RunCommits, SyncPlan, plan_sync
from lsm_assets.settings import settings_from
from lsm_assets.translator import LsmTranslator
from lsm_assets.versions import ChangedRanges
from lsm_engine.base.errors import InvalidOptionError
from lsm_engine.catalog.provenance import Input
from lsm_engine.format.snapshot import CompactionMetrics, RowCounts, Snapshot
from lsm_engine.format.tag import Tag
from lsm_engine.inspect.tree import BucketTree as BucketRuns
from lsm_engine.inspect.tree import TreeRun
from lsm_engine.options.modes import CommitKind
from lsm_engine.planning.compaction import amplification

KEYS = TableKeys(name="shop.orders")


def test_rows_that_were_counted_are_told_and_plotted() -> None:
    counted = [
        snapshot(1, properties=RowCounts(inserted=3, updated=1).properties),
        snapshot(2, properties={"else": "x"}),
        snapshot(3, properties=RowCounts(inserted=1, deleted=2, skipped=4).properties),
    ]
    found = metadata.row_counts_metadata(counted)
    assert {name: value.value for name, value in found.items()} == {
        "lsm/rows_inserted": 4,
        "lsm/rows_updated": 1,
        "lsm/rows_deleted": 2,
        "lsm/rows_skipped": 4,
    }
    assert metadata.row_counts_metadata(counted[1:2]) == {}
    assert metadata.snapshot_metadata(KEYS, counted[0])["lsm/rows_inserted"].value == 3


def snapshot(number: int, kind: CommitKind = CommitKind.APPEND, **more: object) -> Snapshot:
    members = {
        "schema_id": 0,
        "base_manifest_list": f"manifest-list-{number}-0",
        "delta_manifest_list": f"manifest-list-{number}-1",
        "commit_user": "somebody",
        "commit_identifier": 1,
        "time_millis": 1_700_000_000_000 + number,
        "total_record_count": number * 10,
        "delta_record_count": 10,
    }
    return Snapshot(id=number, commit_kind=kind, **{**members, **more})


def level(number: int, *, runs: int = 1, bytes: int = 1000) -> LevelFacts:
    return LevelFacts(level=number, runs=runs, files=runs, rows=runs * 5, bytes=bytes)


def test_keys_are_spelled_in_one_way() -> None:
    assert [KEYS.asset(kind).to_user_string() for kind in AssetKind] == [
        "shop/orders",
        "shop/orders.files",
        "shop/orders.manifest_lists",
        "shop/orders.snapshots",
        "shop/orders.tags",
        "shop/orders.compaction",
    ]
    assert (KEYS.identifier, KEYS.pool) == ("shop__orders", "lsm__shop__orders")
    assert KEYS.op("compact") == "shop__orders__compact"


@given(st.text(min_size=1).filter(lambda name: "." not in name))
def test_any_table_name_gives_names_that_dagster_takes(name: str) -> None:
    identifier = TableKeys(name=f"db.{name}").identifier
    assert re.fullmatch(r"[A-Za-z0-9_]+", identifier)


def test_tables_that_differ_only_in_replaced_characters_stay_apart() -> None:
    names = {TableKeys(name=f"shop.{name}").identifier for name in ("a-b", "a b", "a_b", "ä_b")}
    assert len(names) == 4


def test_keys_of_assets_name_tables() -> None:
    assert table_keys(dg.AssetKey(["shop", "orders"])).name == "shop.orders"
    assert table_keys(dg.AssetKey(["orders"])).name == "default.orders"
    assert table_keys(dg.AssetKey(["eu", "shop", "orders"])).name == "eu_shop.orders"


def test_a_link_opens_one_partition() -> None:
    link = asset_link(KEYS.asset(AssetKind.SNAPSHOTS), "4")
    assert link == "/assets/shop/orders.snapshots?view=partitions&partition=4"
    assert asset_link(dg.AssetKey(["a b", "c"]), "x/y&z") == (
        "/assets/a%20b/c?view=partitions&partition=x%2Fy%26z"
    )


def test_partitions_are_ordered_by_number() -> None:
    assert sorted_snapshot_partitions(["10", "9", "rc1", "100"]) == ["9", "10", "100", "rc1"]
    assert (
        parse_snapshot_partition("7"),
        parse_snapshot_partition("v7"),
        parse_snapshot_partition("\u0667"),
    ) == (7, None, None)
    assert differences(["1", "2"], ["2", "3"]) == (["3"], ["1"])


# --- markdown ------------------------------------------------------------------------------------

levels = st.lists(
    st.builds(
        lambda number, runs, size: level(number, runs=runs if number == 0 else 1, bytes=size),
        st.integers(0, 60),
        st.integers(1, 10_000),
        st.integers(0, 1 << 50),
    ),
    max_size=40,
    unique_by=lambda each: each.level,
)


@given(levels, st.integers(1, 60))
def test_a_tree_is_always_drawn_in_place(found: list[LevelFacts], level_count: int) -> None:
    picture = metadata.tree_image(found, level_count=level_count)
    assert len(picture) <= metadata.INLINE_CHARACTERS_MAX
    assert picture.startswith("![LSM tree](data:image/svg+xml;base64,")


@given(st.lists(st.integers(-(10**15), 10**15), max_size=200))
def test_a_sparkline_is_always_drawn_in_place(values: list[int]) -> None:
    assert len(metadata.sparkline(values, label="records")) <= metadata.INLINE_CHARACTERS_MAX


@given(st.lists(st.tuples(st.text(max_size=80), st.integers()), max_size=60))
def test_a_table_is_always_drawn_in_place(rows: list[tuple[str, int]]) -> None:
    text = metadata.markdown_table(["name", "count"], rows)
    assert len(text) <= metadata.INLINE_CHARACTERS_MAX
    shown = len([line for line in text.split("\n") if line.startswith("| ")]) - 1
    left = len(rows) - shown
    assert text.endswith(f"… {left} more") == (left > 0)


def test_html_of_anybody_is_shown_not_run() -> None:
    hostile = "<img src=x onerror=alert(1)> & ![x](http://evil/) a|b"
    shown = "&lt;img src=x onerror=alert(1)&gt; &amp; !\\[x](http://evil/) a\\|b"
    table = metadata.markdown_table(["tag", "snapshot"], [(hostile, "[1](/assets/x)")])
    assert f"| {shown} | [1](/assets/x) |" in table
    problems = problem_list([hostile])
    inputs = inputs_markdown([Input(dataset=hostile, version=hostile)])
    for text in (table, problems, inputs):
        assert "<img" not in text
        assert "![" not in text


# --- what a tree is counted from -----------------------------------------------------------------


def run(number: int, *, rows: int, size: int) -> TreeRun:
    return TreeRun(
        level=number,
        file_count=1,
        row_count=rows,
        delete_row_count=0,
        size_bytes=size,
        min_sequence_number=0,
        max_sequence_number=0,
    )


def test_trees_are_counted_per_bucket() -> None:
    first = (run(0, rows=1, size=10), run(0, rows=2, size=20), run(5, rows=30, size=300))
    second = (run(5, rows=40, size=400),)
    tree = count_tree(
        [
            BucketRuns(partition="dt=2", bucket=1, runs=second),
            BucketRuns(partition="dt=1", bucket=0, runs=first),
        ]
    )
    assert [(bucket.label, bucket.runs) for bucket in tree.buckets] == [
        ("dt=1/bucket-0", 3),
        ("dt=2/bucket-1", 1),
    ]
    assert (tree.runs_max, tree.files, tree.rows, tree.bytes) == (3, 4, 73, 730)
    assert [(each.level, each.runs, each.files) for each in tree.levels] == [(0, 2, 2), (5, 2, 2)]


def test_an_empty_table_has_an_empty_tree() -> None:
    assert TreeFacts(buckets=()).runs_max == 0


# --- metadata ------------------------------------------------------------------------------------


def inline_markdown(found: metadata.Metadata) -> list[str]:
    return [value.md_str for value in found.values() if isinstance(value, dg.MarkdownMetadataValue)]


def test_background_compactions_are_plotted_under_paimons_names() -> None:
    commits = [
        snapshot(
            number,
            properties=CompactionMetrics(
                compaction_thread_busy=10.0 * number,
                avg_compaction_time=2.5,
                compaction_queued_count=number,
                compaction_completed_count=4 * number,
            ).properties,
        )
        for number in (1, 2)
    ]
    found = metadata.background_metadata([*commits, snapshot(3)])
    assert {key: value.value for key, value in found.items() if not key.endswith("history")} == {
        "lsm/compaction_thread_busy": 20.0,
        "lsm/avg_compaction_time": 2.5,
        "lsm/compaction_queued_count": 2,
        "lsm/compaction_completed_count": 8,
    }
    assert "lsm/compaction_thread_busy_history" in found
    assert metadata.snapshot_metadata(KEYS, commits[0])["lsm/avg_compaction_time"].value == 2.5
    assert metadata.background_metadata([snapshot(3)]) == {}


def test_all_markdown_is_drawn_in_place() -> None:
    bucket = BucketTree(
        partition="dt=" + "x" * 200,
        bucket=3,
        levels=(level(0, runs=400), *(level(number) for number in range(1, 40))),
    )
    tree = TreeFacts(buckets=(bucket,) * 300)
    history = [snapshot(number) for number in range(1, 60)]
    told = [
        metadata.files_metadata(KEYS, history[-1], tree, level_count=40, history=history),
        metadata.compaction_metadata(
            KEYS,
            history[-1],
            before=tree,
            after=tree,
            level_count=40,
            reason="x",
            cost=amplification([], []),
        ),
        metadata.snapshot_metadata(KEYS, history[-1], run_id="some-run"),
        metadata.manifest_lists_metadata(
            KEYS, history[-1], {"base": (1, 2, 3), "delta": (4, 5, 6)}
        ),
        metadata.table_metadata(
            KEYS,
            history[-1],
            schema=pa.schema({"id": pa.int64()}),
            primary_key=["id"],
            location="/lake",
            row_count=3,
            commits=history,
        ),
    ]
    for found in told:
        assert all(len(text) <= metadata.INLINE_CHARACTERS_MAX for text in inline_markdown(found))


def test_ids_are_never_numbers_that_the_ui_would_plot() -> None:
    found = metadata.snapshot_metadata(KEYS, snapshot(7), run_id="r")
    plotted = {name for name, value in found.items() if isinstance(value, dg.IntMetadataValue)}
    assert plotted == {"lsm/records_total", "lsm/records_delta"}


def test_a_snapshot_leads_to_its_lists_table_run_and_predecessor() -> None:
    links = metadata.snapshot_metadata(KEYS, snapshot(7), run_id="r")["lsm/links"].md_str
    assert "/assets/shop/orders.manifest_lists?view=partitions&partition=7" in links
    assert "(/assets/shop/orders)" in links
    assert "(/runs/r)" in links
    assert "partition=6" in links


def test_a_tag_tells_its_lifetime() -> None:
    day = 86_400_000
    for millis, text in ((None, "for ever"), (30 * day, "30 days"), (day // 2, "12 hours")):
        tag = Tag(name="v1", snapshot=snapshot(3), retained_millis=millis)
        assert metadata.tag_metadata(KEYS, tag)["lsm/retained"].value == text


def test_a_schema_keeps_keys_and_comments() -> None:
    schema = pa.schema(
        [pa.field("id", pa.int64(), metadata={"comment": "who"}), ("x", pa.string())]
    )
    first, second = metadata.column_schema(schema, ["id"]).columns
    assert (first.description, first.constraints.nullable, first.constraints.other) == (
        "who",
        False,
        ["primary key"],
    )
    assert second.constraints.nullable


# --- keeping up with a table ---------------------------------------------------------------------


def test_new_snapshots_are_added_and_expired_ones_removed() -> None:
    plan = plan_sync(
        LiveReferences(snapshot_ids=[3, 4, 5]), KnownPartitions(snapshots={"1", "2", "3"})
    )
    assert plan == SyncPlan(
        add_snapshots=("4", "5"), remove_snapshots=("1", "2"), report_snapshots=(4, 5)
    )
    assert (
        plan_sync(
            LiveReferences(snapshot_ids=[3, 4, 5]), KnownPartitions(snapshots={"3", "4", "5"})
        )
        == SyncPlan()
    )


def test_only_the_newest_of_a_long_past_are_told() -> None:
    plan = plan_sync(
        LiveReferences(snapshot_ids=range(1, 1001)), KnownPartitions(snapshots=()), events_max=20
    )
    assert len(plan.add_snapshots) == 1000
    assert plan.report_snapshots == tuple(range(981, 1001))


def test_what_a_run_is_about_to_record_is_left_to_it() -> None:
    assert plan_sync(
        LiveReferences(snapshot_ids=[1, 2]),
        KnownPartitions(snapshots={"1"}),
        runs=RunCommits(recording=frozenset({2})),
    ) == SyncPlan(is_recording=True)


def test_a_partition_added_for_a_tag_to_come_stays() -> None:
    plan = plan_sync(
        LiveReferences(snapshot_ids=[], tags=["a"]),
        KnownPartitions(snapshots=(), tags={"wanted"}),
        seen_tags=["gone"],
    )
    assert (plan.add_tags, plan.remove_tags) == (("a",), ())
    plan = plan_sync(
        LiveReferences(snapshot_ids=[]),
        KnownPartitions(snapshots=(), tags={"a", "wanted"}),
        seen_tags=["a"],
    )
    assert plan.remove_tags == ("a",)


ids = st.sets(st.integers(1, 30))


@given(ids, ids, ids)
def test_after_a_sync_partitions_are_the_live_snapshots(
    live: set[int], known: set[int], busy: set[int]
) -> None:
    plan = plan_sync(
        LiveReferences(snapshot_ids=sorted(live)),
        KnownPartitions(snapshots={str(each) for each in known}),
        runs=RunCommits(recording=frozenset(busy - known)),
    )
    after = ({str(each) for each in known} | set(plan.add_snapshots)) - set(plan.remove_snapshots)
    assert after == {str(each) for each in live - (busy - known)}
    again = plan_sync(
        LiveReferences(snapshot_ids=sorted(live)),
        KnownPartitions(snapshots=after),
        runs=RunCommits(recording=frozenset(busy - known)),
    )
    assert again == SyncPlan(is_recording=bool(busy - known))


# --- settings and the translator -----------------------------------------------------------------


def test_nothing_has_to_be_set(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    settings = settings_from({})
    assert settings.warehouse == str(tmp_path / "lake")
    assert settings.catalog_url == f"sqlite:///{tmp_path / 'lake' / 'catalog.db'}"
    assert settings.dagster_home == str(tmp_path / "lake" / "dagster")
    assert settings.executor == "spark"


def test_a_wrong_setting_names_itself() -> None:
    with pytest.raises(InvalidOptionError, match="LSM_EXECUTOR"):
        settings_from({"LSM_EXECUTOR": "cluster"})


def test_edges_go_through_the_external_files_asset() -> None:
    declaration = TableDeclaration(
        name="shop.orders", schema=pa.schema({"id": pa.int64()}), primary_key=("id",)
    )
    specs = {kind: LsmTranslator().spec(declaration, kind) for kind in AssetKind}
    upstream = {kind: [dep.asset_key.path[-1] for dep in spec.deps] for kind, spec in specs.items()}
    assert upstream == {
        AssetKind.TABLE: [],
        AssetKind.FILES: ["orders"],
        AssetKind.MANIFEST_LISTS: ["orders.files"],
        AssetKind.SNAPSHOTS: ["orders.manifest_lists"],
        AssetKind.TAGS: ["orders.files"],
        AssetKind.COMPACTION: ["orders.files"],
    }
    assert {spec.group_name for spec in specs.values()} == {"shop__orders"}


@pytest.mark.parametrize(
    ("options", "stale"),
    [
        ({}, False),
        ({"deletion-vectors.enabled": "true"}, True),
        ({"deletion-vectors.enabled": "true", "deletion-vectors.merge-on-read": "true"}, False),
        ({"merge-engine": "first-row"}, True),
    ],
)
def test_the_page_of_compactions_says_whether_they_make_readers_stale(
    options: dict[str, str], stale: bool
) -> None:
    declaration = TableDeclaration(
        name=KEYS.name, schema=pa.schema({"id": pa.int64()}), primary_key=("id",), options=options
    )
    told = LsmTranslator().description(declaration, AssetKind.COMPACTION)
    assert ("readers become stale" in told) == stale
    assert ("no reader becomes stale" in told) != stale


def test_a_path_of_fewer_columns_holds_no_partition() -> None:
    """As those of a table that had the name before, and was partitioned otherwise."""
    layout = PartitionLayout({"a": "x=1/y=2", "b": "x=1/y=3", "c": "x=1/y=3"}, (0, 2))

    def at(*paths: str) -> ChangedRanges:
        return dict.fromkeys(paths)

    assert layout.partitions_in(at("x=1", "", "x=1/z=5")) == set()
    assert layout.partitions_in(at("x=1/z=5/y=2", "x=1/z=6/y=2")) == {"a"}
    assert layout.partitions_in(at("x=1/z=5/y=3")) == {"b", "c"}
    outside = layout.changes_outside(["a"], at("x=1/z=5/y=2", "x=1/z=5/y=3"))
    assert outside == at("x=1/z=5/y=3")
    assert (
        layout.sole_partitions_in(at("x=1/z=5/y=2", "x=1/z=5/y=3"))
        == {"a"}
        == layout.sole_partitions_in(None)
    )


@pytest.mark.parametrize("is_exact", [True, False])
def test_ranges_of_a_column_tell_which_spans_have_changed(is_exact: bool) -> None:
    spans = ColumnRanges(
        column="at", by_partition={"c": (20, 29), "a": (0, 9), "b": (10, 19)}, is_exact=is_exact
    )
    layout = PartitionLayout(dict.fromkeys("cab", "x=1"), (0,), ranges=spans)

    def at(*ranges: tuple[int, int]) -> ChangedRanges:
        return {"x=1": frozenset(ranges)}

    assert layout.partitions_in(at((9, 10))) == {"a", "b"}
    assert layout.partitions_in(at((9, 9), (25, 40))) == {"a", "c"}
    assert layout.partitions_in(at((-5, -1), (30, 40))) == set()
    assert layout.partitions_in(at()) == set()
    assert layout.partitions_in({"x=1": None}) == {"a", "b", "c"}
    assert layout.partitions_in({"x=2": None}) == set()
    assert layout.changes_outside(["b"], at((9, 10), (20, 25))) == at((20, 25))
    assert layout.changes_outside(["a", "b", "c"], at((9, 10), (20, 25))) == {}
    assert layout.sole_partitions_in(at((9, 10), (20, 25))) == {"c"}
    assert layout.sole_partitions_in(None) == ({"a", "b", "c"} if is_exact else set())
