#!/usr/bin/env bash
# Make an environment from a lock, or find the one made earlier from the same lock.
# Usage: scripts/make-venv.sh PYTHON LOCK LINK
# As scripts/make-server-venv.sh, for locks without torch.
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
    "$folder/bin/python" -m pip install --quiet --no-deps --requirement "$lock"
    touch "$folder/.complete"
fi
mkdir -p "$(dirname "$link")"
ln -sfn "$folder" "$link"
