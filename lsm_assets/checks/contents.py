"""The check `contents` of the asset `snapshots`: data files, read page by page, have the rows that were written."""

from collections.abc import Sequence

import dagster as dg

import lsm_engine as lsm
from lsm_assets.model.declaration import TableDeclaration
from lsm_assets.model.keys import AssetKind
from lsm_assets.model.markdown import escape_html, markdown_table
from lsm_assets.model.metadata import Metadata
from lsm_assets.resources import LsmResource
from lsm_engine import DamagedFile, VerifyReport

CONTENTS = "contents"


def contents_spec(declaration: TableDeclaration) -> dg.AssetCheckSpec:
    """Return the spec of the check. Materialising a snapshot and the verify job evaluate it."""
    return dg.AssetCheckSpec(
        name=CONTENTS,
        asset=declaration.keys.asset(AssetKind.SNAPSHOTS),
        description="Checksums, pages, key order and counts of every data file are as written.",
    )


def scrub(
    resource: LsmResource, table: lsm.Table, snapshot_id: int | None, *, incremental: bool
) -> VerifyReport:
    """Read every page of every data file, with the resource's executor.

    Args:
        resource: The resource, for its executor.
        table: The table.
        snapshot_id: The snapshot whose files are read; None for all snapshots and tags.
        incremental: Skip files that an earlier run has read and that have not changed since.
    """
    if resource.executor != "spark":
        return table.verify(snapshot_id=snapshot_id, deep=True, incremental=incremental)
    from lsm_engine.spark import verify_table  # noqa: PLC0415 -- PySpark takes a second to import

    return verify_table(table, resource.spark, snapshot_id=snapshot_id, incremental=incremental)


def contents_evaluation(
    declaration: TableDeclaration, report: VerifyReport
) -> dg.AssetCheckEvaluation:
    """Return the evaluation of the check for a report."""
    return dg.AssetCheckEvaluation(
        asset_key=declaration.keys.asset(AssetKind.SNAPSHOTS),
        check_name=CONTENTS,
        passed=report.is_clean,
        description=damage_text(declaration.name, report),
        metadata=damage_metadata(declaration.name, report),
    )


def damage_text(name: str, report: VerifyReport) -> str:
    """Return a sentence with the damaged files, the affected rows and the remedy."""
    if report.is_clean:
        return f"{report.read_count} files read, {report.skipped_count} read before: all as written"
    files = report.damaged_files
    if not files:
        return str(report.problems[0])
    suffix = f", and {len(files) - 1} more files" if len(files) > 1 else ""
    return f"{_file_with_rows(files[0])}: {files[0].problems[0]}{suffix}. {remedy(name, files)}"


def damage_metadata(name: str, report: VerifyReport) -> Metadata:
    """Return metadata with the damaged files, their rows, other sources of these rows, and the remedy."""
    metadata: Metadata = {
        "lsm/files_read": dg.MetadataValue.int(report.read_count),
        "lsm/files_read_before": dg.MetadataValue.int(report.skipped_count),
    }
    if report.damaged_files:
        rows = [
            (_file_name(file), str(file.stake or ""), "; ".join(file.sources) or "nothing")
            for file in report.damaged_files
        ]
        table = markdown_table(["file", "rows", "held by as well"], rows)
        metadata["lsm/damaged"] = dg.MetadataValue.md(table)
        metadata["lsm/remedy"] = dg.MetadataValue.text(remedy(name, report.damaged_files))
    if report.problems:
        metadata["lsm/problems"] = dg.MetadataValue.md(problem_list(report.problems))
    return metadata


def remedy(name: str, files: Sequence[DamagedFile]) -> str:
    """Return the commands that repair damaged files."""
    restored = f"'lsm repair {name} restore' shows what gives their rows back, with --act does it"
    if all(file.sources for file in files):
        return f"{restored}."
    given_up = f"'lsm repair {name} damaged-files' lets go of what nothing else holds"
    return f"{restored}; {given_up}, as long as no backup has the files."


def problem_list(problems: Sequence[str]) -> str:
    """Return a Markdown list of problems that is short enough to be shown inline."""
    shown = [f"- {escape_html(problem[:180])}" for problem in problems[:5]]
    if len(problems) > len(shown):
        shown.append(f"- … {len(problems) - len(shown)} more")
    return "\n".join(shown)


def _file_with_rows(file: DamagedFile) -> str:
    return f"{_file_name(file)} ({file.stake})" if file.stake is not None else _file_name(file)


def _file_name(file: DamagedFile) -> str:
    return file.path.rsplit("/", 1)[-1]
