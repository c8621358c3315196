#!/usr/bin/env bash
# Sets up a virtual environment beside this file and runs the tests in several processes.
#
#   bash test.sh                      the quick tests: no Java, no kills, no Spark
#   bash test.sh --rest               the others, with both releases of Apache's
#   bash test.sh --previous           those that Apache's release before must pass too
#   bash test.sh --all                everything
#   bash test.sh --compiled ARGUMENTS pytest with these arguments on compiled modules
#   bash test.sh PYTEST-ARGUMENTS     what pytest makes of the arguments
set -euo pipefail
cd "$(dirname "$0")"

python="${PYTHON:-python3}"
[ -x .venv/bin/python ] || "$python" -m venv .venv
# What is installed follows from pyproject.toml: while that stays as it is, so does the environment,
# unless somebody has installed a copy of the package since: it would be tested instead of the tree.
copied() { compgen -G ".venv/lib/python*/site-packages/rocketmq_sdk/__init__.py" > /dev/null; }
if copied || ! cmp -s pyproject.toml .venv/installed-for.toml; then
    # Modules are compiled when they are first imported: most of what is installed never is.
    .venv/bin/python -m pip install --quiet --disable-pip-version-check --no-compile \
        --use-pep517 -e '.[dev]'
    cp pyproject.toml .venv/installed-for.toml
fi

# The tests start hundreds of interpreters: without compiled modules each compiles them anew,
# about a seventh of the processor time of the quick tests.
unset PYTHONDONTWRITEBYTECODE

# Which tests carry these marks: tests/conftest.py.
rest="interop or spark or kill or slow"

# `run NAME ARGUMENTS`: what fails is run once more, alone: a test of sockets, kills or Java can
# fail because the machine stood still. What fails again fails; what does not is named.
run() {
    local notes=.pytest_cache/$1 failed=0 name again=()
    shift
    .venv/bin/python -m pytest -o cache_dir="$notes" --cache-clear --dist loadgroup \
        --no-loadscope-reorder "$@" || failed=$?
    [ "$failed" = 1 ] || return "$failed"
    while IFS= read -r name; do
        again+=("$name")
    done < <(.venv/bin/python tests/tools/failed_tests.py "$notes")
    [ "${#again[@]}" -gt 0 ] || return 1
    echo "Once more, alone:"
    .venv/bin/python -m pytest -p no:cacheprovider -n 0 "${again[@]}" || return 1
    printf 'Failed once and passed alone: %s\n' "${again[@]}"
}
previous() { ROCKETMQ_APACHE_RELEASE=previous run previous "$@" -m "both_releases"; }

# Both wait for Java most of the time, so they run side by side, with more processes than
# there are cores where there are two.
both() {
    local failed=0
    said=$(mktemp)
    previous -n 2 "$@" > "$said" 2>&1 &
    beside=$!
    trap 'kill "$beside" 2> /dev/null || true; rm -f "$said"' EXIT
    run rest -n 4 -m "$rest" "$@" || failed=$?
    wait "$beside" || failed=$?
    echo "With the release of Apache's before:"
    cat "$said"
    return "$failed"
}

case "${1-}" in
    "")
        run quick -n 4 -m "not ($rest)"
        echo "These were the quick tests. The others need Java, kill processes or run Spark:" \
            "bash test.sh --rest; everything: bash test.sh --all"
        ;;
    --rest)
        shift
        both "$@"
        ;;
    --compiled)
        shift
        cd tests
        exec ../.venv/bin/python -m tools.compiled -m pytest "$@"
        ;;
    --previous)
        shift
        previous -n 3 "$@"
        ;;
    --all)
        shift
        run quick -n 4 -m "not ($rest)" "$@"
        both "$@"
        ;;
    *)
        exec .venv/bin/python -m pytest "$@"
        ;;
esac
