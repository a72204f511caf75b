#!/usr/bin/env bash
# Install the PyTorch build that suits this machine: CUDA where a GPU answers, CPU elsewhere.
# Usage: scripts/install-torch.sh PYTHON CONSTRAINTS
# On Linux the default build on PyPI brings gigabytes of CUDA libraries, so a machine without a GPU looks for the CPU
# build first: wherever its pip is set up to look, then on PyTorch's own index.
set -euo pipefail

python=$1
constraints=$2
version=$(sed -n 's/^torch==//p' "$constraints")

install() {
    "$python" -m pip install --quiet --no-compile --constraint "$constraints" "$@"
}

if nvidia-smi >/dev/null 2>&1 || [ "$(uname -s)" = Darwin ]; then
    install "torch==$version"
elif install "torch==$version+cpu" 2>/dev/null; then
    :
elif install --timeout 15 --retries 1 --index-url https://download.pytorch.org/whl/cpu "torch==$version+cpu"; then
    :
else
    echo "No CPU build of torch $version was found; taking the default one, which is large." >&2
    install "torch==$version"
fi
