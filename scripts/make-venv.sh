#!/usr/bin/env bash
# Make an environment from a lock, or find the one made earlier from the same lock.
# Usage: scripts/make-venv.sh PYTHON LOCK LINK
# Environments are kept by the hash of their lock, so that a fresh clone need not make them anew; LINK points there.
set -euo pipefail

python=$1
lock=$2
link=$3
name=$(basename "$lock" .txt)
version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
hash=$(cat "$lock" "$0" | sha256sum | cut -c1-16)
folder=${XDG_CACHE_HOME:-$HOME/.cache}/agentr1/venvs/$name-py$version-$hash

if [ ! -e "$folder/.complete" ]; then
    echo "Making the environment of $name in $folder; this takes some minutes." >&2
    rm -rf "$folder"
    "$python" -m venv "$folder"
    if grep -q '^torch==' "$lock"; then
        "$(dirname "$0")/install-torch.sh" "$folder/bin/python" "$lock"
    fi
    "$folder/bin/python" -m pip install --quiet --no-compile --no-deps --requirement "$lock"
    touch "$folder/.complete"
fi
mkdir -p "$(dirname "$link")"
ln -sfn "$folder" "$link"
