"""The lineage page: one file beside the tables that draws where everything came from."""

from pathlib import Path

import dagster as dg

from lsm_assets.resources import LsmResource
from lsm_assets.settings import LINEAGE_PAGE, lineage_page_url
from lsm_engine import lineage_page

HOURLY = "10 * * * *"
JOB = "lsm_lineage_page"


def write_lineage_page(lsm: LsmResource) -> Path:
    """Draw the lineage of all tables into the warehouse, in place of the page that was there."""
    page = Path(lsm.warehouse) / LINEAGE_PAGE
    page.parent.mkdir(parents=True, exist_ok=True)
    new = page.with_name(f".{LINEAGE_PAGE}.new")
    new.write_text(lineage_page(lsm.catalog.lineage), "utf-8")
    new.replace(page)
    return page


def lineage_page_job() -> dg.JobDefinition:
    """Return the job that draws the page anew."""

    @dg.op(name="draw_lineage_page", required_resource_keys={"lsm"})
    def draw(context: dg.OpExecutionContext) -> None:
        page = write_lineage_page(context.resources.lsm)
        context.add_output_metadata(
            {
                "lsm/lineage": dg.MetadataValue.url(lineage_page_url(page.parent)),
                "lsm/page": dg.MetadataValue.path(str(page)),
            }
        )
        context.log.info("drew the lineage page=%s", page)

    @dg.job(name=JOB, description="Draw the lineage of all tables on one page of HTML.")
    def job() -> None:
        draw()

    return job


def lineage_page_schedule(job: dg.JobDefinition) -> dg.ScheduleDefinition:
    """Return the schedule of the page; off until somebody turns it on."""
    return dg.ScheduleDefinition(
        name=f"{JOB}_hourly",
        job=job,
        cron_schedule=HOURLY,
        default_status=dg.DefaultScheduleStatus.STOPPED,
        description="Draw the lineage page every hour.",
    )
