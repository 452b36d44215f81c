"""Random histories of tables, readers and checks, beside a model of the colours that Dagster shows.

The model reads rows: a reader is out of date once the rows that its recorded input stands for are no longer there, and up
to date as long as no commit has touched them. A check is red while the damage that it has found is there.
"""

import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import dagster as dg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from dagster._core.utils import make_new_run_id

import lsm_engine as lsm
from lsm_assets import LsmIOManager, io_sync_sensor, reader_definitions
from lsm_assets.dagster_core import latest_storage_ids
from lsm_assets.declaration import TableDeclaration
from lsm_assets.factory import lsm_table_assets
from lsm_assets.keys import (
    AssetKind,
    partition_set_name,
    snapshot_partitions,
    tag_partitions,
)
from lsm_assets.recording import recorded_version, recorded_versions
from lsm_assets.staleness import Reader, changed_inputs
from lsm_assets.versions import TableVersion, version_from_snapshot
from lsm_engine.cli.main import lsm as command
from lsm_engine.metadata.snapshots import SnapshotStore
from tests.dagster.lake import Lake, answer

EVENTS, TOTALS = dg.AssetKey(["shop", "events"]), dg.AssetKey(["shop", "totals"])
STORED, COPY = dg.AssetKey(["shop", "stored"]), dg.AssetKey(["others", "copy"])
OF_ALL, BY_DAY = dg.AssetKey("of_all"), dg.AssetKey("by_day")
DAYS = ["2024-01-01", "2024-01-02", "2024-01-03"]
PARTITIONS: Mapping[str, dg.PartitionsDefinition | None] = {
    "days": dg.DailyPartitionsDefinition(start_date=DAYS[0], end_date="2024-01-04"),
    "names": dg.StaticPartitionsDefinition(DAYS),
    "none": None,
}
SCHEMA = pa.schema(
    [
        pa.field("day", pa.string(), nullable=False),
        pa.field("id", pa.int64(), nullable=False),
        ("v", pa.int64()),
    ]
)
SENSORS = ("lsm_sync", "lsm_io_sync", "lsm_readers")

STEPS: Sequence[tuple[Any, str]] = (
    (None, "handle_new_event"),
    (None, "add_dynamic_partitions"),
    (None, "delete_dynamic_partition"),
    (SnapshotStore, "publish"),
)
"""What a process stores, one thing after another: methods of the instance (None), or of a class."""

Rows = Mapping[str, frozenset[tuple[int, int]]]
"""The rows of a table, by day."""


class Writer(Protocol):
    """Another client that writes rows into the table of a directory."""

    name: str

    def write(self, path: str, rows: pa.Table, /) -> Any:
        """Upsert rows."""


class Killed(BaseException):
    """The process was killed; nothing after this point is stored."""


@dataclass
class Chain:
    """The commits of a table: those of its present history by id, the states that it was in, and the rows of each."""

    versions: dict[int, str] = field(default_factory=dict)
    states: list[str] = field(default_factory=lambda: ["0"])
    rows: dict[str, Rows] = field(default_factory=lambda: {"0": {}})

    def follow(self, versions: dict[int, str]) -> None:
        """Note the states since the last call: those of new commits, or the one that a rollback went back to."""
        new = [text for number, text in versions.items() if self.versions.get(number) != text]
        self.versions = versions
        newest = versions[max(versions)]
        self.states += new if newest in new else [newest] if newest != self.states[-1] else []

    def now(self) -> Rows:
        """Return the present rows."""
        return self.rows[self.versions[max(self.versions)]] if self.versions else {}

    def differs(self, version: TableVersion, day: str | None) -> bool:
        """Whether the rows of a day (None: all) are others than those of a version."""
        before, now = self.rows[version.text], self.now()
        return before != now if day is None else before.get(day) != now.get(day)

    def position(self, version: TableVersion) -> int:
        """Return the last time at which the table was in the state of a version."""
        return len(self.states) - 1 - self.states[::-1].index(version.text)

    def is_untouched(self, position: int, day: str | None) -> bool:
        """Whether no commit, and no rollback, has touched the rows since a time."""
        states = [self.rows[text] for text in self.states[position:]]
        parts = [state if day is None else state.get(day) for state in states]
        return all(part == parts[0] for part in parts)


class ColourHistory:
    """One history: `step` does something at random, `check` ticks twice and compares every colour with the model."""

    def __init__(
        self, at: Path, instance: dg.DagsterInstance, seed: int, clients: Sequence[Writer] = ()
    ) -> None:
        self.random, self.instance, self.at, self.clients = (
            random.Random(seed),
            instance,
            at,
            clients,
        )
        self.log: list[Any] = []
        self.partitions_def = PARTITIONS[self.random.choice(list(PARTITIONS))]
        self.events = TableDeclaration(
            name="shop.events",
            schema=SCHEMA,
            primary_key=("day", "id"),
            partitioned_by=("day",),
            options={"bucket": "1", "write-only": "true"},
            partitions_def=self.partitions_def,
        )
        self.totals = TableDeclaration(
            name="shop.totals",
            schema=SCHEMA,
            primary_key=("day", "id"),
            options={"bucket": "1"},
            deps=(EVENTS,),
        )
        self.to_write: list[pa.Table] = []
        tables = [
            lsm_table_assets(self.events, lambda context, table: list(self.to_write)),
            lsm_table_assets(self.totals, lambda context, table: self.rows(DAYS[0])),
        ]
        self.lake = Lake(at, instance, tables)
        self.lsm = self.lake.kept = self.lake.lsm
        self.dies_after: int | None = None
        """The step after which each run is killed; None: every fourth run, after any step."""
        self.was_killed = False
        own = list(self._assets())
        resources = {"io_manager": LsmIOManager(lsm=self.lsm)}
        sensors = [io_sync_sensor(own[:2])]
        more = dg.Definitions(assets=own, sensors=sensors, resources=resources)
        self.lake.definitions = dg.Definitions.merge(
            self.lake.definitions, more, reader_definitions(own[1:])
        )
        self.lake.repository = self.lake.definitions.get_repository_def()
        self.chains = {"shop.events": Chain(), "shop.stored": Chain()}
        self.read: dict[
            tuple[dg.AssetKey, str | None], dict[str | None, tuple[TableVersion, int]]
        ] = {}
        self.damaged: dict[Path, bytes] = {}
        self.found: dict[tuple[str, str], bool] = {}
        """By check and snapshot version, whether the last look has found damage."""
        self.has_lost_references = False
        self._begin()

    def _begin(self) -> None:
        """Write each table, and run each reader."""
        days = DAYS[:2] if self.partitions_def is not None else [None]
        for day in days:
            self.to_write[:] = [self.rows(day or DAYS[0])]
            self.run(EVENTS, is_killed=False, **({} if day is None else {"partition_key": day}))
        self.run(STORED, is_killed=False)
        self.observe_all()
        for reader in (OF_ALL, TOTALS, COPY, *([BY_DAY] if self.partitions_def else [])):
            self.read_by(reader, DAYS[0] if reader == BY_DAY else None, is_killed=False)

    def _assets(self) -> Iterator[dg.AssetsDefinition]:
        @dg.asset(key=STORED, metadata={"lsm/primary_key": "day, id"})
        def stored() -> pa.Table:
            return self.rows(self.random.choice(DAYS))

        @dg.asset(
            key=COPY,
            group_name="others",
            metadata={"lsm/primary_key": "day, id"},
            ins={"stored": dg.AssetIn(key=STORED)},
        )
        def copy(stored: pa.Table) -> pa.Table:
            return stored

        mapping = dg.AllPartitionMapping() if self.partitions_def is not None else None

        @dg.asset(key=OF_ALL, deps=[dg.AssetDep(EVENTS, partition_mapping=mapping)])
        def of_all() -> None:
            pass

        yield from (stored, copy, of_all)
        if self.partitions_def is not None:

            @dg.asset(key=BY_DAY, deps=[EVENTS], partitions_def=self.partitions_def)
            def by_day() -> None:
                pass

            yield by_day

    # --- what happens ----------------------------------------------------------------------------

    def rows(self, *days: str) -> pa.Table:
        """Return rows of some days with values that were never there."""
        listed = [
            {"day": day, "id": self.random.randrange(3), "v": self.random.randrange(1 << 40)}
            for day in days
        ]
        return pa.Table.from_pylist(listed, schema=SCHEMA)

    def table(self, name: str = "shop.events") -> lsm.Table | None:
        return self.lsm.existing_table(name)

    def live_through(self, steps: int) -> None:
        """Do some steps. After most of them, and after the last, every colour is compared."""
        for number in range(steps):
            self.step()
            if number == steps - 1 or self.random.random() < 0.7:
                self.check()

    def step(self) -> None:
        action = self.random.choices(
            [self.write, self.store, self.outside, self.read_some, self.compact, self.expire,
             self.roll_back, self.tag, self.inspect, self.damage, self.mend, self.tick,
             self.die_in_tick, self.fast_forward],
            [4, 2, 4, 5, 2, 1, 2, 1, 3, 2, 2, 1, 1, 1],
        )[0]  # fmt: skip
        self.log.append(action.__name__)
        action()
        self.observe_all()

    def run(self, *keys: dg.AssetKey, is_killed: bool | None = None, **how: Any) -> bool:
        """Run assets; every fourth run is killed between two of its steps. Return whether it has succeeded."""
        job = self.lake.repository.get_implicit_job_def_for_assets(list(keys))
        run_id = make_new_run_id()
        if is_killed is None:
            is_killed = self.dies_after is not None or self.random.random() < 0.25
        step = (self.dies_after or self.random.randrange(1, 40)) if is_killed else None
        with self.killed_after(step) as state, suppress(Killed):
            result = job.execute_in_process(
                instance=self.instance,
                asset_selection=list(keys),
                run_id=run_id,
                raise_on_error=False,
                **how,
            )
        self.was_killed = state["is_dead"]
        if not self.was_killed:
            return result.success
        self.log.append(("killed after", state["steps"]))
        run = self.instance.get_run_by_id(run_id)
        if run is not None and not run.is_finished:
            if self.random.random() < 0.5:
                self.tick()  # the run looks as if it were running
            self.instance.report_run_failed(run)
        return False

    @contextmanager
    def killed_after(self, step: int | None) -> Iterator[dict[str, Any]]:
        """Kill the process after one of its steps: a snapshot published, an event stored, a partition added or deleted.

        A kill before a step is one after the step before it.
        """
        state: dict[str, Any] = {"steps": 0, "is_dead": False}

        def counted(call: Any) -> Any:
            def wrapped(*given: Any, **named: Any) -> Any:
                if state["is_dead"]:
                    raise Killed
                answered = call(*given, **named)
                state["steps"] += 1
                state["is_dead"] = state["steps"] == step
                if state["is_dead"]:
                    raise Killed
                return answered

            return wrapped

        with pytest.MonkeyPatch.context() as patch:
            for owner, name in STEPS:
                target = owner or self.instance
                patch.setattr(target, name, counted(getattr(target, name)))
            yield state

    def write(self, commits: int | None = None) -> None:
        """Write by the asset, in up to three commits."""
        day = self.random.choice(DAYS)
        count = commits or self.random.randint(1, 3)
        self.to_write[:] = [self.rows(day) for _ in range(count)]
        how = {"partition_key": day} if self.partitions_def is not None else {}
        self.log.append((day, len(self.to_write), self.run(EVENTS, **how)))

    def store(self) -> None:
        """Write by the I/O manager."""
        self.log.append(self.run(STORED))

    def outside(self) -> None:
        """Write by another client: this library, its command, or another engine."""
        name = self.random.choice(["shop.events", "shop.events", "shop.stored"])
        table = self.table(name)
        if table is None and name == "shop.stored":
            return
        if table is None:
            table = self.lsm.table(self.events)
        days = self.random.sample(DAYS, self.random.randint(1, 2))
        rows = self.rows(*days)
        client: Any = self.random.choice([None, "command", *self.clients])
        if client is None:
            lsm.open_table(table.location).upsert(rows)
        elif client != "command":
            client.write(table.location, rows)
        else:
            file = self.at.parent / "rows.parquet"
            pq.write_table(rows, file)
            words = ["--warehouse", str(self.at), "upsert", name, str(file)]
            assert CliRunner().invoke(command, words).exit_code == 0
        self.log.append((name, getattr(client, "name", client), days))

    def read_some(self) -> None:
        """Run one of the readers."""
        readers = [OF_ALL, OF_ALL, TOTALS, COPY, *([BY_DAY] * 2 if self.partitions_def else [])]
        reader = self.random.choice(readers)
        self.read_by(reader, self.random.choice(DAYS) if reader == BY_DAY else None)

    def read_by(
        self, reader: dg.AssetKey, day: str | None, *, is_killed: bool | None = None
    ) -> None:
        """Run a reader; its input is what Dagster has recorded by then."""
        upstream = STORED if reader == COPY else EVENTS
        if reader == COPY and self.table("shop.stored") is None:
            return
        recorded: dict[str | None, TableVersion] = dict(recorded_versions(self.instance, upstream))
        if not recorded and (version := recorded_version(self.instance, upstream)) is not None:
            recorded = {None: version}
        if not recorded:
            return  # Dagster cannot tell what follows from nothing
        before = self._newest_event(reader, day)
        self.run(reader, is_killed=is_killed, **({} if day is None else {"partition_key": day}))
        has_recorded = self._newest_event(reader, day) != before
        if has_recorded:
            chain = self.chains[".".join(upstream.path)]
            self.read[reader, day] = {
                name: (version, chain.position(version)) for name, version in recorded.items()
            }
        self.log.append((reader.path[-1], day, has_recorded))

    def _newest_event(self, key: dg.AssetKey, day: str | None) -> int | None:
        if day is not None:
            return latest_storage_ids(self.instance, key).get(day)
        entry = self.instance.get_latest_materialization_event(key)
        return None if entry is None else hash((entry.run_id, entry.timestamp))

    def compact(self) -> None:
        table = self.table()
        if table is None or table.latest_snapshot() is None:
            return
        if self.random.random() < 0.5:
            self.compact_by_asset()
            return
        try:
            table.compact(full=True)
        except lsm.LsmError:
            assert self.damaged, self.log

    def compact_by_asset(self) -> None:
        how = {"ops": {self.events.keys.op("compact"): {"config": {"full": True}}}}
        self.run(self.events.keys.asset(AssetKind.COMPACTION), run_config=how)

    def expire(self) -> None:
        table = self.table()
        if table is not None and table.latest_snapshot() is not None:
            table.expire_snapshots(retain_min=1, retain_max=2, older_than="0 ms", everything=True)

    def roll_back(self) -> None:
        name = self.random.choice(list(self.chains))
        table = self.table(name)
        ids = table.snapshot_ids() if table is not None else []
        if table is not None and len(ids) > 1:
            target = self.random.choice(ids[:-1])
            table.rollback_to(target)
            self.log.append((name, target))

    def fast_forward(self) -> None:
        """Write on a branch of the newest snapshot, and bring the table to it."""
        table = self.table()
        if table is None or table.latest_snapshot() is None:
            return
        table.create_tag("base")
        table.create_branch("fix", tag="base")
        table.branch("fix").upsert(self.rows(self.random.choice(DAYS)))
        table.fast_forward("fix")
        table.delete_branch("fix")
        table.delete_tag("base")

    def tag(self, action: str | None = None) -> None:
        """Change a tag by its asset. A third of the changes are refused."""
        table = self.table()
        if table is None:
            return
        name, keys = self.random.choice(["v1", "v2"]), self.events.keys
        config: Mapping[str, Any] = self.random.choice(
            [{}, {"action": "DELETE"}, {"action": "REPLACE"}, {"snapshot_id": 10_000}]
        )
        if action is not None:
            config = {"action": action}
        self.instance.add_dynamic_partitions(partition_set_name(tag_partitions(keys)), [name])
        self.run(
            keys.asset(AssetKind.TAGS),
            partition_key=name,
            run_config={"ops": {keys.op("tag"): {"config": config}}},
        )
        self.log.append((name, config))
        # What a tag is to pin is read first.
        for snapshot in table.newest_snapshots(1):
            check = dg.AssetCheckKey(keys.asset(AssetKind.SNAPSHOTS), "contents")
            passed = self.shown(check).get(str(snapshot.id))
            if passed is not None:
                version = version_from_snapshot(snapshot).text
                self.found["contents", version] = not passed

    # --- damage ----------------------------------------------------------------------------------

    def files(self, snapshot_id: int) -> set[str]:
        table = self.table()
        assert table is not None
        return {
            path.rsplit("/", 1)[-1]
            for path in table.system("files", snapshot_id)["file_path"].to_pylist()
        }

    def damage(self) -> None:
        """Lose a file of the newest snapshot, or flip one of its bytes."""
        table = self.table()
        newest = table.latest_snapshot() if table is not None else None
        if newest is None or self.damaged:
            return
        name = self.random.choice(sorted(self.files(newest.id)) or [""])
        if not name:
            return
        (path,) = (self.at / "shop.db" / "events").rglob(name)
        content = path.read_bytes()
        self.damaged[path] = content
        if self.random.random() < 0.5:
            path.unlink()
        else:
            middle = len(content) // 3
            path.write_bytes(
                content[:middle] + bytes([content[middle] ^ 0xFF]) + content[middle + 1 :]
            )
        self.log.append((name, path.exists()))

    def mend(self) -> None:
        for path, content in self.damaged.items():
            # An expiry or a rollback may have deleted the file meanwhile.
            if path.parent.exists():
                path.write_bytes(content)
        self.damaged.clear()

    @contextmanager
    def mended(self) -> Iterator[None]:
        states = {path: path.read_bytes() if path.exists() else None for path in self.damaged}
        for path, content in self.damaged.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        yield
        for path, state in states.items():
            if state is None:
                path.unlink()
            else:
                path.write_bytes(state)

    def is_damaged(self, snapshot_id: int, *, is_deep: bool) -> bool:
        names = self.files(snapshot_id) if self.damaged else set()
        return any(path.name in names and (is_deep or not path.exists()) for path in self.damaged)

    def inspect(self) -> None:
        """Read a snapshot, or all of them, or look at the newest one by the checks of its table."""
        table = self.table()
        ids = table.snapshot_ids() if table is not None else []
        if table is None or not ids:
            return
        keys = self.events.keys
        way = self.random.choice(["contents", "shape", "references", "verify"])
        self.log.append(way)
        if way in ("contents", "shape"):
            kind = AssetKind.SNAPSHOTS if way == "contents" else AssetKind.MANIFEST_LISTS
            number = self.random.choice(ids)
            name = partition_set_name(snapshot_partitions(keys))
            if not self.instance.has_dynamic_partition(name, str(number)):
                return
            is_damaged = self.is_damaged(number, is_deep=way == "contents")
            is_sound = self.run(keys.asset(kind), partition_key=str(number), is_killed=False)
            assert is_sound != is_damaged, self.log
            self.found[way, self._version(number)] = is_damaged
        elif way == "references":
            checks = [dg.AssetCheckKey(EVENTS, name) for name in ("references", "totals")]
            job = self.lake.repository.get_implicit_job_def_for_assets([EVENTS])
            subset = job.get_subset(asset_check_selection=set(checks), asset_selection=set())
            assert subset.execute_in_process(instance=self.instance).success
            self.has_lost_references |= self.is_damaged(ids[-1], is_deep=False)
        else:
            job = self.lake.repository.get_job(keys.op("verify"))
            result = job.execute_in_process(instance=self.instance, raise_on_error=False)
            damaged = {number for number in ids if self.is_damaged(number, is_deep=True)}
            assert result.success != bool(damaged), self.log
            self.found |= {("contents", self._version(number)): True for number in damaged}
            self.found["contents", self._version(ids[-1])] = ids[-1] in damaged

    def _version(self, number: int) -> str:
        table = self.table()
        assert table is not None
        return version_from_snapshot(table.snapshot(number)).text

    # --- the model -------------------------------------------------------------------------------

    def observe_all(self) -> None:
        """Follow the commits of each table."""
        for name in self.chains:
            self.observe(name)

    def observe(self, name: str) -> None:
        """Follow a table's commits, with the rows of each."""
        table, chain = self.table(name), self.chains[name]
        if table is None:
            return
        live = {snapshot.id: snapshot for snapshot in table.snapshots()}
        first = min(live, default=0)
        versions = {number: text for number, text in chain.versions.items() if number < first}
        for number, snapshot in live.items():
            text = versions[number] = version_from_snapshot(snapshot).text
            if text not in chain.rows:
                with self.mended():
                    listed = table.scan(snapshot_id=number).to_arrow().to_pylist()
                days = {row["day"] for row in listed}
                chain.rows[text] = {
                    day: frozenset((row["id"], row["v"]) for row in listed if row["day"] == day)
                    for day in days
                }
        if versions:
            chain.follow(versions)

    def tick(self) -> None:
        for name in SENSORS:
            answer(self.instance, self.lake.tick(name))

    def die_in_tick(self) -> None:
        """Kill the daemon within a tick: what it has not stored then, its cursor included, stays as it was."""
        for name in SENSORS:
            cursor = self.lake.cursors.get(name)
            with self.killed_after(self.random.randrange(1, 6)) as state, suppress(Killed):
                answer(self.instance, self.lake.tick(name))
            if state["is_dead"]:
                self.lake.cursors[name] = cursor
                self.log.append((name, "killed after", state["steps"]))
                return

    def check(self) -> None:
        """Tick twice; then every partition, reader and check is as the model says."""
        for _ in range(2):
            self.tick()
        self.check_partitions()
        for reader, upstream in (
            (OF_ALL, EVENTS),
            (TOTALS, EVENTS),
            (COPY, STORED),
            (BY_DAY, EVENTS),
        ):
            self.check_reader(reader, upstream)
        self.check_checks()

    def check_partitions(self) -> None:
        table = self.table()
        if table is None:
            return
        keys = self.events.keys
        versions = {
            snapshot.id: version_from_snapshot(snapshot).text for snapshot in table.snapshots()
        }
        assert sorted(map(int, self._partitions(snapshot_partitions(keys)))) == sorted(versions), (
            self.log
        )
        for kind in (AssetKind.SNAPSHOTS, AssetKind.MANIFEST_LISTS):
            recorded = recorded_versions(self.instance, keys.asset(kind))
            shown = {number: recorded[str(number)].text for number in versions}
            assert shown == versions, (kind, self.log)
        assert self._partitions(tag_partitions(keys)) == set(table.tag_names()), self.log
        failed = self.instance.event_log_storage.get_latest_asset_partition_materialization_attempts_without_materializations(
            keys.asset(AssetKind.TAGS)
        )
        assert not set(failed) & set(table.tag_names()), self.log
        chain = self.chains["shop.events"]
        version = recorded_version(self.instance, EVENTS)
        assert version is None or not chain.differs(version, None), self.log
        if self.partitions_def is not None:
            shown_days = recorded_versions(self.instance, EVENTS)
            assert set(chain.now()) <= set(shown_days), self.log
            assert not [day for day, own in shown_days.items() if chain.differs(own, day)], self.log

    def _partitions(self, definition: dg.DynamicPartitionsDefinition) -> set[str]:
        return set(self.instance.get_dynamic_partitions(partition_set_name(definition)))

    def check_reader(self, key: dg.AssetKey, upstream: dg.AssetKey) -> None:
        """Compare the check `inputs` with the rows that the reader has read."""
        read = {day: versions for (name, day), versions in self.read.items() if name == key}
        if not read:
            return
        chain = self.chains[".".join(upstream.path)]
        stale: set[str | None] = set()
        fresh: set[str | None] = set()
        for own, versions in read.items():
            days = (
                {own}
                if own is not None
                else set(versions) | (set(chain.now()) if None not in versions else set())
            )
            for day in days:
                version, position = versions.get(day, (TableVersion(snapshot_id=0), 0))
                if chain.differs(version, day):
                    stale.add(day)
                elif chain.is_untouched(position, day):
                    fresh.add(day)
        reader = Reader(key=key, upstream=(upstream,), is_partitioned=key == BY_DAY)
        changes = changed_inputs(self.instance, reader)
        assert changes is not None, self.log
        shown = {day or None for change in changes for day in change.partitions or (None,)}
        assert stale <= shown, (key, "is out of date", stale, shown, self.log)
        assert not fresh & shown, (key, "is up to date", fresh, shown, self.log)
        check = dg.AssetCheckKey(key, "inputs")
        assert self.shown(check).get(None) == (not changes), (key, self.log)

    def shown(self, check: dg.AssetCheckKey) -> dict[str | None, bool]:
        """Return the partitions of a check that Dagster shows as passed or failed."""
        infos = self.instance.event_log_storage.get_asset_check_partition_info([check])
        return {
            info.partition_key: info.latest_execution_status.value == "SUCCEEDED"
            for info in infos
            if info.is_current
        }

    def check_checks(self) -> None:
        table, keys = self.table(), self.events.keys
        if table is None:
            return
        ids = table.snapshot_ids()
        for check, kind in (("contents", AssetKind.SNAPSHOTS), ("shape", AssetKind.MANIFEST_LISTS)):
            shown = self.shown(dg.AssetCheckKey(keys.asset(kind), check))
            for number in ids:
                version = self._version(number)
                found = self.found.get((check, version))
                is_damaged = self.is_damaged(number, is_deep=check == "contents")
                if found:
                    self.found[check, version] = is_damaged
                    assert shown.get(str(number)) == (not is_damaged), (check, number, self.log)
                elif found is False:
                    assert shown.get(str(number)), (check, number, self.log)
                else:
                    # An earlier snapshot of this id may have been red: then this one was looked at.
                    assert shown.get(str(number), not is_damaged) == (not is_damaged), (
                        check, number, self.log,
                    )  # fmt: skip
                    if str(number) in shown:
                        self.found[check, version] = is_damaged
        if ids and self.has_lost_references:
            self.has_lost_references = self.is_damaged(ids[-1], is_deep=False)
            references = self.shown(dg.AssetCheckKey(EVENTS, "references")).get(None)
            assert references is False or not self.has_lost_references, self.log
            assert references is not False or self.has_lost_references, self.log
