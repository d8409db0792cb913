"""The console over a simulated broker, used as a browser does: with a cookie, and forms from its pages."""

from __future__ import annotations

import re
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from escrowmq.admin.http.app import HttpInterface
from escrowmq.admin.http.kept_lists import KeptLists
from escrowmq.console.app import Console
from escrowmq.evidence.files import BrokerFiles
from tests.harness.server import SimServer
from tests.unit.admin.http.sites import Answer, HttpSite

FORM = "application/x-www-form-urlencoded"


class Browser(HttpSite):
    """A browser that has logged in as `user`. The password of user `u` is `password of u`."""

    def __init__(
        self,
        made: SimServer | None = None,
        user: str = "guest",
        folder: Path = Path("/nonexistent"),
        audits: Path | None = None,
    ) -> None:
        super().__init__(made)
        self.now = 1000.0
        lists = KeptLists(self.broker)
        self.console = Console(self.broker, lists, BrokerFiles(folder, audits), lambda: self.now)
        self.app = HttpInterface(self.broker, lists=lists).app(self.console.routes())
        self.cookie = ""
        access = self.server.broker.access
        if user and user not in access.users:
            access.add_user(user, "hash", ("monitoring",))
        if user:
            self.log_in(user)

    def log_in(self, user: str, password: str | None = None, **headers: str) -> Answer:
        password = f"password of {user}" if password is None else password
        answer = self.send("/console/login", {"user": user, "password": password}, **headers)
        if "set-cookie" in answer.headers:
            self.cookie = answer.headers["set-cookie"].partition(";")[0]
        return answer

    def open(self, path: str, **headers: str) -> Answer:
        """Ask for a page."""
        return self.request("GET", path, headers | ({"cookie": self.cookie} if self.cookie else {}))

    def send(self, path: str, form: dict[str, str], **headers: str) -> Answer:
        """Send a form as it is."""
        headers |= {"content-type": FORM} | ({"cookie": self.cookie} if self.cookie else {})
        return self.request("POST", path, headers, urlencode(form).encode())

    def fill(self, page: str, action: str, **fields: str) -> Answer:
        """Fill in the form of an action on a page, send it, and return the page to which the answer leads."""
        text = self.text(page)
        (form,) = re.findall(rf'<form method="post" action="/console/actions/{action}">.*?</form>', text, re.DOTALL)
        hidden = re.findall(r'<input type="hidden" name="([^"]*)" value="([^"]*)">', form)
        given = {name: unescape(value) for name, value in hidden} | fields
        answer = self.send(f"/console/actions/{action}", given)
        assert answer.status == 303, answer.body
        return self.open(answer.headers["location"])

    def text(self, path: str) -> str:
        """Return a page."""
        answer = self.open(path)
        assert answer.status == 200, answer.body
        return answer.body.decode()


def notices(answer: Answer) -> list[tuple[str, str]]:
    """Return the notices of a page: whether it was done or failed, and the text."""
    found: list[Any] = re.findall(r'<p class="notice (done|failed)" role="\w+">(.*?)</p>', answer.body.decode())
    return [(state, unescape(text)) for state, text in found]
