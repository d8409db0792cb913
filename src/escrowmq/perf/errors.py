"""What the load tool ends with when it cannot go on."""


class PerfError(Exception):
    """What ended a run: one line, to be shown to the user as it is."""


class WrongUsage(PerfError):  # noqa: N818 - named for what happened
    """Options or a URL that cannot be meant; nothing has been asked of the broker."""
