#!/usr/bin/env bash
# Sets up a virtual environment beside this file and passes the tests in it, in two processes. Arguments go to pytest instead.
set -euo pipefail
cd "$(dirname "$0")"
python="${PYTHON:-python3}"
[ -x .venv/bin/python ] || "$python" -m venv .venv
.venv/bin/python -m pip install --quiet --disable-pip-version-check --use-pep517 -e '.[dev]'
[ "$#" -gt 0 ] || set -- -n 2 --dist loadgroup --no-loadscope-reorder
exec .venv/bin/python -m pytest "$@"
