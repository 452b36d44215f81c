"""What others do to the sample's tables: each backfill then ends well, or its failure says what to do, and that helps."""

import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import dagster as dg
import pyarrow as pa
import pytest

import lsm_engine as lsm
from lsm_assets.declaration import TableDeclaration
from lsm_assets.home import open_instance
from lsm_assets.keys import AssetKind
from lsm_assets.resource import create_table
from lsm_assets.sample.assets import airport_totals, carrier_totals
from lsm_assets.sample.definitions import sample_definitions
from lsm_assets.sample.release import KEY as RELEASE
from lsm_assets.sample.tables import (
    AIRLINES,
    AIRPORTS,
    CARRIER_DAYS,
    FED_TABLES,
    FLIGHTS,
    PLANES,
)
from lsm_assets.settings import EXECUTOR, WAREHOUSE, settings_from
from tests.dagster.conftest import SAMPLE_DAYS
from tests.dagster.lake import MARKS, answer

pytestmark = [
    *MARKS,
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::dagster.BetaWarning"),
]

BY = "spark" if SAMPLE_DAYS else "local"


def expire(lake: "Sample", of: TableDeclaration) -> None:
    """Take everything but the newest snapshot, what tags and consumers keep as well."""
    table = lake.catalog.table(of.name)
    for tag in table.tags():
        table.delete_tag(tag.name)
    for consumer in table.consumers():
        table.reset_consumer(consumer.name)
    table.expire_snapshots(retain_min=1, retain_max=1, older_than="0 ms", everything=True)
    assert len(table.snapshot_ids()) == 1


def roll_back(lake: "Sample", of: TableDeclaration) -> None:
    table = lake.catalog.table(of.name)
    first = table.snapshot_ids()[0]
    for tag in table.tags():
        if tag.snapshot.id > first:
            table.delete_tag(tag.name)
    table.rollback_to(first)


def fast_forward(lake: "Sample", of: TableDeclaration, *, onto: int = -1) -> None:
    """Lose a row on a branch, and go on from there."""
    table = lake.catalog.table(of.name)
    table.create_tag("fix", table.snapshot_ids()[onto])
    table.create_branch("fix", "fix")
    branch = table.branch("fix")
    branch.overwrite(branch.to_arrow().slice(1))
    table.fast_forward("fix", force=onto == 0)


def fast_forward_from_the_first(lake: "Sample", of: TableDeclaration) -> None:
    fast_forward(lake, of, onto=0)


def drop(lake: "Sample", of: TableDeclaration) -> None:
    lake.catalog.drop_table(of.name)


def recreate(lake: "Sample", of: TableDeclaration) -> None:
    lake.catalog.drop_table(of.name)
    create_table(lake.catalog, of)


EVENTS: Mapping[str, Callable[["Sample", TableDeclaration], None]] = {
    each.__name__: each
    for each in (expire, roll_back, fast_forward, fast_forward_from_the_first, drop, recreate)
}


@dataclass
class Sample:
    """The sample's warehouse, and its definitions on the instance that the command has filled."""

    at: Path
    instance: dg.DagsterInstance
    catalog: lsm.Catalog
    log: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        settings = settings_from({WAREHOUSE: str(self.at), EXECUTOR: BY})
        self.definitions = sample_definitions(settings)
        self.repository = self.definitions.get_repository_def()

    def sync(self) -> None:
        with dg.build_sensor_context(
            instance=self.instance,
            definitions=self.definitions,
            sensor_name="lsm_sync",
            resources={"lsm": (self.definitions.resources or {})["lsm"]},
        ) as context:
            answer(self.instance, self.repository.get_sensor_def("lsm_sync").evaluate_tick(context))

    def backfill(self, key: dg.AssetKey) -> str:
        """Materialise an asset, all partitions that it has had, in one run; return the failure's sentence, or nothing."""
        job = self.repository.get_implicit_job_def_for_assets([key])
        done = sorted(self.instance.get_materialized_partitions(key))
        span = "dagster/asset_partition_range_"
        tags = {f"{span}start": done[0], f"{span}end": done[-1]} if done else {}
        try:
            job.execute_in_process(instance=self.instance, asset_selection=[key], tags=tags)
        except dg.Failure as failure:
            return failure.description or "nothing"
        return ""


def follow(lake: Sample, told: str) -> None:
    """Do what a failure says."""
    lake.log.append(told)
    if compacted := re.search(r"materialise (\S+) with full: true, then run this again", told):
        key = dg.AssetKey.from_user_string(compacted[1])
        job = lake.repository.get_implicit_job_def_for_assets([key])
        config = {"ops": {FLIGHTS.keys.op("compact"): {"config": {"full": True}}}}
        job.execute_in_process(instance=lake.instance, asset_selection=[key], run_config=config)
    elif missing := re.search(r"[Mm]aterialise (\S+?),? (?:again|then run this again)", told):
        assert not lake.backfill(dg.AssetKey.from_user_string(missing[1])), told
    elif "or drop it, then run this again" in told:
        lake.catalog.drop_table(told.split()[0])
    elif branch := re.search(r"delete the branch (\S+) and the tag (\S+) of it, then", told):
        table = lake.catalog.table(told.split()[0])
        table.delete_branch(branch[1])
        table.delete_tag(branch[2])
    else:
        raise AssertionError(told)


@pytest.fixture
def lake(replayed: Path) -> Iterator[Sample]:
    saved = replayed.with_name("saved")
    if not saved.exists():
        shutil.copytree(replayed, saved)
    shutil.rmtree(replayed)
    shutil.copytree(saved, replayed)
    settings = settings_from({WAREHOUSE: str(replayed), EXECUTOR: BY})
    with (
        open_instance(settings) as instance,
        lsm.open_catalog(settings.catalog_url, warehouse=settings.warehouse) as catalog,
    ):
        yield Sample(replayed, instance, catalog)
    shutil.rmtree(replayed)
    shutil.copytree(saved, replayed)


READ = (FLIGHTS, AIRLINES, PLANES, AIRPORTS)
EVERY = [(of, event, heard) for of in READ for event in EVENTS for heard in (True, False)]
SOME = [(FLIGHTS, "roll_back", False), (AIRPORTS, "drop", True)]


@pytest.mark.parametrize(
    ("of", "event", "heard"),
    EVERY if SAMPLE_DAYS else SOME,
    ids=lambda each: getattr(each, "name", str(each)),
)
def test_backfills_end_well_or_say_what_to_do(
    lake: Sample, of: TableDeclaration, event: str, heard: bool
) -> None:
    EVENTS[event](lake, of)
    if heard:
        lake.sync()
    keys = [each.keys.asset(AssetKind.TABLE) for each in (CARRIER_DAYS, *FED_TABLES)]
    for key in (*keys, RELEASE):
        for _ in range(4):
            told = lake.backfill(key)
            if not told:
                break
            follow(lake, told)
        assert not told, lake.log
    check_totals(lake)


def check_totals(lake: Sample) -> None:
    """What was fed is what the rows amount to, whatever has happened to them."""
    now = lake.catalog.table(FLIGHTS.name).to_arrow()
    now = now.append_column("_row_kind", pa.repeat("+I", now.num_rows))
    for declaration, made_of in zip(FED_TABLES[:2], (carrier_totals, airport_totals), strict=True):
        (key,) = declaration.primary_key
        # Of what was taken back zeros are left behind, and the worst that was ever told.
        sums = [name for name in declaration.schema.names if name not in (key, "worst_arr_delay")]
        told = {row.pop(key): row for row in made_of(now).select([key, *sums]).to_pylist()}
        nothing = dict.fromkeys(sums, 0)
        fed = lake.catalog.table(declaration.name).to_arrow(columns=[key, *sums]).to_pylist()
        found = {row.pop(key): row for row in fed}
        assert found == {name: told.get(name, nothing) for name in found}, lake.log
        assert told.keys() <= found.keys()
