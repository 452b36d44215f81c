"""The job and the schedule that write the lineage page, an HTML file in the warehouse."""

import dagster as dg

from lsm_assets.settings import lineage_page_url

HOURLY = "10 * * * *"
JOB = "lsm_lineage_page"


def lineage_page_job() -> dg.JobDefinition:
    """Return the job that writes the page."""

    @dg.op(name="draw_lineage_page", required_resource_keys={"lsm"})
    def draw(context: dg.OpExecutionContext) -> None:
        catalog = context.resources.lsm.catalog
        page = catalog.write_lineage_page()
        context.add_output_metadata(
            {
                "lsm/lineage": dg.MetadataValue.url(lineage_page_url(catalog.warehouse)),
                "lsm/page": dg.MetadataValue.path(page),
            }
        )
        context.log.info("drew the lineage page=%s", page)

    @dg.job(name=JOB, description="Draw the lineage of all tables on one page of HTML.")
    def job() -> None:
        draw()

    return job


def lineage_page_schedule(job: dg.JobDefinition) -> dg.ScheduleDefinition:
    """Return the hourly schedule of the job. It starts stopped."""
    return dg.ScheduleDefinition(
        name=f"{JOB}_hourly",
        job=job,
        cron_schedule=HOURLY,
        default_status=dg.DefaultScheduleStatus.STOPPED,
        description="Draw the lineage page every hour.",
    )
