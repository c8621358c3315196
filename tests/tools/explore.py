"""The property tests with examples that no run has drawn before:
`python -m tools.explore [--rounds N] [--seed SEED] [pytest arguments]`, in the
directory `tests`.

Each round runs them all with a seed of its own. Exit code 0 when all rounds passed;
otherwise the command that repeats each failed round is printed.
"""

from __future__ import annotations

import argparse
import random
import shlex
import subprocess
import sys

from support.paths import ROOT


def command(seed: int, arguments: list[str]) -> list[str]:
    """The pytest command of one round, to be run in the root of the repository."""
    return [
        sys.executable,
        "-m",
        "pytest",
        "-m",
        "hypothesis and not (interop or kill)",
        "--hypothesis-profile=explore",
        f"--hypothesis-seed={seed}",
        *arguments,
    ]


def main() -> int:
    """Run the rounds one after another."""
    parser = argparse.ArgumentParser(
        description="Run the property tests with new examples; other arguments go to pytest."
    )
    parser.add_argument("--rounds", type=int, default=5, help="default: 5")
    parser.add_argument("--seed", type=int, help="of the first round; default: by chance")
    options, arguments = parser.parse_known_args()
    first = random.SystemRandom().randrange(1 << 32) if options.seed is None else options.seed
    failed = []
    for seed in range(first, first + options.rounds):
        print(f"seed {seed}", flush=True)
        if subprocess.run(command(seed, ["-q", *arguments]), cwd=ROOT, check=False).returncode:
            failed.append(seed)
    print(f"{options.rounds} rounds from seed {first}, {len(failed)} failed")
    for seed in failed:
        print(f"again: cd {shlex.quote(str(ROOT))} && {shlex.join(command(seed, arguments))}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
