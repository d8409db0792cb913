"""`python -m escrowmq.demo`."""

from escrowmq.demo.command import command

if __name__ == "__main__":
    command(prog_name="python -m escrowmq.demo")
