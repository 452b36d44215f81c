"""An LSM tree in the terminal: a line per sorted run, newest first, a bar as long as it is large."""

from collections.abc import Sequence

from rich.text import Text

from lsm_engine import BucketTree, TreeRun, format_bytes
from lsm_engine.cli.output import counted
from lsm_engine.cli.safe_text import neutral

BAR_CELLS = 36
RUNS_MAX = 24
_EIGHTHS = " ▏▎▍▌▋▊▉█"
_COLOURS = ("yellow", "bright_green", "green", "cyan", "bright_blue", "blue")


def bar(size: int, largest: int, cells: int = BAR_CELLS) -> str:
    """Return a bar whose length is to `cells` as `size` is to `largest`; never quite nothing."""
    eighths = max(1, round(8 * cells * size / max(largest, 1)))
    return "█" * (eighths // 8) + _EIGHTHS[eighths % 8].strip()


def draw_tree(tree: BucketTree, largest: int) -> Text:
    """Draw one bucket. `largest`: bytes of the longest bar, so that buckets compare."""
    partition = f"{tree.partition}  " if tree.partition else ""
    text = Text()
    text.append(f"{neutral(partition)}bucket {tree.bucket}", style="bold")
    text.append(
        f"  {counted(len(tree.runs), 'sorted run')}, {format_bytes(tree.size_bytes)}, "
        f"{counted(tree.row_count, 'row')}\n"
    )
    shown = (
        tree.runs if len(tree.runs) <= RUNS_MAX else (*tree.runs[: RUNS_MAX - 4], *tree.runs[-3:])
    )
    for position, run in enumerate(shown):
        if len(shown) < len(tree.runs) and position == RUNS_MAX - 4:
            text.append(f"  …   {counted(len(tree.runs) - len(shown), 'more run')}\n", style="dim")
        _draw_run(text, run, largest)
    return text


def _draw_run(text: Text, run: TreeRun, largest: int) -> None:
    colour = _COLOURS[min(run.level, len(_COLOURS) - 1)]
    text.append(f"  L{run.level:<2}")
    text.append(f" {bar(run.size_bytes, largest):<{BAR_CELLS}}", style=colour)
    text.append(
        f" {format_bytes(run.size_bytes):>8}  {run.row_count:>12,} {'row' if run.row_count == 1 else 'rows'}"
    )
    facts = []
    if run.file_count > 1:
        facts.append(counted(run.file_count, "file"))
    if run.delete_row_count:
        facts.append(f"{counted(run.delete_row_count, 'delete')}")
    if facts:
        text.append(f"  {', '.join(facts)}", style="dim")
    text.append("\n")


def largest_run(trees: Sequence[BucketTree]) -> int:
    """Return the bytes of the largest run of all."""
    return max((run.size_bytes for tree in trees for run in tree.runs), default=1)
