"""The errors that end a run of the load tool."""


class PerfError(Exception):
    """The reason why a run ended: one line that the user sees unchanged."""


class ClosedByBroker(PerfError):  # noqa: N818 - named after the event
    """The broker closed a channel or the connection, with this reply code."""

    def __init__(self, text: str, code: int) -> None:
        super().__init__(text)
        self.code = code


class RefusedLogin(PerfError):  # noqa: N818 - named after the event
    """The broker refused the user or the password. `reply` is what the protocol has of it."""

    def __init__(self, address: str, user: str, reply: str) -> None:
        super().__init__(
            f"the broker at {address} refused the login of user '{user}' ({reply}): check the user and the password in "
            "--url; the broker's log has the reason"
        )


class WrongUsage(PerfError):  # noqa: N818 - named after the user's mistake
    """Options or a URL that make no sense. The tool has not contacted the broker."""
