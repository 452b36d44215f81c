"""The health of one table: facts, judged; and the system table `health`."""

from collections.abc import Iterable

import pyarrow as pa

from lsm_engine.meta.snapshot import Snapshot
from lsm_engine.plan.diagnosis import STALE_MILLIS, findings
from lsm_engine.plan.health import Depth, Finding, HealthReport, TableFacts
from lsm_engine.table.ground.session import TableSession
from lsm_engine.table.inspect.health_facts import table_facts

HEALTH = pa.schema(
    [
        pa.field("table", pa.string(), nullable=False),
        pa.field("kind", pa.string(), nullable=False),
        pa.field("severity", pa.string(), nullable=False),  # error, warning, note
        pa.field("finding", pa.string(), nullable=False),
        ("cost", pa.string()),
        ("command", pa.list_(pa.string())),  # the words after `lsm`; null: no command can help
        ("loses", pa.string()),  # what the command makes unreadable; null: nothing
    ]
)


def examine(
    session: TableSession, depth: Depth = Depth.WHOLE, *, stale_millis: int = STALE_MILLIS
) -> HealthReport:
    """Return what is wrong with one table."""
    return report_of(table_facts(session, depth), depth, stale_millis=stale_millis)


def report_of(facts: TableFacts, depth: Depth, *, stale_millis: int) -> HealthReport:
    """Return what facts about one table make wrong with it."""
    problems = findings(facts, stale_millis=stale_millis)
    return HealthReport(findings=problems, table_count=1, depth=depth)


def health(session: TableSession, snapshot: Snapshot | None) -> pa.Table:
    """Return one row for each finding about the table, pages of data files unread."""
    del snapshot  # every root is looked at
    return health_rows(examine(session).findings)


def health_rows(problems: Iterable[Finding]) -> pa.Table:
    """Return findings as rows."""
    return pa.Table.from_pylist([finding.facts() for finding in problems], schema=HEALTH)
