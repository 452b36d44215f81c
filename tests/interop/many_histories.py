"""Very many histories in turns with Java: `python -m tests.interop.many_histories`.

One JVM of each release writes the tables beside us. A failure is shown with its seed, to be repeated with
`--seed SEED --histories 1`; the others go on.
"""

import argparse
import contextlib
import random
import sys
import tempfile
import traceback
from collections import Counter
from pathlib import Path

from tqdm import tqdm

from tests.interop.newest_histories import ENGINES, History
from tests.interop.newest_java import BUNDLES, NewestJava


def run(seed: int, folder: Path, javas: list[NewestJava]) -> Counter[str]:
    """Run one history; how often each act ran, by whom. AssertionError where the two differ."""
    draw = random.Random(f"history {seed}")
    history = History.begin(folder, javas[0], draw, [*ENGINES][seed % len(ENGINES)])
    for _ in range(draw.randint(6, 14)):
        # Each act has one of the releases as its other side.
        history.java = draw.choice(javas)
        history.act()
        history.check()
    for history.java in javas:
        history.check_past()
    return Counter(" ".join(entry) for entry in history.log if isinstance(entry, tuple))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--histories", type=int, default=500, help="default 500")
    parser.add_argument("--seed", type=int, default=0, help="the first one")
    parser.add_argument("--releases", default=",".join(BUNDLES), help="default: all")
    asked = parser.parse_args()
    acts: Counter[str] = Counter()
    failures = []
    with contextlib.ExitStack() as stack:
        javas = [stack.enter_context(NewestJava(name)) for name in asked.releases.split(",")]
        for seed in tqdm(range(asked.seed, asked.seed + asked.histories), mininterval=30):
            with tempfile.TemporaryDirectory() as folder:
                try:
                    acts += run(seed, Path(folder) / "t", javas)
                except Exception:  # noqa: BLE001 - whatever goes wrong is what is looked for
                    failures.append(seed)
                    tqdm.write(f"{traceback.format_exc()}\nFAILED: seed {seed}")
    for name, count in sorted(acts.items()):
        print(f"{count:6,} x {name}")
    print(f"{asked.histories:,} histories with {asked.releases}, failures {failures or 'none'}")
    if failures:
        sys.exit(1)


if __name__ == "__main__":
    main()
