"""The version of this package, in one place: the distribution's, `lsm --version`, and the writer's name in files."""

VERSION = "1.0.0"
WRITER_VERSION = f"lsm-engine-{VERSION}"
