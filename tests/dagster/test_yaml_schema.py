"""What `dg check yaml` finds in a table's YAML before anything is loaded, and at which place."""

import dagster as dg
import jsonschema
import pytest

from lsm_assets.component import LsmTableComponent
from lsm_assets.warehouse_component import LsmWarehouseComponent
from lsm_engine import core_options

TABLE = {
    "table": "shop.orders",
    "columns": [{"name": "id", "type": "BIGINT NOT NULL"}, {"name": "price", "type": "double"}],
    "primary_key": ["id"],
    "options": {"bucket": 2, "write-only": True, "merge-engine": "partial_update"},
}


def problems(component: type[dg.Component], attributes: dict[str, object]) -> set[str]:
    """The places that are wrong."""
    schema = component.get_model_cls().model_json_schema()
    found = jsonschema.Draft202012Validator(schema).iter_errors(attributes)
    return {"/".join(map(str, error.absolute_path)) for error in found}


def test_what_may_be_written_passes() -> None:
    templates = {"bucket": "{{ env.BUCKETS }}", "merge-engine": "{{ env.ENGINE }}"}
    types = ["DECIMAL(10, 2)", "timestamp_ltz(3)", "ARRAY<INT>", "{{ env.KIND }}", "VARCHAR(3)"]
    for given in (
        TABLE,
        {**TABLE, "options": {**templates, "fields.price.aggregate-function": "sum"}},
        {**TABLE, "columns": [{"name": f"c{at}", "type": each} for at, each in enumerate(types)]},
        {**TABLE, "columns": "{{ columns }}", "options": "{{ options }}"},
    ):
        assert problems(LsmTableComponent, given) == set()
        assert problems(LsmWarehouseComponent, {"tables": [given]}) == set()


@pytest.mark.parametrize(
    ("change", "place"),
    [
        ({"columns": [{"name": "id", "type": "BIGNT"}]}, "columns/0/type"),
        ({"columns": [{"name": "id", "type": "INTERVAL DAY"}]}, "columns/0/type"),
        ({"options": {"bukket": 2}}, "options/bukket"),
        ({"options": {"fields.price.agregate-function": "sum"}}, "options/fields.price.agregate-function"),
        ({"options": {"merge-engine": "dedup"}}, "options/merge-engine"),
        ({"options": {"write-only": "yes"}}, "options/write-only"),
        ({"options": {"bucket": ["2"]}}, "options/bucket"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_found_at_its_place(change: dict[str, object], place: str) -> None:
    assert place in problems(LsmTableComponent, {**TABLE, **change})
    tables = {"tables": [TABLE, {**TABLE, **change}]}
    assert f"tables/1/{place}" in problems(LsmWarehouseComponent, tables)


def test_every_option_may_have_its_default() -> None:
    options = {
        option.key: getattr(option.default, "value", option.default)
        for option in core_options.BY_KEY.values()
        if isinstance(getattr(option.default, "value", option.default), str | int | float)
    }
    assert problems(LsmTableComponent, {**TABLE, "options": options}) == set()
