"""Decisions by time, size and number: append tables, loads, early compaction, tags, old partitions."""

from dataclasses import replace
from datetime import UTC, datetime

import numpy as np

from lsm_engine.base.errors import LsmError
from lsm_engine.format.tag import Tag
from lsm_engine.kernels.keys import SortKeys
from lsm_engine.lsm.rewrite_plan import bulk_load
from lsm_engine.lsm.universal import EarlyFull
from lsm_engine.options.modes import CommitKind, FileSource
from lsm_engine.planning.buckets import source_buckets
from lsm_engine.planning.compaction import AppendSizes, append_groups
from lsm_engine.planning.keys import KeySpan, candidates_by_range
from lsm_engine.planning.proposal import CommitStep
from lsm_engine.planning.retention import PartitionAge, PartitionClock, expired_partitions
from lsm_engine.planning.row_ids import id_after, stamped
from lsm_engine.planning.tags import TagPeriods, automatic_tags, surplus
from tests import shapes
from tests.cases.notation import entries, place
from tests.unit.planning.facts import data_file, snapshot


def sized_files(text):
    """`a:30@5 b:9@4~100`: name, size, first sequence number, when it was created."""
    made = []
    for word in text.split():
        name, _, rest = word.partition(":")
        rest, _, created = rest.partition("~")
        size, _, sequence = rest.partition("@")
        file = data_file(name, size=int(size), sequence=int(sequence or 0))
        made.append(replace(file, creation_millis=int(created) if created else None))
    return made


def append_compaction(case):
    sizes = AppendSizes(
        target_file_size=int(case.get("target", 100)), min_file_count=int(case.get("min count", 3))
    )
    groups = append_groups(
        sized_files(case["files"]),
        sizes,
        in_order="in order" in case,
        full="full" in case,
        must_rewrite=frozenset(case.get("must rewrite", "").split()),
    )
    return "\n".join(" ".join(file.file_name for file in group) for group in groups) or "nothing"


def load(case):
    wanted = case.get("must rewrite", "").split()
    found = bulk_load(
        shapes.levels(case["files"].removeprefix("none")),
        target_file_size=100,
        must_rewrite=lambda file: file.file_name in wanted,
    )
    return shapes.show_all(found) or "nothing"


def early(case):
    given = dict(word.split("=") for word in case["asked"].split())
    rule = EarlyFull(
        interval_millis=int(given["interval"]) if "interval" in given else None,
        total_bytes=int(given["total"]) if "total" in given else None,
        incremental_bytes=int(given["above"]) if "above" in given else None,
    )
    runs = []
    written = case.get("written", "").split()
    for at, run in enumerate(shapes.runs(case["runs"])):
        created = int(written[at]) if at < len(written) and written[at] != "?" else None
        files = tuple(replace(file, creation_millis=created) for file in run.files)
        runs.append(replace(run, run=replace(run.run, files=files)))
    asks = rule.asks(runs, max_level=3, now_millis=int(case.get("now", 0)))
    return "full compaction" if asks else "not now"


def key_bytes(text):
    return None if text == "?" else int(text).to_bytes(8, "big")


def location(case):
    words = case["keys"].removeprefix("none").split()
    keys = SortKeys(prefix=np.array([int(key) for key in words], np.uint64), width=8)
    spans = []
    for word in case.get("files", "").split():
        name, _, span = word.partition(":")
        lowest, _, highest = span.partition("-")
        spans.append(KeySpan(file_name=name, lowest=key_bytes(lowest), highest=key_bytes(highest)))
    try:
        found = candidates_by_range(spans, keys, enabled="off" not in case)
    except LsmError as error:
        return f"refused: {error}"
    sliced = [
        f"{span.file_name} keys {' '.join(words[start:stop]) or 'none'}"
        for span, start, stop in zip(spans, found.starts, found.stops, strict=True)
    ]
    pruned = "pruned" if found.pruned else "not pruned"
    return "\n".join(
        [*sliced, f"{pruned}, {int((found.stops - found.starts).sum())} pairs: {found.text}"]
    )


def moment(text):
    return datetime.fromisoformat(text)


def periods(case):
    try:
        made = TagPeriods.from_options(
            case.get("period", "daily"),
            length_millis=int(case["length"]) if "length" in case else None,
            formatter=case.get("formatter", "with_dashes"),
            delay_millis=int(case.get("delay", 0)),
        )
    except LsmError as error:
        return f"refused: {error}"
    if "names" in case:
        tags = [Tag(name=name, snapshot=snapshot(1)) for name in case["names"].split(", ")]
        found = automatic_tags(tags, made)
        kept = int(case["kept"]) if "kept" in case else None
        names = [tag.name for tag in found.values()]
        return (
            f"automatic: {', '.join(names)}; too many: {', '.join(surplus(names, kept)) or 'none'}"
        )
    last = made.start_of(case["last"]) if "last" in case else None
    due = made.closed_periods(moment(case["now"]), last, complete="complete" in case)
    return ", ".join(map(made.name_of, due)) or "none"


def partition_time(case):
    clock = PartitionClock(
        columns=tuple(case.get("columns", "dt").split()),
        pattern=case.get("pattern"),
        formatter=case.get("formatter"),
    )
    values = dict(word.split("=") for word in case.get("values", "").split("; ") if word)
    known = {name: None if value == "null" else value for name, value in values.items()}
    try:
        if "before" not in case:
            return str(clock.time_of(known))
    except LsmError as error:
        return f"refused: {error}"
    ages = [
        PartitionAge(partition=name.encode(), time=clock.time_of({"dt": value}))
        for name, value in known.items()
    ]
    gone = expired_partitions(
        ages,
        before=moment(case["before"]).replace(tzinfo=UTC),
        max_count=int(case.get("at most", 9)),
    )
    return " ".join(age.partition.decode() for age in gone) or "none"


def numbered(case):
    """Files as `a~12`: created at 12; a compaction's result is `c!`."""
    delta = []
    for word in case["delta"].split():
        plain, _, created = word.removesuffix("!").partition("~")
        (one,) = entries(plain)
        file = replace(
            one.file,
            creation_millis=int(created) if created else None,
            file_source=FileSource.COMPACT if word.endswith("!") else FileSource.APPEND,
        )
        delta.append(replace(one, file=file))
    step = CommitStep(
        kind=CommitKind.APPEND, uuid="u", commit_user="c", commit_identifier=1, delta=tuple(delta)
    )
    base = None if case["base"] == "none" else snapshot(int(case["base"]))
    made = stamped(step, id_after(base))
    return "\n".join(
        f"{place(one.partition, one.bucket)}/{one.file.file_name}: "
        f"rows {one.file.min_sequence_number}-{one.file.max_sequence_number}, "
        f"created {one.file.creation_millis}"
        for one in made.delta
    )


def rescaled(case):
    old, new = int(case["from"]), int(case["to"])
    return "\n".join(
        f"b{bucket} from "
        + " ".join(f"b{one}" for one in source_buckets(bucket, old_total=old, new_total=new))
        for bucket in range(new)
    )


def test_append_compaction(check_cases):
    check_cases("append_compaction", append_compaction)


def test_bulk_load(check_cases):
    check_cases("bulk_load", load)


def test_early_full(check_cases):
    check_cases("early_full", early)


def test_key_location(check_cases):
    check_cases("key_location", location)


def test_tag_periods(check_cases):
    check_cases("tag_periods", periods)


def test_partition_age(check_cases):
    check_cases("partition_age", partition_time)


def test_snapshot_order(check_cases):
    check_cases("snapshot_order", numbered)


def test_rescale(check_cases):
    check_cases("rescale", rescaled)
