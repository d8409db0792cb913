"""The errors that end a run of the load tool."""


class PerfError(Exception):
    """The reason why a run ended: one line that the user sees unchanged."""


class WrongUsage(PerfError):  # noqa: N818 - named after the user's mistake
    """Options or a URL that make no sense. The tool has not contacted the broker."""
