"""Options of a table that contradict each other, or ask for what never happens."""

from collections.abc import Callable

from lsm_engine.base import core_options
from lsm_engine.base.record import record
from lsm_engine.base.table_options import TableOptions

OptionsAtOdds = tuple[str, str, tuple[str, ...]]
"""What contradicts, what that costs, and the change that mends it, as `lsm alter TABLE` takes it."""


@record
class _Conflict:
    holds: Callable[[TableOptions], bool]
    contradiction: str
    cost: str
    change: tuple[str, ...]


def at_odds(options: TableOptions, *, is_partitioned: bool) -> tuple[OptionsAtOdds, ...]:
    """Return the contradictions among a table's options."""
    return tuple(
        (rule.contradiction, rule.cost, rule.change)
        for rule in (*_ALWAYS, *(() if is_partitioned else _UNPARTITIONED))
        if rule.holds(options)
    )


def _retained_crossed(options: TableOptions) -> bool:
    least = options[core_options.SNAPSHOT_NUM_RETAINED_MIN]
    return least > options[core_options.SNAPSHOT_NUM_RETAINED_MAX]


def _stop_below_trigger(options: TableOptions) -> bool:
    stop = options[core_options.NUM_SORTED_RUN_STOP_TRIGGER]
    return stop is not None and stop < options[core_options.NUM_SORTED_RUN_COMPACTION_TRIGGER]


def _tags_without_end(options: TableOptions) -> bool:
    ends = (core_options.TAG_NUM_RETAINED_MAX, core_options.TAG_DEFAULT_TIME_RETAINED)
    makes = options[core_options.TAG_AUTOMATIC_CREATION] in ("process-time", "watermark")
    return makes and all(options[end] is None for end in ends)


def _lifetime_unused(options: TableOptions) -> bool:
    lives = options[core_options.TAG_DEFAULT_TIME_RETAINED] is not None
    return lives and not options[core_options.TAG_TIME_EXPIRE_ENABLED]


_ALWAYS = (
    _Conflict(
        holds=_retained_crossed,
        contradiction="'snapshot.num-retained.min' is above 'snapshot.num-retained.max'",
        cost="nothing ever expires",
        change=("--unset", core_options.SNAPSHOT_NUM_RETAINED_MAX.key),
    ),
    _Conflict(
        holds=_stop_below_trigger,
        contradiction="'num-sorted-run.stop-trigger' is below 'num-sorted-run.compaction-trigger'",
        cost="writers would wait for a compaction that is not due; other clients do",
        change=("--unset", core_options.NUM_SORTED_RUN_STOP_TRIGGER.key),
    ),
    _Conflict(
        holds=_tags_without_end,
        contradiction="'tag.automatic-creation' makes tags, and no option lets them end",
        cost="every period keeps its files for ever",
        change=("--set", f"{core_options.TAG_NUM_RETAINED_MAX.key}=90"),
    ),
    _Conflict(
        holds=_lifetime_unused,
        contradiction="tags have 'tag.default-time-retained', and 'tag.time-expire-enabled' is off",
        cost="tags outlive their lifetime",
        change=("--unset", core_options.TAG_TIME_EXPIRE_ENABLED.key),
    ),
)
_UNPARTITIONED = (
    _Conflict(
        holds=lambda options: core_options.PARTITION_EXPIRATION_TIME.key in options.texts,
        contradiction="'partition.expiration-time' is set, and the table has no partitions",
        cost="no row expires",
        change=("--unset", core_options.PARTITION_EXPIRATION_TIME.key),
    ),
)
