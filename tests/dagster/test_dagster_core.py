"""Each use of Dagster beyond its public names does what this package relies on, in the installed version."""

import ast
import warnings
from pathlib import Path

import dagster as dg
import pytest

import lsm_assets
from lsm_assets import dagster_core
from lsm_assets.table_assets import compaction_reason
from tests.dagster.lake import MARKS

pytestmark = MARKS
KEY = dg.AssetKey("a")
CHECK = dg.AssetCheckKey(KEY, "sound")


def report(instance: dg.DagsterInstance, partition: str | None, version: str) -> int:
    """Report a materialisation, and return its storage id."""
    tags = {"dagster/data_version": version}
    instance.report_runless_asset_event(
        dg.AssetMaterialization(asset_key=KEY, partition=partition, tags=tags)
    )
    return instance.fetch_materializations(KEY, limit=1).records[0].storage_id


def test_no_other_module_imports_from_within_dagster() -> None:
    root = Path(lsm_assets.__file__).parent
    importers = {
        path.name
        for path in root.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("dagster._")
    }
    assert importers == {"dagster_core.py"}


def test_a_step_has_the_recorded_versions_of_its_inputs() -> None:
    versions: list[str] = []

    @dg.asset
    def upstream() -> dg.MaterializeResult[None]:
        return dg.MaterializeResult(data_version=dg.DataVersion("7"))

    @dg.asset(deps=[upstream])
    def reader(context: dg.AssetExecutionContext) -> None:
        step = dagster_core.step_context(context)
        info = step.maybe_fetch_and_get_input_asset_version_info(upstream.key)
        assert info is not None
        assert info.data_version is not None
        versions.append(info.data_version.value)

    assert dg.materialize([upstream, reader]).success
    assert versions == ["7"]


def test_dynamic_partitions_are_read_from_the_instance() -> None:
    definition = dg.DynamicPartitionsDefinition(name="d")
    with dg.DagsterInstance.ephemeral() as instance:
        instance.add_dynamic_partitions("d", ["x", "y", "z"])
        with dagster_core.partitions_loaded_from(instance):
            keys = definition.get_partition_keys_in_range(dg.PartitionKeyRange("x", "y"))
    assert list(keys) == ["x", "y"]


def test_the_newest_tag_of_each_partition_is_found_between_events() -> None:
    with dg.DagsterInstance.ephemeral() as instance:
        report(instance, "x", "1")
        second = report(instance, "y", "2")
        report(instance, "x", "3")
        tag = "dagster/data_version"
        assert dagster_core.latest_tags(instance, KEY, tag) == {"x": "3", "y": "2"}
        assert dagster_core.latest_tags(instance, KEY, tag, ["y"]) == {"y": "2"}
        assert dagster_core.latest_tags(instance, KEY, tag, after=second) == {"x": "3"}
        assert dagster_core.latest_tags(instance, KEY, tag, before=second) == {"x": "1"}


def test_the_newest_event_of_each_partition_is_known_by_its_storage_id() -> None:
    with dg.DagsterInstance.ephemeral() as instance:
        report(instance, None, "0")
        assert dagster_core.latest_storage_ids(instance, KEY) == {}
        first, second = report(instance, "x", "1"), report(instance, "y", "1")
        assert dagster_core.latest_storage_ids(instance, KEY) == {"x": first, "y": second}
        assert dagster_core.latest_storage_ids(instance, KEY)["x"] < report(instance, "x", "2")


def test_a_check_by_partition_fails_until_the_same_partition_passes() -> None:
    definition = dg.StaticPartitionsDefinition(["x", "y", "z"])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        spec = dagster_core.partitioned_check_spec(definition, name="sound", asset=KEY)
    assert spec.partitions_def == definition

    def evaluate(partition: str, *, passed: bool) -> None:
        target = dagster_core.check_target(instance, KEY, partition)
        evaluation = dg.AssetCheckEvaluation(
            asset_key=KEY,
            check_name="sound",
            passed=passed,
            metadata={},
            partition=partition,
            target_materialization_data=target,
        )
        dagster_core.report_evaluation(instance, evaluation, run_id)
        assert dagster_core.last_status(instance, CHECK, partition) is not None

    run_id = "11111111-1111-1111-1111-111111111111"
    with dg.DagsterInstance.ephemeral() as instance:
        assert dagster_core.check_target(instance, KEY, "x") is None
        report(instance, "x", "1")
        report(instance, "y", "1")
        assert dagster_core.last_status(instance, CHECK, "x") is None
        evaluate("x", passed=False)
        evaluate("y", passed=True)
        shown = dagster_core.CheckToRenew(run_id=run_id, is_shown=True)
        assert dagster_core.checks_to_renew(instance, [CHECK]) == {(CHECK, "x"): shown}
        report(instance, "y", "2")
        assert dagster_core.checks_to_renew(instance, [CHECK]) == {(CHECK, "x"): shown}
        report(instance, "x", "2")
        hidden = dagster_core.CheckToRenew(run_id=run_id, is_shown=False)
        assert dagster_core.checks_to_renew(instance, [CHECK]) == {(CHECK, "x"): hidden}
        evaluate("x", passed=False)
        evaluate("x", passed=True)
        assert dagster_core.checks_to_renew(instance, [CHECK]) == {}
        evaluate("z", passed=True)
        assert dagster_core.checks_to_renew(instance, [CHECK]) == {}
        report(instance, "z", "1")
        early = dagster_core.CheckToRenew(run_id=run_id, is_shown=False, has_passed=True)
        assert dagster_core.checks_to_renew(instance, [CHECK]) == {(CHECK, "z"): early}


def test_a_partition_is_failed_from_the_end_of_a_run_without_an_event_until_the_next_event() -> (
    None
):
    @dg.asset(key=KEY, partitions_def=dg.StaticPartitionsDefinition(["x", "y"]))
    def fails(context: dg.AssetExecutionContext) -> None:
        assert dagster_core.failed_attempts(context.instance, KEY) == set(), "it runs"
        assert dagster_core.backfilled_assets(context.instance, context.run) == frozenset()
        raise dg.Failure

    with dg.DagsterInstance.ephemeral() as instance:
        chosen = {"instance": instance, "partition_key": "x", "raise_on_error": False}
        assert not dg.materialize([fails], **chosen).success
        assert dagster_core.failed_attempts(instance, KEY) == {"x"}
        report(instance, "x", "1")
        assert dagster_core.failed_attempts(instance, KEY) == set()


@pytest.mark.parametrize(
    ("tag", "name"),
    [
        (dagster_core.RUN_KEY_TAG, "dagster/run_key"),
        (dagster_core.SCHEDULE_NAME_TAG, "dagster/schedule_name"),
        (dagster_core.SENSOR_NAME_TAG, "dagster/sensor_name"),
        (dagster_core.AUTOMATION_CONDITION_TAG, "dagster/from_automation_condition"),
        (dagster_core.AUTO_MATERIALIZE_TAG, "dagster/auto_materialize"),
    ],
)
def test_tags_of_runs_have_the_names_that_dagsters_pages_show(tag: str, name: str) -> None:
    assert tag == name
    assert compaction_reason({tag: "x"})
