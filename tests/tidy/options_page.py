"""The options page, docs/options.md, from the declarations; a test keeps the two equal."""

from collections.abc import Callable, Sequence
from enum import Enum
from inspect import getclosurevars
from typing import Any

from lsm_engine.base.units import format_bytes, parse_bytes, parse_millis
from lsm_engine.merge.aggregators.registry import FUNCTIONS
from lsm_engine.options import core_options, option
from lsm_engine.options.foreign import OTHER_FAMILIES, OTHER_OPTIONS, OtherOption
from lsm_engine.options.option import FieldOption, Option

_HEAD = """# Table options

Generated from `lsm_engine/options`; rewrite with `pytest tests/tidy/test_options_page.py --rewrite`.

Names and defaults are Apache Paimon's. Options are set when a table is created, and changed by `orders.alter(lsm.SetOption(…))`,
`lsm alter --set` or `ALTER TABLE … SET TBLPROPERTIES`. Those marked *fixed* cannot change once a table has data.

- A value that is struck through is Paimon's and not supported here. A table that needs it is not created, and one that another client
  made is not read, or not written, wrongly: the option is named.
- An option that this page lacks is refused when a table is created or altered.
- Most tables set none, or one of these: [`bucket`](#buckets), [`merge-engine`](#merge-engines),
  [`sequence.field`](#key-and-order-of-rows), [`changelog-producer`](#changes-and-consumers),
  [`deletion-vectors.enabled`](#deletion-vectors), [`snapshot.time-retained`](#snapshots-expiry-and-trash),
  [`tag.automatic-creation`](#tags) and [`file.compression`](#data-files).
- A duration has a unit (`30 min`, `12 h`, `7 d`), a size as well (`64 kb`, `128 mb`).
"""
_TABLE_HEAD = """
## {}

| option | values | default | meaning |
|---|---|---|---|
"""

# Options of a group are those that begin so and are in no group above.
_GROUPS: dict[str, Sequence[str]] = {
    "Key and order of rows": (
        "primary-key", "char-keys.", "pk-clustering", "sequence.", "rowkind.", "ignore-", "record-level.",
    ),
    "Merge engines": ("merge-engine", "partial-update.", "aggregation.", "fields."),
    "Buckets": ("bucket", "dynamic-bucket.", "postpone.", "cross-partition-upsert.", "local-merge-"),
    "Partitions": ("partition.", "dynamic-partition-overwrite"),
    "Changes and consumers": (
        "changelog", "delete.force-produce-changelog", "consumer", "streaming-read-overwrite", "incremental-",
    ),
    "Compaction": (
        "num-", "compaction.", "full-compaction.", "lookup-compact", "lookup-wait", "write-only", "commit.force-compact",
    ),
    "Deletion vectors": ("deletion-vector",),
    "Data files": ("file.", "target-file-size", "data-file.", "parquet.", "metadata.stats-"),
    "File indexes": ("file-index.",),
    "Iceberg metadata": ("iceberg-", "metadata.iceberg."),
    "Commits": ("commit", "write.", "snapshot.ignore-empty-commit"),
    "Manifests": ("manifest.",),
    "Memory of a write": ("write-buffer-", "sort-"),
    "Snapshots, expiry and trash": ("snapshot.", "maintenance."),
    "Tags": ("tag.", "sink."),
    "Reads": ("scan.", "source."),
    "Lookups": ("lookup.", "cache-page-size"),
    "Where rows are located: `index.type`": ("index.", "bloom.index.", "simple.index."),
    "Schema changes": ("alter-column", "disable-explicit-type-casting"),
    "Append tables": ("row-tracking.", "data-evolution."),
    "What describes the table": ("path", "owner", "type", "chain-table."),
}  # fmt: skip
_FUNCTIONS = ", ".join(f"`{name}`" for name in FUNCTIONS)
_COLUMN_NAME, _STATS = "a column", "`none`, `counts`, `truncate(n)`, `full`"
# What a text is, where the name alone does not tell; of an option of a column by the end of its name.
_TEXT_VALUES = {
    "record-level.time-field": _COLUMN_NAME,
    "rowkind.field": _COLUMN_NAME,
    "fields.default-aggregate-function": _FUNCTIONS,
    "changelog-file.stats-mode": _STATS,
    "metadata.stats-mode": _STATS,
    "sink.process-time-zone": "a time zone, such as `Europe/Berlin`",
    "sink.watermark-time-zone": "a time zone, such as `Europe/Berlin`",
    "scan.fallback-branch": "a branch",
    "scan.tag-name": "a tag",
}
_FIELD_VALUES = {
    "stats-mode": _STATS,
    "sequence-group": "columns, with commas",
    "aggregate-function": _FUNCTIONS,
    "ignore-retract": "`true`, `false`",
    "list-agg-delimiter": "text",
    "distinct": "`true`, `false`",
    "nested-key": "fields, with commas",
    "nested-sequence-field": "fields, with commas",
    "nested-key-null-strategy": "`merge`, `ignore`, `error`",
    "count-limit": "1 or more",
    "ts-field": "a field",
    "fpp": "between 0 and 1",
    "items": "1 or more",
    "version": "`1`, `2`",
    "index-block-size": "a size",
    "chunk-size": "a size",
}
_PLAIN_VALUES = {
    option.parse_bool: "`true`, `false`",
    option.names: "names, with commas",
    option.bounded_or_unlimited: "1 or more; -1: no limit",
    option.fraction: "between 0 and 1",
    option.parse_lag: "commits, or a duration",
    parse_bytes: "a size",
    parse_millis: "a duration",
    str: "text",
}


_OTHERS = """
## Options of other clients

What becomes of tables that another client made with options that are not supported here. *Refuses* is
by name, before anything is read or written. An option in neither list refuses writing, and reading
warns, once for a table; `lsm verify` and `lsm show schema` list them all.

| option | what it does to us | because |
|---|---|---|
"""


def options_page() -> str:
    """Return the whole page as Markdown."""
    keys = sorted(core_options.BY_KEY)
    pieces = [_HEAD]
    for title, prefixes in _GROUPS.items():
        members = [key for key in keys if key.startswith(tuple(prefixes))]
        keys = [key for key in keys if key not in members]
        rows = [_row(core_options.BY_KEY[key]) for key in members]
        rows += [
            _field_row(field) for field in core_options.FIELD_OPTIONS if field.prefix in prefixes
        ]
        pieces.append(_TABLE_HEAD.format(title) + "\n".join(rows) + "\n")
    assert not keys, f"add a group of tests/tidy/options_page.py for {keys}"
    return "".join(pieces) + _OTHERS + _others()


def _row(declared: Option[Any]) -> str:
    also = f" Also read as {_codes(declared.aliases)}." if declared.aliases else ""
    fixed = " *Fixed.*" if declared.immutable else ""
    return (
        f"| `{declared.key}` | {_cell(_values(declared))} | {_default(declared)} "
        f"| {_cell(declared.doc)}{fixed}{also} |"
    )


def _field_row(declared: FieldOption) -> str:
    values = _FIELD_VALUES[declared.suffix]
    return f"| `{declared.prefix}<column>.{declared.suffix}` | {values} | none | {_cell(declared.doc)} |"


def _values(declared: Option[Any]) -> str:
    """Return what an option may be: the words of a closed vocabulary, or the kind of value."""
    if declared.key in _TEXT_VALUES:
        return _TEXT_VALUES[declared.key]
    if declared.parse in _PLAIN_VALUES and declared.supported is None:
        return _PLAIN_VALUES[declared.parse]
    bound = (
        getclosurevars(declared.parse).nonlocals if hasattr(declared.parse, "__closure__") else {}
    )
    words = _words(declared, bound)
    if words:
        return ", ".join(
            f"`{word}`" if declared.is_supported(value) else f"~~{word}~~"
            for word, value in words.items()
        )
    if declared.supported is not None:
        return f"only {_default(declared)}"
    return _numbers(declared.parse, bound)


def _words(declared: Option[Any], bound: dict[str, Any]) -> dict[str, Any]:
    if "members" in bound:
        return dict(bound["members"])
    if declared.parse is option.parse_bool:
        return {"true": True, "false": False}
    return {word: word for word in bound.get("words", ())}


def _numbers(parse: Callable[[str], Any], bound: dict[str, Any]) -> str:
    if "highest" in bound:
        return f"{getclosurevars(bound['parse_number']).nonlocals['lowest']} to {bound['highest']}"
    if "lowest" in bound:
        return f"{bound['lowest']} or more"
    if "parse" in bound:
        return "level:value pairs, with commas"
    return "text"


def _default(declared: Option[Any]) -> str:
    if declared.default_text is not None:
        return _cell(declared.default_text)
    value = declared.default
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Enum):
        return str(value.value)
    if value is None or value == ():
        return "none"
    if isinstance(value, int) and value >= 1 << 20 and value % (1 << 20) == 0:
        return format_bytes(value).lower()
    return _cell(str(value))


def _codes(names: tuple[str, ...]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _others() -> str:
    """Return the table of these options, and of the families that share a beginning, as Markdown."""
    rows = [f"| `{key}` | {_verdict(OTHER_OPTIONS[key])} |" for key in OTHER_OPTIONS]
    rows += [f"| `{family}…` | {_verdict(of)} |" for family, of in OTHER_FAMILIES.items()]
    return "\n".join(rows) + "\n"


def _verdict(option: OtherOption) -> str:
    but = "".join(f", unless `{value}`" for value in option.harmless_values if value)
    return f"{option.verdict.value}{but} | {option.reason}"
