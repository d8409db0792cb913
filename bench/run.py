"""`python bench/run.py` starts the benchmark, as `make bench` does."""

import sys
from pathlib import Path

if __name__ == "__main__":
    # Add the parent folder, so that the modules of the benchmark have the same names wherever they are imported.
    sys.path[0] = str(Path(__file__).resolve().parent.parent)
    from bench.command import main

    main(prog_name="bench/run.py")
