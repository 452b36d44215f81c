"""The command `lsm`: its verbs, by what people want to do."""

import os
import platform
import sys

import click
import pyarrow as pa

from lsm_engine import SNAPSHOT_VERSION, __version__
from lsm_engine.cli.call import Call, pass_call
from lsm_engine.cli.commands import (
    catalog,
    history,
    keys,
    look,
    maintain,
    mend,
    origins,
    read,
    transfer,
    write,
)
from lsm_engine.cli.commands.alter import alter
from lsm_engine.cli.commands.cache import cache
from lsm_engine.cli.commands.changes import changelog
from lsm_engine.cli.commands.doctor import doctor
from lsm_engine.cli.commands.explain import explain
from lsm_engine.cli.commands.forget import forget
from lsm_engine.cli.commands.lineage import lineage
from lsm_engine.cli.commands.system import show, system, verb_of
from lsm_engine.cli.failures import INTERRUPTED
from lsm_engine.cli.ui.command import ui
from lsm_engine.cli.verb import Lsm, Verb


@click.group(cls=Lsm)
@click.version_option(__version__, prog_name="lsm")
def lsm() -> None:
    """Upsertable lake tables in the Apache Paimon format, from a shell.

    TABLE is a name in the catalog (shop.orders), or the path of any Paimon table directory, which
    needs no catalog: lsm show snapshots lake/shop.db/orders. Start with: lsm create --help.
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


_LOOKING: dict[str, click.Command] = {
    **{verb.name or "": verb for verb in look.VERBS},
    **explain.commands,
    "inputs": lineage.commands["snapshot"],
    "life": lineage.commands["file"],
    "row": origins.of_row,
    "tag": origins.of_tag,
    "origin": origins.of_origin,
    "impact": origins.impact,
    "column": origins.of_column,
    "downstream": lineage.commands["downstream"],
    "commits": lineage.commands["recent"],
}
for _name, _verb in _LOOKING.items():
    show.add_command(_verb, _name)
# Names that these had, when each was found in a place of its own.
lineage.former |= {**lineage.commands, **{str(verb.name): verb for verb in origins.VERBS}}
lineage.former["rebuild"] = catalog.rebuild
lineage.commands = {"export": origins.export}
lsm.former |= {str(verb.name): verb for verb in (*look.VERBS, explain, system)}
lsm.former |= {name.replace("_", "-"): verb_of(name) for name in look.VIEWS}
lsm.former["pressure"] = explain.former["debt"] = look.debt

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
        write.upsert,
        write.append,
        write.ingest,
        keys.insert,
        keys.update,
        write.delete,
        write.overwrite,
        transfer.merge,
        transfer.import_,
        transfer.export,
        write.update_columns,
    ],
)
lsm.add("Insides", [show, ui, look.verify, lineage])
lsm.add(
    "Upkeep",
    [
        doctor,
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
        cache,
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
