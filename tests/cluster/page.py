"""What docs/spark-clusters.md tells people to run on a standalone cluster."""

import re
from pathlib import Path

import lsm_engine

PAGE = Path(lsm_engine.__file__).parent / "docs" / "spark-clusters.md"


def block(language: str) -> str:
    """The section's block in a language; it has one of each."""
    _, _, rest = PAGE.read_text("utf-8").partition("\n## Standalone\n")
    section = rest.partition("\n## ")[0]
    (found,) = re.findall(rf"```{language}\n(.*?)```", section, re.DOTALL)
    return str(found)


def command(daemon: str) -> str:
    """The line that starts a daemon, Master or Worker."""
    (line,) = [line for line in block("sh").splitlines() if f".{daemon} " in line]
    return line
