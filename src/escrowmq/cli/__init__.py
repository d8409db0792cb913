"""The command line: one file for each group of commands, mounted in `cli.program`."""

from escrowmq.cli.program import main as main
