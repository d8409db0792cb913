"""`python -m escrowmq` is `escrowmq`."""

from __future__ import annotations

import sys

from escrowmq.cli import main

if __name__ == "__main__":
    sys.exit(main())
