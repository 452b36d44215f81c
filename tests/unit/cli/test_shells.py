"""Completion in bash, zsh and fish themselves: names of tables, tags and columns."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.promised import missing

pytestmark = pytest.mark.slow

TYPED = ("lsm scan shop.", "lsm scan shop.orders --tag mon", "lsm scan shop.orders --columns pr",
         "lsm tag delete shop.orders mo", "lsm branch delete shop.orders fi",
         "lsm consumer reset shop.orders e")  # fmt: skip
COMPLETED = ["shop.orders", "monday", "price", "monday", "fix", "etl"]

BASH = """
eval "$(_LSM_COMPLETE=bash_source lsm)"
complete -p lsm > /dev/null
for line in "$@"; do
  COMP_WORDS=($line) COMP_CWORD=$((${#COMP_WORDS[@]} - 1)) COMPREPLY=()
  _lsm_completion lsm
  printf '%s\\n' "${COMPREPLY[@]}"
done
"""
ZSH = """
compdef() { }
compadd() { print -l -- $completions }
_describe() { print -l -- $completions_with_descriptions }
eval "$(_LSM_COMPLETE=zsh_source lsm)"
for line in "$@"; do
  words=(${=line}) CURRENT=${#words}
  _lsm_completion
done
"""
FISH = """
_LSM_COMPLETE=fish_source lsm | source
for line in $argv
  complete -C $line
end
"""


@pytest.mark.parametrize(
    ("shell_name", "words"),
    [
        ("bash", ["-c", BASH, "-"]),
        ("zsh", ["-fc", ZSH, "-"]),
        ("fish", ["--no-config", "-c", FISH]),
    ],
)
def test_a_shell_completes_tables_tags_and_columns(shop, tmp_path: Path, shell_name, words) -> None:
    program = shutil.which(shell_name) or missing(shell_name, f"needs {shell_name}")
    shop("tag", "create", "shop.orders", "monday")
    shop("branch", "create", "shop.orders", "fix")
    shop("consumer", "reset", "shop.orders", "etl", "--next", "1")
    command = tmp_path / "bin" / "lsm"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m lsm_engine.cli.main "$@"\n')
    command.chmod(0o755)
    done = subprocess.run(
        [program, *words, *TYPED], capture_output=True, text=True, check=False, timeout=120,
        env=os.environ | {
            "PATH": f"{command.parent}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": str(Path(__file__).parents[3]),
            "LSM_WAREHOUSE": str(shop.warehouse), "HOME": str(tmp_path),
        },
    )  # fmt: skip
    assert done.stdout.splitlines() == COMPLETED, done.stderr
