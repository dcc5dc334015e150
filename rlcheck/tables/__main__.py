"""``python -m rlcheck.tables NAME [options]``."""

from __future__ import annotations

import sys

from rlcheck.errors import RlcheckError
from rlcheck.tables import names, run


def main(arguments: list[str]) -> int:
    """Print the table named first; the rest are its options. The exit status: 2 for a wrong name or option."""
    if not arguments or arguments[0] in ("-h", "--help"):
        print(f"usage: python -m rlcheck.tables NAME [options]\ntables: {', '.join(names())}")
        return 0 if arguments else 2
    try:
        run(arguments[0], arguments[1:])
    except RlcheckError as error:
        print(f"rlcheck: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
