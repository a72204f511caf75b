#!/usr/bin/env bash
# Lay an environment of this clone over one that is shared by its lock: everything of BASE, and the projects editable.
# Usage: scripts/layer-venv.sh BASE TARGET PROJECT...
set -euo pipefail

base=$1
target=$2
shift 2
rm -rf "$target"
"$base/bin/python" -m venv --without-pip "$target"
site=$("$target/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
"$base/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))' > "$site/base.pth"
editable=()
for project in "$@"; do editable+=(--editable "$project"); done
"$base/bin/python" -m pip --python "$target/bin/python" install --quiet --disable-pip-version-check --no-deps \
    --no-build-isolation --no-compile "${editable[@]}"
