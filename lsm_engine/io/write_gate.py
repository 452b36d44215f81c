"""A sink that can be shut: PyArrow's writers write a footer even when they are thrown away."""

from typing import Any


class WriteGate:
    """Passes writes on to a sink until it is `shut`; then they vanish. The sink stays open."""

    closed = False  # what PyArrow asks of a file

    def __init__(self, sink: Any) -> None:
        self._sink = sink
        self.shut = False

    def write(self, data: Any) -> int:
        """Write, or pretend to."""
        return len(data) if self.shut else int(self._sink.write(data))

    def flush(self) -> None:
        """Flush what is still wanted."""
        if not self.shut:
            self._sink.flush()

    def close(self) -> None:
        """The file itself is closed by its owner."""
