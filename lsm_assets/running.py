"""Run a process, until it ends or Ctrl-C, together with a companion process."""

import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress


def run_with_companion(
    command: Sequence[str], companion_command: Sequence[str], environment: Mapping[str, str]
) -> int:
    """Run a command and return its exit code. A companion process runs as long. SIGTERM ends both cleanly.

    Args:
        command: The command.
        companion_command: The command of the companion process.
        environment: Environment of both processes.
    """
    # Children inherit ignored signals. The companion is ended by SIGTERM, so that it must not be ignored here.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    companion = subprocess.Popen(companion_command, env=environment)
    # A background job of a shell ignores SIGINT. The process is ended by SIGINT, and must not inherit that.
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
