#!/usr/bin/env bash
# Sets up a virtual environment beside this file and runs the tests in several processes.
#
#   bash test.sh                      the quick tests: no Java, no kills, no Spark
#   bash test.sh --rest               the others
#   bash test.sh --previous           those of them that Apache's release before must pass too
#   bash test.sh --all                everything
#   bash test.sh PYTEST-ARGUMENTS     what pytest makes of the arguments
set -euo pipefail
cd "$(dirname "$0")"

python="${PYTHON:-python3}"
[ -x .venv/bin/python ] || "$python" -m venv .venv
.venv/bin/python -m pip install --quiet --disable-pip-version-check --use-pep517 -e '.[dev]'

# Which tests carry these marks: tests/conftest.py.
rest="interop or spark or kill or slow"
parallel=(--dist loadgroup --no-loadscope-reorder)

case "${1-}" in
    "")
        .venv/bin/python -m pytest -n 2 "${parallel[@]}" -m "not ($rest)"
        echo "These were the quick tests. The others need Java, kill processes or run Spark:" \
            "bash test.sh --rest; everything: bash test.sh --all"
        ;;
    --rest)
        shift
        # One more than there are cores where there are two: these tests mostly wait.
        exec .venv/bin/python -m pytest -n 3 "${parallel[@]}" -m "$rest" "$@"
        ;;
    --previous)
        shift
        export ROCKETMQ_APACHE_RELEASE=previous
        exec .venv/bin/python -m pytest -n 3 "${parallel[@]}" -m "both_releases" "$@"
        ;;
    --all)
        shift
        .venv/bin/python -m pytest -n 3 "${parallel[@]}" "$@"
        exec bash test.sh --previous "$@"
        ;;
    *)
        exec .venv/bin/python -m pytest "$@"
        ;;
esac
