"""`python -m escrowmq.xa`."""

from __future__ import annotations

import sys

from escrowmq.xa.command import main

sys.exit(main())
