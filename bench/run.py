"""`python bench/run.py`: what `make bench` calls."""

import sys
from pathlib import Path

if __name__ == "__main__":
    # The folder above, so that the modules of the benchmark go by one name wherever they are imported.
    sys.path[0] = str(Path(__file__).resolve().parent.parent)
    from bench.command import main

    main(prog_name="bench/run.py")
