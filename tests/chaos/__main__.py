"""`python -m tests.chaos`: one chaos run; prints its figures as a JSON line. Exit status 1: a promise was broken."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from hub.embedded.processes import ChildFailed
from tests.chaos.run import run


def main() -> int:
    """Read the options and run."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--seconds", type=float, default=120.0, help="how long the fire lasts (%(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="what the blows and the jobs follow from (%(default)s)")
    parser.add_argument("--logs", type=Path, metavar="DIRECTORY", help="copy the logs of all processes there")
    options = parser.parse_args()
    if not 10 <= options.seconds <= 3600:
        parser.error("--seconds must be from 10 to 3600")
    try:
        report = run(options.seed, options.seconds, logs=options.logs)
    except (AssertionError, ChildFailed) as broken:
        sys.stdout.write(json.dumps({"seed": options.seed, "seconds": options.seconds, "broken": str(broken)}) + "\n")
        return 1
    sys.stdout.write(json.dumps(report) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
