"""A clock that is told the time, and ids that count."""

import threading


class ManualClock:
    """Stands still until it is moved, or slept on."""

    def __init__(self, now_millis: int = 1_700_000_000_000) -> None:
        self.millis = now_millis
        self.slept: list[int] = []

    def now_millis(self) -> int:
        return self.millis

    def local_time(self) -> tuple[int, int, int, int, int, int, int]:
        return (2024, 2, 29, 12, 34, 56, 789_000_000)

    def sleep_millis(self, millis: int) -> None:
        self.slept.append(millis)
        self.millis += max(millis, 0)

    def advance(self, millis: int) -> None:
        self.millis += millis


class NumberedIds:
    """Ids that look like UUIDs and count from 1; no chance at all."""

    def __init__(self, first: int = 1, fraction: float = 0.5) -> None:
        self._next = first
        self._fraction = fraction
        self._lock = threading.Lock()

    def new_id(self) -> str:
        with self._lock:
            number = self._next
            self._next += 1
        return f"00000000-0000-4000-8000-{number:012d}"

    def fraction(self) -> float:
        return self._fraction
