"""Random histories of one partitioned table and its readers, beside a model of who is stale."""

import random
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pyarrow.parquet as pq
from click.testing import CliRunner
from dagster._core.definitions.data_version import CachingStaleStatusResolver, StaleStatus
from dagster._core.loader import LoadingContextForTest

import lsm_engine as lsm
from lsm_assets.declaration import TableDeclaration
from lsm_assets.factory import lsm_table_assets
from lsm_assets.keys import AssetKind
from lsm_assets.pinning import pinned_table
from lsm_assets.recording import recorded_versions
from lsm_engine.cli.main import lsm as command
from tests.dagster.lake import Lake
from tests.dagster.staleness_layouts import Layout
from tests.interop.clients import Client

READER, ALL = dg.AssetKey("reader"), dg.AssetKey("reader_of_all")


@dataclass(frozen=True)
class Commit:
    """One that changed rows, at a time of the clock. `parts`: whose rows each of its files may have."""

    at: int
    snapshot_id: int
    parts: list[set[str]]
    outside: bool


class History:
    """One history: `step` does something at random, `check` compares every status with the model."""

    def __init__(
        self,
        at: Path,
        instance: dg.DagsterInstance,
        layout: Layout,
        seed: int,
        clients: Sequence[Client] = (),
    ) -> None:
        self.random, self.layout, self.log = random.Random(seed), layout, []
        self.clients, self.at = clients, at
        columns = {**layout.within, "id": pa.int64(), "asset": pa.string(), **layout.columns}
        self.schema = pa.schema(
            [
                *(pa.field(name, kind, nullable=False) for name, kind in columns.items()),
                ("v", pa.int64()),
            ]
        )
        self.declaration = TableDeclaration(
            name="shop.events",
            schema=self.schema,
            primary_key=tuple(columns),
            partitioned_by=tuple(layout.columns),
            options={"bucket": "1", "write-only": "true", "write.skip-unchanged": "true"},
            partitions_def=layout.definition,
            partition_columns=layout.partition_columns,
        )
        if layout.dynamic:
            instance.add_dynamic_partitions(layout.dynamic, layout.keys)
        self.key = self.declaration.keys.asset(AssetKind.TABLE)
        to_write: list[Any] = []
        events = lsm_table_assets(
            self.declaration,
            lambda context, table: list(to_write),
            backfill_policy=dg.BackfillPolicy.single_run(),
        )
        self.lake = Lake(at, instance, [events], to_write)
        more = dg.Definitions(assets=list(self._readers()))
        self.lake.definitions = dg.Definitions.merge(self.lake.definitions, more)
        self.lake.repository = self.lake.definitions.get_repository_def()
        self.lake.lsm.table(self.declaration)
        # The model. A clock counts commits; `recorded` holds, by key, the commit that stands for its rows.
        self.clock = 0
        self.recorded: dict[str, int] = {}
        self.commits: list[Commit] = []
        self.files: list[set[str]] = []
        self.read_at: dict[str, int | None] = {}
        self.all_read_at: dict[str, int] | None = None
        self.contents: dict[int, tuple[dict[str, int], list[set[str]]]] = {}
        self.now: dict[str, int] = {}
        self.seen: list[int] = []

    def _readers(self) -> Iterator[dg.AssetsDefinition]:
        @dg.asset(
            key=READER,
            deps=[self.key],
            partitions_def=self.layout.definition,
            required_resource_keys={"lsm"},
        )
        def reader(context: dg.AssetExecutionContext) -> None:
            at = self.layout.directory(context.partition_key)
            pinned = pinned_table(context, self.key, [at])
            rows = pinned.table.scan(where=lsm.col("asset") == context.partition_key, **pinned.at)
            self.seen = rows.to_arrow().column("v").to_pylist()

        @dg.asset(key=ALL, deps=[dg.AssetDep(self.key, partition_mapping=dg.AllPartitionMapping())])
        def reader_of_all() -> None:
            pass

        return iter([reader, reader_of_all])

    # --- what happens ----------------------------------------------------------------------------

    @property
    def table(self) -> lsm.Table:
        return self.lake.lsm.table(self.declaration)

    def rows(self, keys: Sequence[str], value: int) -> pa.Table:
        listed = [{"id": 1, "asset": key, **self.layout.values[key], "v": value} for key in keys]
        columns = {
            name: pa.array([row[name] for row in listed]).cast(self.schema.field(name).type)
            for name in self.schema.names
        }
        return pa.table(columns, schema=self.schema)

    def run(self, key: dg.AssetKey, **how: Any) -> None:
        job = self.lake.repository.get_implicit_job_def_for_assets([key])
        job.execute_in_process(instance=self.lake.instance, asset_selection=[key], **how)

    def step(self) -> None:
        act = self.random.choices(
            [self.write, self.reload, self.outside, self.outside_same, self.overwrite, self.branch,
             self.compact, self.expire, self.roll_back, self.read, self.read_all],
            [4, 1, 4, 1, 1, 1, 1, 1, 2, 5, 1],
        )[0]  # fmt: skip
        self.log.append(act.__name__)
        act()

    def _chosen(self) -> list[str]:
        return [self.random.choice(self.layout.keys)]

    def write(self) -> None:
        keys, value = self._chosen(), self.random.randrange(1_000_000)
        self.dagster_run(keys, value)

    def reload(self) -> None:
        (key,) = self._chosen()
        self.dagster_run([key], self.now.get(key, 7))

    def dagster_run(self, keys: list[str], value: int) -> None:
        changed = {key for key in keys if self.now.get(key) != value}
        self.lake.to_write[:] = [self.rows(keys, value)]
        self.run(self.key, partition_key=keys[0])
        self._committed(keys, dict.fromkeys(changed, value), outside=False)
        for key in keys:
            since = self._outside_since(key)
            if key in changed or key not in self.recorded or self._taken_back(key):
                self._move(key)
            elif since:
                self._move(key, since[-1])
        self.log.append((keys, value, sorted(changed)))

    def outside(self) -> None:
        keys = self.random.sample(self.layout.keys, self.random.randint(1, 2))
        self._outside(keys, self.random.randrange(1_000_000))

    def outside_same(self) -> None:
        (key,) = self._chosen()
        if key in self.now:
            self._outside([key], self.now[key])

    def _outside(self, keys: list[str], value: int) -> None:
        client = self.random.choice([None, "lsm", *self.clients])
        # Only ours compare rows with those that are there.
        changed = {key for key in keys if isinstance(client, Client) or self.now.get(key) != value}
        rows = self.rows(keys, value)
        if client is None:
            self.table.upsert(rows)
        elif isinstance(client, Client):
            client.write(self.table.location, rows)
        else:
            self._by_command(rows)
        self._committed(keys, dict.fromkeys(changed, value), outside=True)
        self.log.append((getattr(client, "name", client), keys, value, sorted(changed)))

    def _by_command(self, rows: pa.Table) -> None:
        file = self.at.parent / "rows.parquet"
        pq.write_table(rows, file)
        words = ["--warehouse", str(self.at), "upsert", "shop.events", str(file)]
        done = CliRunner().invoke(command, words)
        assert done.exit_code == 0, done.output

    def overwrite(self) -> None:
        """Replace a directory by the rows of one of the keys that share it."""
        (key,), value = self._chosen(), self.random.randrange(1_000_000)
        self.table.overwrite(self.rows([key], value), self.layout.directory(key))
        gone = self.layout.share(key) - {key}
        self._committed([key], {key: value}, outside=True, gone=gone)
        self.log.append((key, value))

    def branch(self) -> None:
        """Write on a branch, and fast-forward the table to it."""
        if self.table.latest_snapshot() is None:
            return
        keys, value = self._chosen(), self.random.randrange(1_000_000)
        name = f"fix-{self.clock}"
        self.table.create_tag(name)
        self.table.create_branch(name, tag=name)
        self.table.branch(name).upsert(self.rows(keys, value))
        self.sync()  # the table itself is as it was
        self.table.fast_forward(name)
        self.table.delete_branch(name)
        self.table.delete_tag(name)
        self._committed(keys, {keys[0]: value}, outside=True)
        self.log.append((keys, value))

    def _committed(
        self,
        written: Sequence[str],
        values: dict[str, int],
        *,
        outside: bool,
        gone: AbstractSet[str] = frozenset(),
    ) -> None:
        """Note a commit of a file with rows of some keys; with `gone` in place of the files that were there."""
        if not values:
            return
        newest = self.table.latest_snapshot()
        assert newest is not None
        self.clock += 1
        self.now = {key: one for key, one in self.now.items() if key not in gone} | values
        added = self.layout.between(written if self.layout.within else values)
        replaced = self.files if gone and self.layout.within else []
        self.files = [*(one for one in self.files if one not in replaced), *added]
        parts = [*added, *replaced]
        self.commits.append(Commit(self.clock, newest.id, parts, outside))
        self.contents[newest.id] = self.now, self.files

    def compact(self) -> None:
        made = self.table.compact(full=True)
        if made is not None:
            self.files = self.layout.between(self.now)
            self.contents[made.id] = self.now, self.files

    def expire(self) -> None:
        table = self.table
        if table.latest_snapshot() is not None:
            table.expire_snapshots(retain_min=1, retain_max=1, older_than="0 ms", everything=True)

    def roll_back(self) -> None:
        ids = self.table.snapshot_ids()
        if len(ids) > 1:
            to = self.random.choice(ids[:-1])
            self.table.rollback_to(to)
            self.commits = [one for one in self.commits if one.snapshot_id <= to]
            self.now, self.files = self.contents[to]
            self.log.append(to)

    def read(self) -> None:
        (key,) = self._chosen()
        self.sync()
        if not self.recorded:
            return  # Dagster cannot tell what follows from nothing
        self.log.append(key)
        why = ""
        try:
            self.run(READER, partition_key=key)
        except dg.Failure as failure:
            why = failure.description or ""
        if why:
            # Others have written into the directory since, and what was recorded has expired.
            assert "has changed what is read here" in why, self.log
            assert len(self.layout.share(key)) > 1, self.log
        else:
            self.read_at[key] = self.recorded.get(key)
            assert self.seen == [self.now[key]] if key in self.now else not self.seen, self.log

    def read_all(self) -> None:
        self.sync()
        if not self.recorded:
            return
        self.run(ALL)
        self.all_read_at = dict(self.recorded)

    # --- the model -------------------------------------------------------------------------------

    def _move(self, key: str, to: int | None = None) -> None:
        newest = self.commits[-1].at if self.commits else 0
        self.recorded[key] = newest if to is None else to

    def _outside_since(self, key: str) -> list[int]:
        """Return the outside commits to a key's rows after what is recorded of it."""
        since = self.recorded.get(key, -1)
        is_known = key in self.recorded
        return [
            each.at
            for each in self.commits
            if each.outside and each.at > since
            # Of one that nothing is recorded of it has to be certain.
            if any(part == {key} or (is_known and key in part) for part in each.parts)
        ]

    def _taken_back(self, key: str) -> bool:
        at = self.recorded[key]
        return at > 0 and at not in {each.at for each in self.commits}

    def sync(self) -> None:
        """Tick the sensor: outside commits and rollbacks reach the partitions whose rows they changed."""
        self.lake.sync()
        for key in self.layout.keys:
            changed = self._outside_since(key)
            if key in self.recorded and self._taken_back(key):
                self._move(key)
            elif changed:
                self._move(key, changed[-1])

    def check(self) -> None:
        self.sync()
        expected = {
            key: StaleStatus.MISSING
            if key not in self.read_at
            else StaleStatus.FRESH
            if self.read_at[key] == self.recorded.get(key)
            else StaleStatus.STALE
            for key in self.layout.keys
        }
        instance = self.lake.instance
        ids = {0: 0} | {each.at: each.snapshot_id for each in self.commits}
        versions = recorded_versions(instance, self.key)
        told = {key: version.snapshot_id for key, version in versions.items()}
        assert told == {key: ids[at] for key, at in self.recorded.items()}, self.log
        graph, loading = self.lake.repository.asset_graph, LoadingContextForTest(instance)
        resolver = CachingStaleStatusResolver(instance, graph, loading)
        found = {key: resolver.get_status(READER, key) for key in self.layout.keys}
        assert found == expected, self.log
        if isinstance(self.layout.definition, dg.TimeWindowPartitionsDefinition):
            return  # of these Dagster does not look at what follows from all of them
        of_all = (
            StaleStatus.MISSING
            if self.all_read_at is None
            else StaleStatus.FRESH
            if self.all_read_at == self.recorded
            else StaleStatus.STALE
        )
        assert resolver.get_status(ALL) == of_all, self.log
