#!/bin/sh
# run.sh HEDDLE VENV: the package's test with PyTorch from PyPI, which is installed into the folder VENV unless it is there.
# With CUDA's libraries, which PyTorch brings, that is 6 GB.
set -eu
heddle=$(realpath "$1")
venv=$(realpath -m "$2")
cd "$(dirname "$0")/../../.."
[ -x "$venv/bin/python" ] || python3 -m venv "$venv"
"$venv/bin/python" -m pip install --quiet --requirement adapters/pytorch/test/requirements.txt
PYTHONDONTWRITEBYTECODE=1 "$venv/bin/python" adapters/pytorch/test/test_apply.py "$heddle"
