"""Lineage asked for files, tags, rows, columns and expiry, on real tables; and what is exported of it."""

import json

import pyarrow as pa
import pytest
from openlineage.client.generated import base as spec
from openlineage.client.generated import (
    column_lineage_dataset,
    dataset_version_dataset,
    output_statistics_output_dataset,
    parent_run,
)

import lsm_engine as lsm
from lsm_engine.catalog.lineage.openlineage import run_events
from lsm_engine.catalog.lineage.page import lineage_page
from lsm_engine.catalog.names import TableName
from lsm_engine.catalog.provenance import Input, Run, provenance_properties
from tests.served import WRITER, serving

ORDERS, TOTALS = TableName.parse("shop.orders"), TableName.parse("shop.totals")
COLUMNS = pa.schema([("id", pa.int64()), ("price", pa.int64())])


def told(run, *inputs):
    who = Run(run_id=run, engine="local", kind="upsert", asset_key="shop/x", dagster_run_id=None)
    return provenance_properties(who, inputs)


@pytest.fixture(params=["with the database", "through a server"])
def catalog(request, tmp_path):
    """orders 1, 2 from files; totals 1 from orders 2, 2 from the changes (2, 3]."""
    with lsm.open_catalog(f"sqlite:///{tmp_path}/c.db", warehouse=str(tmp_path)) as opened:
        orders = opened.create_table("shop.orders", COLUMNS, primary_key=["id"])
        totals = opened.create_table("shop.totals", COLUMNS, primary_key=["id"])
        source = Input(dataset="orders.csv", version="monday", columns=(("price", "amount"),))
        orders.upsert(
            [{"id": 1, "price": 1}, {"id": 2, "price": 2}], properties=told("one", source)
        )
        orders.upsert([{"id": 2, "price": 3}], properties=told("two"))
        made = Input(dataset="shop.orders", snapshot_id=2, columns=(("price", "price"),))
        totals.upsert([{"id": 0, "price": 4}], properties=told("sum", made))
        orders.upsert([{"id": 3, "price": 9}], properties=told("three"))
        again = Input(dataset="shop.orders", snapshot_id=3, after_snapshot_id=2)
        totals.upsert([{"id": 0, "price": 13}], properties=told("again", again))
        if request.param == "with the database":
            yield opened
            return
        with serving(opened) as server, lsm.open_catalog(server.url, token=WRITER) as remote:
            yield remote


def column(table, name):
    return table.column(name).to_pylist()


def test_a_file_is_followed_through_compactions_to_its_commits(catalog) -> None:
    orders = catalog.table("shop.orders")
    orders.compact(full=True, properties=told("tidy"))
    orders.upsert([{"id": 4, "price": 1}], properties=told("four"))
    orders.compact(full=True, properties=told("tidy2"))
    (path,) = column(orders.system("files"), "file_path")
    origin = catalog.lineage.origin_of_file(ORDERS, path.rpartition("/")[2])
    assert column(origin.commits, "run_id") == ["one", "two", "three", "four"]
    assert column(origin.inputs, "dataset") == ["orders.csv"]
    assert sorted(column(origin.files, "written")) == [False, False, True, True, True, True]
    with pytest.raises(lsm.NotFoundError, match="no such data file"):
        catalog.lineage.origin_of_file(ORDERS, "data-nobody.parquet")


def test_a_row_names_the_runs_that_are_in_it_even_when_they_have_expired(catalog) -> None:
    first = catalog.explain_row("shop.orders", {"id": 1})
    assert column(first.origin.commits, "run_id") == ["one"]
    assert column(first.origin.inputs, "dataset") == ["orders.csv"]
    assert column(catalog.explain_row("shop.orders", {"id": 2}).origin.commits, "run_id") == ["two"]
    total = catalog.explain_row("shop.totals", {"id": 0}, snapshot_id=1).origin
    assert column(total.inputs, "dataset")[0] == "shop.orders"

    orders = catalog.table("shop.orders")
    orders.compact(full=True)
    orders.expire_snapshots(retain_max=1, older_than="0 ms")
    later = catalog.explain_row("shop.orders", {"id": 2})
    assert column(later.explanation.versions, "_snapshot_id") == [None]
    assert column(later.origin.commits, "run_id") == ["two"]


def test_a_tag_remembers_what_it_was_made_of(catalog) -> None:
    orders = catalog.table("shop.orders")
    orders.create_tag("kept", 2)
    orders.delete_tag("kept")
    origin = catalog.lineage.origin_of_tag(ORDERS, "kept")
    assert column(origin.commits, "run_id") == ["one", "two"]
    with pytest.raises(lsm.NotFoundError, match="no such tag"):
        catalog.lineage.origin_of_tag(ORDERS, "nothing")


def test_what_expiry_would_break(catalog) -> None:
    orders = catalog.table("shop.orders")
    orders.compact(full=True)
    impact = catalog.lineage.impact_of_expiry(ORDERS, 2)
    assert column(impact.readers, "table_name") == ["shop.totals"]
    assert "could not be repeated" in impact.verdict
    assert column(catalog.lineage.impact_of_expiry(ORDERS, 3).readers, "snapshot_id") == [2]
    # Snapshot 3 still reads the files of 1 and 2; once it is the last to do so, they are its own.
    orders.expire_snapshots(retain_max=2, older_than="0 ms")
    assert catalog.lineage.impact_of_expiry(ORDERS, 3).files.num_rows == 3
    orders.create_tag("kept", 3)
    impact = catalog.lineage.impact_of_expiry(ORDERS, 3)
    assert impact.files.num_rows == 0
    assert "tag 'kept'" in impact.verdict
    assert catalog.lineage.impact_of_expiry(ORDERS, 1).verdict == "it has expired already"


def test_columns_both_ways(catalog) -> None:
    up = catalog.lineage.columns(TOTALS, "price")
    assert list(zip(column(up, "dataset"), column(up, "input_column"), strict=True)) == [
        ("shop.orders", "price"),
        ("orders.csv", "amount"),
    ]
    down = catalog.lineage.columns(ORDERS, "price", downstream=True)
    assert column(down, "table_name") == ["shop.totals"]


FACETS = {
    "version": dataset_version_dataset.DatasetVersionDatasetFacet,
    "columnLineage": column_lineage_dataset.ColumnLineageDatasetFacet,
    "outputStatistics": output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet,
}


def facets_of(given):
    """The public classes take these members and no others, and name the schema that we name."""
    made = {}
    for kind, members in given.items():
        own = {key: value for key, value in members.items() if not key.startswith("_")}
        facet = FACETS[kind](**own)
        assert members["_schemaURL"] == facet._schemaURL
        assert members["_producer"]
        made[kind] = facet
    return made


def test_events_are_what_the_public_classes_of_openlineage_take(catalog) -> None:
    events = json.loads(json.dumps(list(run_events(catalog.lineage))))
    assert len(events) == 5
    assert len({event["run"]["runId"] for event in events}) == 5
    for event in events:
        (output,) = event["outputs"]
        parent = event["run"]["facets"]["parent"]
        whole = parent_run.ParentRunFacet(
            run=parent_run.Run(**parent["run"]), job=parent_run.Job(**parent["job"])
        )
        assert parent["_schemaURL"] == whole._schemaURL
        made = spec.RunEvent(
            eventTime=event["eventTime"],
            producer=event["producer"],
            eventType=spec.EventType[event["eventType"]],
            run=spec.Run(runId=event["run"]["runId"], facets={"parent": whole}),
            job=spec.Job(**event["job"]),
            inputs=[
                spec.InputDataset(
                    namespace=each["namespace"], name=each["name"], facets=facets_of(each["facets"])
                )
                for each in event["inputs"]
            ],
            outputs=[
                spec.OutputDataset(
                    namespace=output["namespace"],
                    name=output["name"],
                    facets=facets_of(output["facets"]),
                    outputFacets=facets_of(output["outputFacets"]),
                )
            ],
        )
        assert event["schemaURL"] == made.schemaURL
        assert set(event) == {
            "eventType", "eventTime", "producer", "schemaURL", "run", "job", "inputs", "outputs",
        }  # fmt: skip
    again = json.loads(json.dumps(list(run_events(catalog.lineage, TOTALS))))
    assert again == [event for event in events if event["outputs"][0]["name"] == "shop.totals"]
    totals = again[0]
    fields = totals["outputs"][0]["facets"]["columnLineage"]["fields"]
    assert fields["price"]["inputFields"] == [
        {"namespace": "lsm", "name": "shop.orders", "field": "price"}
    ]


def test_a_page_holds_its_facts_and_asks_nobody(catalog) -> None:
    page = lineage_page(catalog.lineage)
    assert "http://" not in page.replace("http://www.w3.org", "")
    assert "https://" not in page
    assert "{{" not in page
    start = page.index('<script id="facts"')
    facts = page[page.index(">", start) + 1 : page.index("</script>", start)]
    names = [table["name"] for table in json.loads(facts)["tables"]]
    assert names == ["shop.orders", "shop.totals"]


def test_nothing_in_the_lineage_can_end_the_script(catalog) -> None:
    evil = "</script><script>document.title='evil'</script><!--"
    catalog.table("shop.orders").upsert([{"id": 9, "price": 9}], properties=told(evil))
    page = lineage_page(catalog.lineage)
    assert evil not in page
    assert page.count("<script") == 2
