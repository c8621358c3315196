#!/usr/bin/env bash
# Sets up a virtual environment beside this file and runs the tests in two processes.
#
#   bash test.sh                      the quick tests: no Java, no kills, no Spark
#   bash test.sh --rest               the others
#   bash test.sh --all                both
#   bash test.sh PYTEST-ARGUMENTS     what pytest makes of the arguments
set -euo pipefail
cd "$(dirname "$0")"

python="${PYTHON:-python3}"
[ -x .venv/bin/python ] || "$python" -m venv .venv
.venv/bin/python -m pip install --quiet --disable-pip-version-check --use-pep517 -e '.[dev]'

# Which tests carry these marks: tests/conftest.py.
rest="interop or spark or kill or slow"
parallel=(-n 2 --dist loadgroup --no-loadscope-reorder)

case "${1-}" in
    "")
        .venv/bin/python -m pytest "${parallel[@]}" -m "not ($rest)"
        echo "These were the quick tests. The others need Java, kill processes or run Spark:" \
            "bash test.sh --rest; everything: bash test.sh --all"
        ;;
    --rest)
        shift
        exec .venv/bin/python -m pytest "${parallel[@]}" -m "$rest" "$@"
        ;;
    --all)
        shift
        exec .venv/bin/python -m pytest "${parallel[@]}" "$@"
        ;;
    *)
        exec .venv/bin/python -m pytest "$@"
        ;;
esac
