"""The newest releases of Java Paimon beside 0.9.0: their jars by Maven, and a process that answers JSON lines."""

import contextlib
import hashlib
import json
import os
import shutil
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.interop.environments import HERE, EnvironmentFailedError, made_once, maven_jars, run

VERSION = "1.4.2"
"""The release that is asked unless another one is named."""
BUNDLES = {
    "1.4.2": "org.apache.paimon:paimon-bundle:1.4.2",
    # Maven Central has no bundle of 2.0.0. The jar for Flink holds all of it.
    "2.0.0": "org.apache.paimon:paimon-flink-2.0:2.0.0",
}
TIMES = int(os.environ.get("LSM_NEWEST_JAVA", "1"))
"""How much of everything is asked of each release; 80 makes 10,000 cases of each kind."""
CASES = 125 * TIMES
SOURCES = tuple(
    HERE / f"{name}.java"
    for name in (
        "PaimonCases", "PaimonValues", "PaimonShapes", "PaimonFiles", "PaimonTables", "PaimonRacer",
        "RowIdCases",
    )
)  # fmt: skip
LIBRARIES = (
    "org.apache.hadoop:hadoop-client-api:3.5.0",
    "org.apache.hadoop:hadoop-client-runtime:3.5.0",
    "org.slf4j:slf4j-api:2.0.17",
    "org.slf4j:jcl-over-slf4j:2.0.17",
    "org.xerial:sqlite-jdbc:3.50.3.0",
    "at.yawk.lz4:lz4-java:1.10.4",
)
_FLAGS = (
    "-Xmx1g", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Duser.timezone=UTC",
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
)  # fmt: skip


def why_not(release: str = VERSION) -> str | None:
    """Why this machine cannot run it, or None; fetches the jars the first time."""
    for tool in ("mvn", "javac", "java"):
        if shutil.which(tool) is None:
            return f"{tool} is not on this machine"
    try:
        classes(release)
    except EnvironmentFailedError as failed:
        return f"Maven could not fetch Paimon {release}: {failed}"
    return None


def jars(release: str = VERSION) -> list[Path]:
    """The jars of a release, fetched once."""
    bundle = maven_jars(f"java-{release}-bundle", (BUNDLES[release],), alone=True)
    return [*bundle, *maven_jars("java-newest-libraries", LIBRARIES)]


def classes(release: str = VERSION) -> Path:
    """Our harness, compiled against the jars."""
    paths = os.pathsep.join(map(str, jars(release)))
    sources = (*SOURCES, HERE / f"PaimonRelease{release[0]}.java")
    digest = hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()
    return made_once(
        f"java-{release}-classes",
        {"source": digest, "artifacts": [BUNDLES[release], *LIBRARIES]},
        lambda folder: (
            run("javac", "-nowarn", "-cp", paths, "-d", str(folder), *map(str, sources)) and None
        ),
    )


def command(main: str, *arguments: str, release: str = VERSION) -> list[str]:
    """The command line of one of our Java classes."""
    paths = os.pathsep.join(map(str, (classes(release), *jars(release))))
    return ["java", *_FLAGS, "-cp", paths, main, *arguments]


class NewestJava:
    """One JVM; every call is a line out and a line in. Failures of Java are AssertionErrors."""

    def __init__(self, release: str = VERSION) -> None:
        self.release = release
        self._process = subprocess.Popen(
            command("PaimonCases", release=release),
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        )  # fmt: skip

    @property
    def cpu_seconds(self) -> float:
        """What the JVM has spent so far, all of its threads."""
        spent = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(spent[11]) + int(spent[12])) / os.sysconf("SC_CLK_TCK")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process.wait(timeout=30)

    def ask(self, op: str, **facts: Any) -> Any:
        """Answer of one operation that PaimonCases.java lists."""
        answer = self.ask_raw(op, **facts)
        assert "error" not in answer, answer
        return answer["answer"]

    def ask_each(self, op: str, cases: list[dict[str, Any]]) -> list[Any]:
        """Answers to many cases of one operation, in one line out and one in."""
        answers: list[Any] = self.ask(op, cases=cases)
        return answers

    def ask_raw(self, op: str, **facts: Any) -> dict[str, Any]:
        """The same, with the failure instead of an answer where Java fails."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"op": op, **facts}) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, "the JVM has ended"
        found: dict[str, Any] = json.loads(line)
        return found
