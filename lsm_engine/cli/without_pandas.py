"""A process without pandas, for one whose work needs none of it.

PyArrow loads pandas, where it is installed, for the first array made of a list: 0.15 s of CPU and 45 MB.
"""

import sys


class _Absent:
    @staticmethod
    def find_spec(name: str, *_: object) -> None:
        """Say that there is no pandas."""
        if name == "pandas":
            raise ModuleNotFoundError("this process does not load pandas", name=name)


def load_no_pandas() -> None:
    """Have every import of pandas fail in this process, as where it is not installed."""
    sys.meta_path.insert(0, _Absent)
