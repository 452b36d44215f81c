"""The facts of pages, read from a catalog: a table opened per request, in as few reads as a page needs."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa

from lsm_engine import (
    Catalog,
    InvalidInputError,
    LsmError,
    NotFoundError,
    Snapshot,
    Table,
    Tag,
    col,
    doctor,
    type_text,
)
from lsm_engine.cli.commands.explain import key_of
from lsm_engine.cli.commands.look import schema_rows, system_rows
from lsm_engine.cli.safe_text import utc_text
from lsm_engine.cli.ui.history_pages import History, SnapshotFacts
from lsm_engine.cli.ui.key_page import KeyAnswer, KeyFacts
from lsm_engine.cli.ui.table_list import TableFacts, TableList, TableState, keys_text
from lsm_engine.cli.ui.tree_pages import TreeFacts
from lsm_engine.cli.values import plain_rows

TABLES_PER_PAGE = 50
SNAPSHOTS_PER_PAGE = 100
BUCKETS_PER_PAGE = 40
ROWS_MAX = 500
"""Files that one page lists."""
IN_FLIGHT = 16
"""Small files of an object store that are read together: most of the time is spent on waiting."""


def table_of_name(catalog: Catalog, name: str) -> Table:
    """Open a table by its name in the catalog, "shop.orders@fix" at a branch; never by a path."""
    table, _, branch = name.partition("@")
    main_table = catalog.table(table)
    return main_table.branch(branch) if branch else main_table


def list_of_tables(
    catalog: Catalog, searched: str, page: int, states: Callable[[list[str]], list[TableState]]
) -> TableList:
    """Return a page of the tables whose names hold `searched`; `states` looks at those of the page."""
    if catalog.is_in_memory:
        catalog.register_found_tables()  # names of tables that came since
    names = [name for name in catalog.list_tables() if searched.lower() in name.lower()]
    page = min(page, max(0, len(names) - 1) // TABLES_PER_PAGE)
    shown = names[page * TABLES_PER_PAGE :][:TABLES_PER_PAGE]
    return TableList(
        warehouse=catalog.warehouse,
        searched=searched,
        found=len(names),
        number=page,
        page_size=TABLES_PER_PAGE,
        tables=states(shown),
    )


def state_of(catalog: Catalog, name: str) -> TableState:
    """Return a table's newest state and health; of one that cannot be read, why."""
    try:
        return _state(table_of_name(catalog, name), name)
    except LsmError as error:
        return TableState(name=name, problem=error.message)


def _state(table: Table, name: str) -> TableState:
    report = doctor(table, depth="shallow")
    newest = None
    try:
        newest = table.latest_snapshot()
        buckets = table.pressure()
    except LsmError as error:  # the doctor's finding, which goes into more detail
        return TableState(name=name, report=report, newest=newest, problem=error.message)
    return TableState(
        name=name,
        report=report,
        newest=newest,
        debt_bytes=sum(bucket.debt_bytes for bucket in buckets),
        due=sum(bucket.compactable for bucket in buckets),
    )


def overview(table: Table, name: str) -> TableFacts:
    """Return the facts of a table's own page."""
    schema = table.schema
    facts = {
        "location": table.location,
        "comment": schema.comment,
        "primary_key": keys_text(schema.primary_keys),
        "partitioned_by": keys_text(schema.partition_keys),
    }
    return TableFacts(
        state=_state(table, name),
        facts=facts,
        schema=schema_rows(schema),
        options=[{"key": key, "value": text} for key, text in sorted(schema.options.texts.items())],
        branches=() if "@" in name else table.branches(),
        consumers=[
            {
                "consumer": consumer.name,
                "next": consumer.next_snapshot_id,
                "since": utc_text(consumer.modified_millis),
            }
            for consumer in table.consumers()
        ],
    )


def history(table: Table, name: str, newest: int | None) -> History:
    """Return the page of snapshots that begins at `newest` and goes back; only those are read."""
    ids = table.snapshot_ids()[::-1]
    start = 0 if newest is None else sum(1 for each in ids if each > newest)
    shown = ids[start : start + SNAPSHOTS_PER_PAGE]
    with ThreadPoolExecutor(IN_FLIGHT, thread_name_prefix="lsm-ui") as pool:
        read = list(pool.map(lambda snapshot_id: _snapshot_or_problem(table, snapshot_id), shown))
    tags: Sequence[Tag] = ()
    problems = [item for item in read if isinstance(item, str)]
    try:
        tags = table.tags()
    except LsmError as error:
        problems.append(f"tags cannot be read: {error}")
    after = start + SNAPSHOTS_PER_PAGE
    return History(
        table=name,
        snapshots=[item for item in read if isinstance(item, Snapshot)],
        tags=tags,
        problems=problems,
        total=len(ids),
        newer=ids[max(0, start - SNAPSHOTS_PER_PAGE)] if start else None,
        older=ids[after] if after < len(ids) else None,
    )


def _snapshot_or_problem(table: Table, snapshot_id: int) -> Snapshot | str | None:
    try:
        return table.snapshot(snapshot_id)
    except NotFoundError:  # expired since it was listed
        return None
    except LsmError as error:
        return f"snapshot {snapshot_id} cannot be read: {error}"


def snapshot_facts(table: Table, name: str, snapshot: Snapshot) -> SnapshotFacts:
    """Return a snapshot with its tags, manifest lists and the files that it changed."""
    ids = table.snapshot_ids()
    older = [snapshot_id for snapshot_id in ids if snapshot_id < snapshot.id]
    newer = [snapshot_id for snapshot_id in ids if snapshot_id > snapshot.id]
    count, changes, problem = 0, None, None
    lists: list[dict[str, Any]] = []
    try:
        if snapshot.id in ids and (snapshot.id == 1 or (older and older[-1] == snapshot.id - 1)):
            diff = table.diff_snapshots(snapshot.id - 1 or None, snapshot.id)
            kinds = (("added", diff.added), ("removed", diff.removed), ("moved", diff.moved))
            count = sum(rows.num_rows for _, rows in kinds)
            changes = [
                {"change": word, **row}
                for word, rows in kinds
                for row in plain_rows(rows[:ROWS_MAX])
            ]
        if snapshot.id in ids:
            lists = list(plain_rows(table.system("manifest_lists", snapshot_id=snapshot.id)))
    except LsmError as error:
        problem = str(error)
    return SnapshotFacts(
        table=name,
        snapshot=snapshot,
        tags=[tag.name for tag in table.tags() if tag.snapshot.id == snapshot.id],
        manifest_lists=lists,
        changes=changes,
        change_count=count,
        problem=problem,
        before=max(older, default=None),
        after=min(newer, default=None),
    )


def snapshot_at(table: Table, query: Mapping[str, str]) -> tuple[Snapshot | None, str]:
    """Return the snapshot that `snapshot` or `tag` of an address names, else the newest; and words for it."""
    tag, number = query.get("tag"), query.get("snapshot")
    if tag:
        tagged: Tag = table.tag(tag)
        return tagged.snapshot, f"tag {tag}, snapshot {tagged.snapshot.id}"
    snapshot = (
        table.snapshot(whole_number("snapshot", number)) if number else table.latest_snapshot()
    )
    return snapshot, "nothing committed yet" if snapshot is None else f"snapshot {snapshot.id}"


def whole_number(name: str, text: str) -> int:
    """Return a number of an address; InvalidInputError if it is none of at most 18 digits."""
    if not text.isascii() or not text.isdigit() or len(text) > 18:
        raise InvalidInputError(f"{name} has to be a whole number, not {text!r}", given=text)
    return int(text)


def tree(table: Table, name: str, query: Mapping[str, str], page: int) -> TreeFacts:
    """Return a page of a table's buckets."""
    snapshot, state_text = snapshot_at(table, query)
    trees = [] if snapshot is None else table.tree(snapshot)
    start = page * BUCKETS_PER_PAGE
    most = sorted(trees, key=lambda bucket: -len(bucket.runs))[start : start + BUCKETS_PER_PAGE]
    return TreeFacts(
        table=name,
        at=state_text,
        query={key: query[key] for key in ("snapshot", "tag") if key in query},
        buckets=most,
        total=len(trees),
        size_bytes=sum(each.size_bytes for each in trees),
        page=page,
        page_size=BUCKETS_PER_PAGE,
    )


def files(table: Table, query: Mapping[str, str]) -> tuple[str, str, list[dict[str, Any]], int]:
    """Return words for the snapshot and the bucket of an address, its files by level, and how many there are."""
    snapshot, state_text = snapshot_at(table, query)
    partition, bucket = query.get("partition", ""), whole_number("bucket", query["bucket"])
    selection = (
        {"tag": query["tag"]} if query.get("tag") else {"snapshot_id": snapshot and snapshot.id}
    )
    condition = (col("bucket") == bucket) & (col("partition") == partition)
    rows: pa.Table = table.system("files", where=condition, **selection)
    ordered = rows.sort_by([("level", "ascending"), ("max_sequence_number", "descending")])
    return state_text, f"{partition} bucket {bucket}".strip(), _rows(ordered), rows.num_rows


def _rows(table: pa.Table) -> list[dict[str, Any]]:
    rows: Iterable[dict[str, Any]] = system_rows(table[:ROWS_MAX])
    return [{**row, "file_path": str(row["file_path"]).rpartition("/")[2]} for row in rows]


def key(table: Table, name: str, query: Mapping[str, str]) -> KeyFacts:
    """Return what a table's files hold of the key in an address; of one that does not fit, why."""
    schema = table.schema
    columns = {
        field.name: type_text(field.type)
        for field in schema.fields
        if field.name in schema.primary_keys
    }
    state = {
        column_name: query[column_name]
        for column_name in ("snapshot", "tag")
        if column_name not in columns and query.get(column_name)
    }
    key_texts = {column_name: query[column_name] for column_name in columns if column_name in query}
    question = KeyFacts(table=name, columns=columns, given=key_texts, at=state)
    if not columns or set(key_texts) != set(columns):
        return question
    number = whole_number("snapshot", state["snapshot"]) if "snapshot" in state else None
    try:
        typed = key_of(table, [f"{column_name}={text}" for column_name, text in key_texts.items()])
        explanation = table.explain_key(typed, snapshot_id=number, tag=state.get("tag"))
    except InvalidInputError as error:
        return KeyFacts(
            table=name, columns=columns, given=key_texts, at=state, problem=error.message
        )
    answer = KeyAnswer(
        rule=explanation.rule,
        column_rules=explanation.column_rules,
        verdict=explanation.verdict,
        names=explanation.versions.schema.names,
        versions=list(plain_rows(explanation.versions)),
    )
    return KeyFacts(table=name, columns=columns, given=key_texts, at=state, answer=answer)
