"""Procedures: `CALL sys.compact(table => 'shop.orders')`, and the table functions `lsm_compact(…)`.

They have the names and arguments of Paimon's procedures, if Paimon has the procedure. CALL runs on the driver and
uses the executors. A table function runs in one task, so LATERAL maintains many tables concurrently.
"""

import dataclasses
import inspect
import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from enum import Enum
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import udtf
from pyspark.sql.types import StringType, StructField, StructType

from lsm_engine.api.catalog import open_catalog
from lsm_engine.api.open_table import open_table
from lsm_engine.api.table import Table
from lsm_engine.base.errors import ErrorKind, InvalidInputError, NotFoundError
from lsm_engine.base.instant import millis_of
from lsm_engine.base.names import did_you_mean
from lsm_engine.format.tag import Tag
from lsm_engine.maintenance.expire import ExpiryReport
from lsm_engine.spark.commands.tables import Place, SessionTables
from lsm_engine.spark.jobs import prepare_worker, shows_errors_alone
from lsm_engine.spark.statement import Statement
from lsm_engine.spark.types import frame_of_rows

RESULT = StructType([StructField(name, StringType()) for name in ("table", "name", "value")])
"""The columns that procedures return: the table, and one row for each fact of the outcome."""
_PREFIX = "lsm_"
_TRUE = {"true": True, "false": False}
_CERTAIN = re.compile(r"\d+|.*(Z|[+-]\d\d:\d\d)")
"""A time that is the same in every zone."""
Named = Mapping[str, Any]


def _partitions(text: str | None) -> list[dict[str, str]] | None:
    """Return the partitions that "day=1,hour=2;day=2" names."""
    if not text:
        return None
    return [
        dict(part.strip().split("=", 1) for part in partition.split(","))
        for partition in text.split(";")
        if partition.strip()
    ]


def _compact(
    table: Table,
    partitions: str | None = None,
    compact_strategy: str = "minor",
    full: bool = False,
    buckets: str | None = None,
) -> Any:
    strategy = compact_strategy.lower()
    if strategy not in ("minor", "full"):
        raise InvalidInputError("compact_strategy is 'minor' or 'full'", given=compact_strategy)
    return table.compact(
        full=full or strategy == "full", partitions=_partitions(partitions), buckets=buckets
    )


def _rescale(table: Table, bucket_num: int, partition: str | None = None) -> Any:
    return table.rescale(bucket_num, partitions=_partitions(partition))


def _rollback(
    table: Table, version: str | None = None, snapshot: int | None = None, tag: str | None = None
) -> Any:
    if version is not None:
        snapshot, tag = (int(version), tag) if version.isdigit() else (snapshot, version)
    return table.rollback_to(snapshot, tag)


def _rollback_to_timestamp(table: Table, timestamp: str | int) -> Any:
    if not _CERTAIN.fullmatch(str(timestamp)):
        raise InvalidInputError(
            "what came since is deleted: give the time with its offset, '2024-05-01 08:00:00+02:00', or in "
            "milliseconds since 1970",
            timestamp=timestamp,
        )
    return table.rollback_to(as_of_millis=millis_of(timestamp))


def _rollback_to_as_latest(
    table: Table, snapshot: int | None = None, tag: str | None = None
) -> Any:
    return table.rollback_to_as_latest(snapshot, tag)


def _expire_snapshots(
    table: Table,
    retain_max: int | None = None,
    retain_min: int | None = None,
    older_than: str | None = None,
    dry_run: bool = False,
) -> Any:
    return table.expire_snapshots(
        dry_run, retain_min=retain_min, retain_max=retain_max, older_than=older_than
    )


def _create_tag(
    table: Table, tag: str, snapshot: int | None = None, time_retained: str | None = None
) -> Any:
    return table.create_tag(tag, snapshot, time_retained)


def _replace_tag(
    table: Table, tag: str, snapshot: int | None = None, time_retained: str | None = None
) -> Any:
    return table.replace_tag(tag, snapshot, time_retained)


def _rename_tag(table: Table, tag: str, target_tag: str) -> Any:
    return table.rename_tag(tag, target_tag)


def _delete_tag(table: Table, tag: str) -> Any:
    for name in tag.split(","):
        table.delete_tag(name.strip())


def _expire_tags(table: Table, older_than: str | None = None, dry_run: bool = False) -> Any:
    return table.expire_tags(dry_run, older_than=older_than)


def _create_branch(table: Table, branch: str, tag: str | None = None) -> Any:
    return table.create_branch(branch, tag)


def _rename_branch(table: Table, from_branch: str, to_branch: str) -> Any:
    return table.rename_branch(from_branch, to_branch)


def _delete_branch(table: Table, branch: str) -> Any:
    for name in branch.split(","):
        table.delete_branch(name.strip())


def _fast_forward(table: Table, branch: str) -> Any:
    return table.fast_forward(branch)


def _remove_orphan_files(
    table: Table,
    older_than: str = "1 d",
    dry_run: bool = True,
) -> Any:
    return table.remove_orphan_files(dry_run, older_than)


def _expire_partitions(
    table: Table, expiration_time: str | None = None, dry_run: bool = False
) -> Any:
    return table.expire_partitions(dry_run, older_than=expiration_time)


def _remove_unexisting_files(table: Table, dry_run: bool = True) -> Any:
    return table.remove_unexisting_files(dry_run)


def _remove_damaged_files(table: Table, dry_run: bool = True) -> Any:
    return table.remove_damaged_files(dry_run)


def _restore_files(table: Table, dry_run: bool = True) -> Any:
    return table.restore_files(dry_run)


def _compact_manifest(table: Table, dry_run: bool = False) -> Any:
    return table.compact_manifest(dry_run)


def _reset_consumer(table: Table, consumer_id: str, next_snapshot_id: int | None = None) -> Any:
    return table.reset_consumer(consumer_id, next_snapshot_id)


def _verify(table: Table, deep: bool = False, snapshot: int | None = None) -> Any:
    return table.verify(deep=deep, snapshot_id=snapshot)


def _explain_key(table: Table, key: str) -> Any:
    return table.explain_key(json.loads(key))


PROCEDURES: Mapping[str, Callable[..., Any]] = {
    procedure.__name__.removeprefix("_"): procedure
    for procedure in (
        _compact, _rescale, _rollback, _rollback_to_timestamp, _rollback_to_as_latest,
        _expire_snapshots, _create_tag, _replace_tag, _rename_tag, _delete_tag, _expire_tags,
        _create_branch, _rename_branch, _delete_branch, _fast_forward, _remove_orphan_files,
        _expire_partitions, _remove_unexisting_files, _remove_damaged_files, _restore_files,
        _compact_manifest, _reset_consumer, _verify, _explain_key,
    )
}  # fmt: skip


def call(
    procedure: str, table: Table, arguments: tuple[Any, ...], keywords: Named
) -> list[tuple[str, str, str]]:
    """Run a procedure on a table; rows as RESULT. Arguments may be text that means a number.

    Raises NotFoundError for a name that no procedure has, InvalidInputError for arguments.
    """
    run = _procedure(procedure)
    try:
        bound = inspect.signature(run).bind(table, *arguments, **keywords)
    except TypeError as cause:
        # `bind` refuses arguments by Python's rules; the error lists those of the procedure.
        takes = ", ".join([*inspect.signature(run).parameters])
        raise InvalidInputError(
            f"{procedure} takes {takes}: {cause}",
            kind=ErrorKind.INVALID_OPTION,
            procedure=procedure,
        ) from cause
    for name, value in bound.arguments.items():
        kind = str(inspect.signature(run).parameters[name].annotation)
        if isinstance(value, str) and "int" in kind and value.lstrip("-").isdigit():
            bound.arguments[name] = int(value)
        elif isinstance(value, str) and "bool" in kind:
            if value.lower() not in _TRUE:
                raise InvalidInputError(
                    f"{name} is true or false", procedure=procedure, given=value
                )
            bound.arguments[name] = _TRUE[value.lower()]
    result = run(*bound.args, **bound.kwargs)
    return [(table.name, name, value) for name, value in _facts(result)]


def _procedure(name: str) -> Callable[..., Any]:
    procedure = PROCEDURES.get(name)
    if procedure is None:
        hint = did_you_mean(name, PROCEDURES, f"; there are {', '.join(PROCEDURES)}")
        raise NotFoundError(f"there is no procedure {name!r}{hint}", name=name)
    return procedure


def _facts(result: Any) -> Iterator[tuple[str, str]]:
    if result is None:
        yield "result", "done"
    elif isinstance(result, ExpiryReport):
        plan = result.plan
        yield "expired_snapshots", json.dumps(result.snapshot_ids)
        yield "deleted_data_files", str(len(plan.data_files) + len(plan.changelog_files))
        yield "deleted_manifests", str(len(plan.metadata.manifests))
        yield "freed_bytes", str(plan.freed_bytes)
        yield "why_no_more", plan.reason
        yield "kept_by", json.dumps(dict(plan.kept_by))
        yield "expired_tags", json.dumps(result.tags)
        yield "expired_consumers", json.dumps(result.consumers)
        yield "dry_run", json.dumps(result.dry_run)
    elif isinstance(result, Tag):
        yield "name", result.name
        yield "snapshot", str(result.snapshot.id)
        yield "retained_millis", json.dumps(result.retained_millis)
    elif dataclasses.is_dataclass(result):
        for field in dataclasses.fields(result):
            value = getattr(result, field.name)
            if value is not None and field.repr:
                yield (
                    field.name,
                    value if isinstance(value, str) else json.dumps(value, default=_to_json),
                )
    else:
        yield "result", json.dumps(result, default=_to_json)


def _to_json(value: Any) -> Any:
    if isinstance(value, Enum):
        return value.value
    if dataclasses.is_dataclass(value):
        return {
            field.name: getattr(value, field.name)
            for field in dataclasses.fields(value)
            if field.repr
        }
    if isinstance(value, set | frozenset | tuple):
        return [*value]
    return str(value)


def call_statement(spark: SparkSession, tables: SessionTables, statement: Statement) -> DataFrame:
    """Run CALL sys.procedure(…) of an lsm table; any other CALL is Spark's."""
    text = statement.text
    statement.needs("CALL")
    name = statement.name()
    database, _, procedure = name.rpartition(".")
    if database.lower() != "sys":
        return spark.sql(text)
    arguments: list[Any] = []
    keywords: dict[str, Any] = {}
    for inner in statement.listed():
        if inner.word(1) == "=>":
            key = inner.name()
            inner.needs("=>")
            keywords[key] = _argument(inner)
        else:
            arguments.append(_argument(inner))
    statement.ended()
    _procedure(procedure)
    table = keywords.pop("table", None) or (arguments.pop(0) if arguments else None)
    if table is None:
        raise InvalidInputError(f"{procedure} needs the name of a table: table => 'shop.orders'")
    target = open_table(table) if "/" in table else tables.table(table)
    rows = call(procedure, target, tuple(arguments), keywords)
    if "/" not in table:
        tables.refresh(tuple(table.partition("@")[0].split(".")))
    return frame_of_rows(spark, rows, dict.fromkeys(("table", "name", "value"), StringType()))


def maintain_statement(spark: SparkSession, table: Table, statement: Statement) -> DataFrame:
    """Run OPTIMIZE, VACUUM, RESTORE, or ALTER TABLE … TAG or BRANCH, from behind the table's name: each is a procedure."""
    verb = statement.first_words[0]
    act = _tag_or_branch if verb == "ALTER" else _MAINTAINS[verb]
    procedure, keywords = act(statement)
    statement.ended()
    rows = call(procedure, table, (), keywords)
    return frame_of_rows(spark, rows, dict.fromkeys(("table", "name", "value"), StringType()))


def _optimize(statement: Statement) -> tuple[str, dict[str, Any]]:
    if statement.takes("WHERE"):
        statement.not_done("name partitions: CALL sys.compact(…, partitions => 'day=2024-05-01')")
    if statement.takes("ZORDER"):
        statement.not_done("rows lie in the order of the primary key; leave ZORDER BY out")
    return "compact", {"full": True}


def _vacuum(statement: Statement) -> tuple[str, dict[str, Any]]:
    keywords: dict[str, Any] = {}
    if statement.takes("RETAIN"):
        keywords["older_than"] = f"{statement.literal()} h"
        statement.needs("HOURS")
    keywords["dry_run"] = statement.takes("DRY", "RUN")
    return "expire_snapshots", keywords


def _restore(statement: Statement) -> tuple[str, dict[str, Any]]:
    statement.takes("TO")
    if not statement.takes("VERSION", "AS", "OF"):
        statement.not_done("VERSION AS OF a snapshot's id or a tag is expected")
    version = statement.literal()
    return "rollback_to_as_latest", {"snapshot" if version.isdigit() else "tag": version}


_MAINTAINS: dict[str, Callable[[Statement], tuple[str, dict[str, Any]]]] = {
    "OPTIMIZE": _optimize,
    "VACUUM": _vacuum,
    "RESTORE": _restore,
}


def names_tag_or_branch(statement: Statement) -> bool:
    """Whether an ALTER TABLE goes on with what it does to a tag or a branch."""
    words = [statement.word(ahead) for ahead in range(4)]
    kinds = words[1:2] if words[1:2] != ["OR"] else words[3:4]
    return words[0] in ("CREATE", "REPLACE", "DROP") and kinds[0] in ("TAG", "BRANCH")


def _tag_or_branch(statement: Statement) -> tuple[str, dict[str, Any]]:
    drops = statement.takes("DROP")
    replaces = not drops and (
        statement.takes("CREATE", "OR", "REPLACE") or statement.takes("REPLACE")
    )
    if not drops and not replaces:
        statement.needs("CREATE")
    kind = statement.word().lower()
    statement.needs(kind.upper())
    for words in (("IF", "NOT", "EXISTS"), ("IF", "EXISTS")):
        if statement.takes(*words):
            statement.not_done(f"leave {' '.join(words)} out")
    keywords: dict[str, Any] = {kind: statement.name()}
    if drops:
        return f"delete_{kind}", keywords
    if kind == "branch":
        statement.not_done(
            "a branch begins with a tag: CALL sys.create_tag, then CALL sys.create_branch(…, tag => …)"
        )
    if statement.takes("AS", "OF", "VERSION"):
        keywords["snapshot"] = statement.literal()
    if statement.takes("RETAIN"):
        keywords["time_retained"] = f"{statement.literal()} {statement.literal().lower()}"
    return "replace_tag" if replaces else "create_tag", keywords


def _argument(statement: Statement) -> Any:
    is_text = statement.is_text
    word = statement.literal()
    statement.ended()
    if is_text:
        return word
    return None if word.upper() == "NULL" else _TRUE.get(word.lower(), word)


class ProcedureFunction:
    """A procedure as a table function; `register_procedures` makes a subclass for each."""

    procedure: str
    place: Place

    @shows_errors_alone
    def run(self, table: str, *arguments: Any, **keywords: Any) -> Iterator[tuple[str, str, str]]:
        """Run it on one table: its name in the catalog, or its directory."""
        prepare_worker()
        if "/" in table:
            yield from call(self.procedure, open_table(table), arguments, keywords)
            return
        name, _, branch = table.partition("@")
        with closing(open_catalog(self.place.url, warehouse=self.place.warehouse)) as catalog:
            target = catalog.table(name)
            target = target.branch(branch) if branch else target
            yield from call(self.procedure, target, arguments, keywords)


def register_procedures(spark: SparkSession) -> None:
    """Make `lsm_compact`, `lsm_create_tag` and so on known to a session, for the catalog of its settings."""
    place = Place.from_session(spark)
    for name in PROCEDURES:
        parts = {"procedure": name, "place": place, "eval": ProcedureFunction.run}
        function_class = type(f"{_PREFIX}{name}", (ProcedureFunction,), parts)
        function = udtf(function_class, returnType=RESULT, useArrow=False)
        spark.udtf.register(f"{_PREFIX}{name}", function)  # type: ignore[arg-type]
