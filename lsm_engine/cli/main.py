"""The command `lsm`: its verbs, by what people want to do."""

import os
import platform
import sys

import click
import pyarrow as pa

from lsm_engine import SNAPSHOT_VERSION, __version__
from lsm_engine.cli.call import Call, pass_call
from lsm_engine.cli.commands import catalog, history, keys, look, maintain, mend, read, write
from lsm_engine.cli.commands.alter import alter
from lsm_engine.cli.commands.cache import cache
from lsm_engine.cli.commands.changes import changelog
from lsm_engine.cli.commands.doctor import doctor
from lsm_engine.cli.commands.explain import explain
from lsm_engine.cli.commands.forget import forget
from lsm_engine.cli.commands.lineage import lineage
from lsm_engine.cli.commands.origins import VERBS as ORIGIN_VERBS
from lsm_engine.cli.commands.system import system
from lsm_engine.cli.failures import INTERRUPTED
from lsm_engine.cli.verb import Lsm, Verb


@click.group(cls=Lsm)
@click.version_option(__version__, prog_name="lsm")
def lsm() -> None:
    """Upsertable lake tables in the Apache Paimon format, from a shell.

    TABLE is a name in the catalog (shop.orders), or the path of any Paimon table directory, which
    needs no catalog: lsm snapshots lake/shop.db/orders. Start with: lsm create --help.
    """


@click.command(cls=Verb, examples=["lsm version", "lsm version --json"])
@pass_call
def version(call: Call) -> None:
    """Print the version of lsm and of what it runs on."""
    facts = {
        "lsm": __version__,
        "snapshot_format": SNAPSHOT_VERSION,
        "pyarrow": pa.__version__,
        "python": platform.python_version(),
    }
    call.out.facts(facts)


for _verb in ORIGIN_VERBS:
    lineage.add_command(_verb)
lineage.former["rebuild"] = catalog.rebuild

lsm.add(
    "Tables",
    [catalog.databases, catalog.tables, catalog.create, alter, catalog.rename, catalog.drop],
)
lsm.add(
    "Rows",
    [
        read.scan,
        read.count,
        changelog,
        keys.lookup,
        keys.locate,
        explain,
        write.upsert,
        write.append,
        write.ingest,
        keys.insert,
        keys.update,
        write.delete,
        write.overwrite,
        write.update_columns,
    ],
)
lsm.add(
    "Insides",
    [
        look.schema,
        look.options,
        look.tree,
        look.snapshots,
        look.snapshot,
        look.manifest_lists,
        look.manifests,
        look.files,
        system,
    ],
)
lsm.add(
    "Upkeep",
    [
        doctor,
        look.pressure,
        look.amplification,
        maintain.compact,
        maintain.rescale,
        maintain.tag,
        history.branch,
        history.rollback,
        maintain.expire,
        mend.expire_partitions,
        mend.orphans,
        history.consumer,
        mend.repair,
        mend.trash,
        forget,
        look.verify,
        cache,
        lineage,
        catalog.names,
    ],
)
lsm.add("About", [version])


def main() -> None:
    """Run the command line of this process."""
    try:
        lsm.main(sys.argv[1:])
    except SystemExit as done:
        if done.code != INTERRUPTED:
            raise
        # A thread may still wait for input that never comes; an orderly exit would wait with it, or
        # abort when it wakes up. Everything is closed, and all output is written.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(INTERRUPTED)


if __name__ == "__main__":
    main()
