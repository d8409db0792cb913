"""`python -m escrowmq.demo`."""

import sys

if __name__ == "__main__":
    try:
        from escrowmq.demo.command import command
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("escrowmq"):
            raise
        sys.exit(f"the demonstration needs the package {error.name}; `make run` installs everything that it needs")
    command(prog_name="python -m escrowmq.demo")
