"""Command line: the sample that ships in the package, or another one."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from privsyn.data.sample import ROWS, SHIPPED
from privsyn.errors import PrivsynError
from tools.portal.messages import DEFAULT_SEED, ship, write_messages


def main(argv: list[str] | None = None) -> int:
    """Write the messages."""
    parser = argparse.ArgumentParser(prog="python -m tools.portal", description=__doc__)
    parser.add_argument("file", type=Path, nargs="?", help=f"JSONL; without it {SHIPPED.name}")
    parser.add_argument("--rows", type=int, default=ROWS, help="messages; with a file alone")
    parser.add_argument("--seed", type=int, default=DEFAULT_SEED, help="with a file alone")
    arguments = parser.parse_args(argv)
    if arguments.file is None and (arguments.rows, arguments.seed) != (ROWS, DEFAULT_SEED):
        parser.error("--rows and --seed need a file: the shipped sample has one size and seed")
    try:
        if arguments.file is None:
            written = ship()
        else:
            written = write_messages(arguments.file, rows=arguments.rows, seed=arguments.seed)
    except PrivsynError as error:
        print(f"tools.portal: {error}", file=sys.stderr)
        return error.exit_code
    print(f"wrote {written.rows} messages of {written.patients} patients to {written.path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
