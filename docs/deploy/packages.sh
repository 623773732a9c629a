#!/bin/sh
# packages.sh [FOLDER [BEAMLIKE]]: makes the files that a cluster needs in addition to Spark, in FOLDER (by default, packages).
#   beamlike.zip        the code, for --py-files
#   environment.tar.gz  the packages that it uses, for --archives; made again only if its requirements have changed
# BEAMLIKE is an argument of pip: "beamlike==0.1.0" or a source tree, by default the newest version.
# The Python ($PYTHON, by default python3) must be at the same place on the workers: the environment links to it.
set -eu
folder=${1:-packages}
beamlike=${2:-beamlike}
mkdir -p "$folder"
cd "$folder"
[ -x environment/bin/python ] || "${PYTHON:-python3}" -m venv environment
python=environment/bin/python
install="$python -m pip --disable-pip-version-check --quiet install"

rm -rf code beamlike.zip
$install --no-deps --no-compile --target code "$beamlike"
$python -m compileall -q -b -s code code # beside the sources, where Python looks in a zip file
(cd code && "../$python" -m zipfile -c ../beamlike.zip beamlike stages windowing beamlike-*.dist-info)

# The extra `cluster` is what Spark's Python code needs; that code itself is in the Spark of the workers.
PYTHONPATH=code $python -c '
from importlib.metadata import requires
found = [one.partition("; extra ==") for one in requires("beamlike")]
print(*(name for name, _, extra in found if not extra or "cluster" in extra), sep="\n")
' > requirements.new
if [ -f environment.tar.gz ] && cmp -s requirements.new requirements.txt; then exit; fi
rm -f environment.tar.gz
$install --requirement requirements.new venv-pack2
environment/bin/venv-pack --quiet --prefix environment --output environment.tar.gz
mv requirements.new requirements.txt
