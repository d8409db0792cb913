"""The one error of the load tool."""


class PerfError(Exception):
    """What ended a run: one line, to be shown to the user as it is."""
