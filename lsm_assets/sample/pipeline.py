"""Run the sample's jobs in this process, on a Dagster instance that the UI shows afterwards."""

from collections.abc import Callable, Mapping, Sequence
from datetime import date, timedelta
from typing import Any
from uuid import uuid4  # noqa: TID251 -- names a run, decides nothing

import dagster as dg

from lsm_assets.assets.health import health_key
from lsm_assets.model.declaration import TableDeclaration
from lsm_assets.model.keys import AssetKind
from lsm_assets.model.partitions import partition_set_name, tag_partitions
from lsm_assets.sample.jobs import DAYS_JOB, FEED_JOB, REFERENCES_JOB
from lsm_assets.sample.source import FIRST_DAY, LAST_DAY
from lsm_assets.sample.tables import FLIGHTS

OnCommit = Callable[[str], None]
"""Called after each commit with its label."""

_QUIET = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}


class SamplePipeline:
    """Runs the sample's jobs, one after the other. The Dagster instance records every run."""

    def __init__(self, definitions: dg.Definitions, instance: dg.DagsterInstance) -> None:
        self.definitions = definitions
        self.instance = instance
        self._cursor: str | None = None

    def next_days(self, count: int) -> list[date]:
        """Return the first days of 2013, at most `count`, that are not replayed yet."""
        done = self.instance.get_materialized_partitions(FLIGHTS.keys.asset(AssetKind.TABLE))
        year = (LAST_DAY - FIRST_DAY).days + 1
        days = (FIRST_DAY + timedelta(days=number) for number in range(year))
        return [day for day in days if day.isoformat() not in done][:count]

    def load_references(self, on_commit: OnCommit) -> None:
        """Load airlines, airports and planes, and release a correction of airports."""
        self._run(REFERENCES_JOB, on_commit)

    def load_days(self, days: Sequence[date], on_commit: OnCommit) -> None:
        """Replay consecutive days in one run."""
        tags = {
            "dagster/asset_partition_range_start": days[0].isoformat(),
            "dagster/asset_partition_range_end": days[-1].isoformat(),
        }
        self._run(DAYS_JOB, on_commit, tags=tags)

    def feed_totals(self, on_commit: OnCommit) -> None:
        """Apply the changes of flights to totals and first sightings."""
        self._run(FEED_JOB, on_commit)

    def compact_due_tables(self, on_commit: OnCommit) -> list[str]:
        """Evaluate the compaction sensor, as the daemon does, and run its requests. Return the compacted assets."""
        repository = self.definitions.get_repository_def()
        sensor = repository.get_sensor_def("lsm_compaction")
        with dg.build_sensor_context(
            instance=self.instance,
            cursor=self._cursor,
            definitions=self.definitions,
            sensor_name=sensor.name,
            resources={"lsm": (self.definitions.resources or {})["lsm"]},
        ) as context:
            result = sensor.evaluate_tick(context)
        self._cursor = result.cursor
        names = []
        for request in result.run_requests or []:
            # The daemon finds the run by these tags, and does not request it again.
            tags = {
                **request.tags,
                "dagster/run_key": request.run_key or "",
                "dagster/sensor_name": sensor.name,
            }
            self._materialise(request.asset_selection or [], on_commit, tags=tags)
            names += [key.to_user_string() for key in request.asset_selection or []]
        return names

    def tag(self, declaration: TableDeclaration, name: str, on_commit: OnCommit) -> None:
        """Tag a table's newest snapshot by materialising the tag's partition."""
        keys = declaration.keys
        self.instance.add_dynamic_partitions(partition_set_name(tag_partitions(keys)), [name])
        self._materialise([keys.asset(AssetKind.TAGS)], on_commit, partition_key=name)

    def look_at_health(self) -> None:
        """Materialise the health asset."""
        self._materialise([health_key()], lambda label: None)

    def _materialise(
        self,
        selection: Sequence[dg.AssetKey],
        on_commit: OnCommit,
        *,
        partition_key: str | None = None,
        tags: Mapping[str, str] | None = None,
    ) -> None:
        repository = self.definitions.get_repository_def()
        job = repository.get_implicit_job_def_for_assets(list(selection))
        assert job is not None, "assets with the same partitions share a job"
        self._execute(
            job, on_commit, asset_selection=list(selection), partition_key=partition_key, tags=tags
        )

    def _run(
        self, name: str, on_commit: OnCommit, *, tags: Mapping[str, str] | None = None
    ) -> None:
        self._execute(self.definitions.resolve_job_def(name), on_commit, tags=tags)

    def _execute(self, job: dg.JobDefinition, on_commit: OnCommit, **arguments: Any) -> None:
        run_id = str(uuid4())
        self.instance.add_event_listener(run_id, lambda entry: _listen(entry, on_commit))
        job.execute_in_process(
            instance=self.instance, run_id=run_id, run_config=_QUIET, **arguments
        )


def _listen(entry: dg.EventLogEntry, on_commit: OnCommit) -> None:
    event = entry.dagster_event
    if event is None or not event.is_step_materialization:
        return
    materialization = event.step_materialization_data.materialization
    if materialization.asset_key.path[-1].endswith(f".{AssetKind.SNAPSHOTS.value}"):
        label = materialization.metadata.get("lsm/what") or materialization.metadata.get("lsm/kind")
        on_commit(str(label.value) if label is not None else "")
