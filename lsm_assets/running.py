"""Run one process until it ends or Ctrl-C, with another beside it that ends with it."""

import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress


def run_with_companion(
    command: Sequence[str], companion_command: Sequence[str], environment: Mapping[str, str]
) -> int:
    """Run `command` and return its exit code; `beside` runs as long. SIGTERM ends both in good order."""
    # Where SIGINT is ignored, Dagster has SIGTERM ignored too: by it the companion is ended.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    companion = subprocess.Popen(companion_command, env=environment)
    # A shell's background job ignores SIGINT, and would hand that on: by it the process is ended.
    interrupted = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        process = subprocess.Popen(command, env=environment)
        signal.signal(signal.SIGINT, interrupted)
        signal.signal(signal.SIGTERM, lambda number, frame: process.send_signal(signal.SIGINT))
        while process.poll() is None:
            with suppress(
                KeyboardInterrupt
            ):  # the process hears it as well, and ends in its own time
                process.wait()
        return process.returncode
    finally:
        companion.terminate()
        companion.wait(timeout=30)
