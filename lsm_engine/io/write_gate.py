"""A sink that can be shut: PyArrow's writers write a footer even when they are thrown away."""

from typing import Any


class WriteGate:
    """Passes writes on to a sink until it is `shut`, and then drops them. The sink stays open."""

    closed = False  # what PyArrow asks of a file

    def __init__(self, sink: Any) -> None:
        self._sink = sink
        self.shut = False

    def write(self, data: Any) -> int:
        """Write, or, when shut, drop the data and return its length."""
        return len(data) if self.shut else int(self._sink.write(data))

    def flush(self) -> None:
        """Flush the sink unless the gate is shut."""
        if not self.shut:
            self._sink.flush()

    def close(self) -> None:
        """The file itself is closed by its owner."""
