"""The routes of the console: the login, the pages, their files, and the forms."""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import parse_qs, quote

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from escrowmq.admin.http.broker import AskedBroker, BrokerRefused, BrokerUnavailable
from escrowmq.admin.http.kept_lists import KeptLists
from escrowmq.admin.http.listing import BadQuery
from escrowmq.admin.http.logins import ADMINISTRATOR, MONITORING, Operator, operator_of_password, operator_of_token
from escrowmq.admin.http.management import NothingThere
from escrowmq.admin.http.paths import segments
from escrowmq.admin.http.turns import RequestTurns
from escrowmq.console.actions import ACTIONS, AUDIT, BACKUP, FormRefused, arguments_of, outcome_of
from escrowmq.console.answers import HEADERS, file_routes, html
from escrowmq.console.pages import FOUND, menu_of
from escrowmq.console.rates import Rates
from escrowmq.console.screens import audits, definitions, overview
from escrowmq.console.sessions import LoginSession, Sessions
from escrowmq.console.visit import Visit
from escrowmq.evidence.commands import CommandRefused, OperatorCommand
from escrowmq.evidence.files import BrokerFiles

HOME: Final = "/console/"
COOKIE: Final = "escrowmq"
LONGEST_FORM: Final = 32 << 10
LONGEST_FILE: Final = 32 << 20
"""Octets of a form with a file of definitions, in which many characters take three."""
_log = logging.getLogger("escrowmq.http")


class NotLoggedIn(Exception):  # noqa: N818 - named for what happened
    """The browser has no session, or its login is not valid, or no longer. The text is for the operator."""


class Console:
    """The console over `broker`, whose files are `files`. `lists` are those that the process keeps. Requests get their
    turns from `turns`.
    """

    def __init__(
        self,
        broker: AskedBroker,
        lists: KeptLists,
        files: BrokerFiles,
        clock: Callable[[], float] = time.monotonic,
        turns: RequestTurns | None = None,
    ) -> None:
        self._broker = broker
        self._turns = turns or RequestTurns()
        self._lists = lists
        self.files = files
        self._jobs: Mapping[str, OperatorCommand] = {AUDIT: files.audit, BACKUP: files.backup}
        self.sessions = Sessions(clock)
        self._rates = Rates(broker)

    def routes(self) -> list[BaseRoute]:
        """Return the routes."""
        return [
            Route("/", self.home),
            *file_routes(),
            Route("/console", self.home),
            Route("/console/login", self._guarded(self.login_form)),
            Route("/console/login", self._guarded(self.login), methods=["POST"]),
            Route("/console/logout", self._guarded(self.logout), methods=["POST"]),
            Route("/console/rates", self._guarded(self.rates)),
            Route("/console/trend", self._guarded(self.trend)),
            Route("/console/actions/{name}", self._guarded(self.act), methods=["POST"]),
            Route("/console/definitions/file", self._guarded(self.definitions)),
            Route("/console/definitions/import", self._guarded(self.import_definitions), methods=["POST"]),
            Route("/console/{path:rest}", self._guarded(self.page)),
        ]

    # -- who asks

    async def home(self, request: Request) -> Response:
        """Lead to the console."""
        del request
        return RedirectResponse(HOME, HTTPStatus.SEE_OTHER, HEADERS)

    async def login_form(self, request: Request) -> Response:
        """Show the form of the login."""
        return html("login.html", then=_local(request.query_params.get("then", "")), failed="", user="", by_token=False)

    async def login(self, request: Request) -> Response:
        """Open a session for a user with the tag monitoring or administrator."""
        form = await _form(request)
        _check_origin(request)
        user, password, bearer = (form.get(name, "") for name in ("user", "password", "token"))
        then = _local(form.get("then", ""))
        try:
            await self._operator(request, user, password, bearer.strip())
        except NotLoggedIn as refusal:
            refused: dict[str, Any] = {"failed": str(refusal), "user": user, "by_token": bool(bearer)}
            return html("login.html", HTTPStatus.UNAUTHORIZED, then=then, **refused)
        answer = RedirectResponse(then, HTTPStatus.SEE_OTHER, HEADERS)
        answer.set_cookie(
            COOKIE,
            self.sessions.open(user, password, bearer.strip()),
            path="/console",
            secure=request.url.scheme == "https",
            httponly=True,
            samesite="strict",
        )
        return answer

    async def logout(self, request: Request) -> Response:
        """End the session."""
        session, _ = await self._session(request)
        _check_form(await _form(request), session)
        self.sessions.close(request.cookies[COOKIE])
        answer = RedirectResponse("/console/login", HTTPStatus.SEE_OTHER, HEADERS)
        answer.delete_cookie(COOKIE, path="/console")
        return answer

    async def _session(self, request: Request) -> tuple[LoginSession, Operator]:
        session = self.sessions.find(request.cookies.get(COOKIE, ""))
        if session is None:
            raise NotLoggedIn("Please log in.")
        return session, await self._operator(request, session.user, session.password, session.bearer)

    async def _operator(self, request: Request, user: str, password: str, bearer: str) -> Operator:
        host, port = request.client or ("", 0)
        if bearer:
            operator = await operator_of_token(self._broker, host, port, bearer)
        else:
            operator = await operator_of_password(self._broker, host, port, user, password)
        if operator is None:
            what = "token is not valid or has expired" if bearer else "user or the password is wrong"
            raise NotLoggedIn(f"The {what}, or there were too many attempts.")
        if not {ADMINISTRATOR, MONITORING} & set(operator.tags):
            raise NotLoggedIn(f"User {operator.user} needs the tag monitoring or administrator for the console.")
        return operator

    # -- pages and forms

    async def rates(self, request: Request) -> Response:
        """Answer with the columns of the plots."""
        return JSONResponse(await overview.rates(await self._visit(request, {})), headers=HEADERS)

    async def trend(self, request: Request) -> Response:
        """Answer with the columns of the plot of audits."""
        return JSONResponse(await audits.trend(await self._visit(request, {})), headers=HEADERS)

    async def page(self, request: Request) -> Response:
        """Show a page."""
        path = segments(_path(request).encode())
        found = None if path is None else FOUND.find(path[1:])
        if found is None:
            raise NothingThere("There is no such page.")
        page, names = found
        visit = await self._visit(request, names)
        if page.administrators and not visit.administrator:
            raise HTTPException(HTTPStatus.FORBIDDEN, "This page needs the tag administrator.")
        async with self._turns.turn(visit.operator.user):
            context = await page.screen(visit)
            notices, visit.session.notices = visit.session.notices, []
            return html(
                page.template,
                visit=visit,
                title=page.title,
                menu=menu_of(visit.administrator),
                here=page.menu,
                notices=notices,
                **context,
            )

    async def act(self, request: Request) -> Response:
        """Do what a form asks for, and lead back to its page, which shows the outcome."""
        session, operator = await self._session(request)
        form = await _form(request)
        _check_form(form, session)
        action = ACTIONS.get(request.path_params["name"])
        if action is None:
            raise NothingThere("There is no such action.")
        _check_administrator(operator)
        back = _local(form.get("back", ""))
        try:
            arguments = arguments_of(action, form, operator.asking)
            job = self._jobs.get(action.operation)
            result = await (
                self._broker.ask(action.operation, **arguments) if job is None else job.start(operator.user)
            )
        except (FormRefused, BrokerRefused, CommandRefused) as refusal:
            session.notices.append(("failed", str(refusal)))
        else:
            session.notices.append(("done", outcome_of(action, form, result)))
            back = _local(form.get("then", back))
        return RedirectResponse(back, HTTPStatus.SEE_OTHER, HEADERS)

    async def definitions(self, request: Request) -> Response:
        """Answer with the file of definitions."""
        visit = await self._visit(request, {})
        _check_administrator(visit.operator)
        async with self._turns.turn(visit.operator.user):
            name, content = await definitions.file_of(visit)
            headers = HEADERS | {"Content-Disposition": f'attachment; filename="{name}"'}
            return Response(content, media_type="application/json", headers=headers)

    async def import_definitions(self, request: Request) -> Response:
        """Import a file of definitions, and lead back to its page."""
        visit = await self._visit(request, {})
        _check_administrator(visit.operator)
        async with self._turns.turn(visit.operator.user):
            form = await _form(request, LONGEST_FILE)
            _check_form(form, visit.session)
            try:
                visit.session.notices.append(("done", await definitions.import_form(visit, form)))
            except (FormRefused, BadQuery, BrokerRefused) as refusal:
                visit.session.notices.append(("failed", str(refusal)))
        return RedirectResponse(HOME + "definitions", HTTPStatus.SEE_OTHER, HEADERS)

    async def _visit(self, request: Request, names: Mapping[str, str]) -> Visit:
        session, operator = await self._session(request)
        query = dict(request.query_params)
        return Visit(
            self._broker, self._lists, self._rates, self.files, session, operator, _path(request), names, query
        )

    def _guarded(self, handler: Callable[[Request], Awaitable[Response]]) -> Callable[[Request], Awaitable[Response]]:
        """Return a handler whose failures are pages."""

        async def handle(request: Request) -> Response:
            try:
                return await handler(request)
            except NotLoggedIn:
                then = _path(request) if request.method == "GET" else HOME
                if "hx-request" in request.headers:  # the whole page goes to the login, not a part of it
                    return Response(status_code=HTTPStatus.NO_CONTENT, headers=HEADERS | {"HX-Refresh": "true"})
                return RedirectResponse(f"/console/login?then={quote(then)}", HTTPStatus.SEE_OTHER, HEADERS)
            except NothingThere as error:
                return _failure(HTTPStatus.NOT_FOUND, str(error) or "There is no such page.")
            except BrokerRefused as error:
                return _failure(HTTPStatus.NOT_FOUND if error.missing else HTTPStatus.BAD_REQUEST, str(error))
            except BadQuery as error:
                return _failure(HTTPStatus.BAD_REQUEST, str(error))
            except HTTPException as error:
                return _failure(HTTPStatus(error.status_code), error.detail)
            except BrokerUnavailable as error:
                _log.warning("%s: %s", request.url.path, error)
                return _failure(HTTPStatus.SERVICE_UNAVAILABLE, "The broker does not answer. Try again in a moment.")
            except ClientDisconnect:
                return Response(status_code=HTTPStatus.BAD_REQUEST)

        return handle


def _failure(status: HTTPStatus, text: str) -> Response:
    return html("failure.html", status, title=status.phrase, text=text)


def _path(request: Request) -> str:
    """Return the path of a request as it was sent, in which `%2F` is part of a name."""
    raw: bytes = request.scope.get("raw_path") or request.scope["path"].encode()
    return raw.partition(b"?")[0].decode("ascii", "replace")


def _local(path: str) -> str:
    """Return a path of the console, so that no form leads to another site."""
    return path if path.startswith(HOME) and "\\" not in path and not any(map(str.isspace, path)) else HOME


def _check_administrator(operator: Operator) -> None:
    """Raises HTTPException for a user who may not change anything."""
    if ADMINISTRATOR not in operator.tags:
        raise HTTPException(HTTPStatus.FORBIDDEN, "This needs the tag administrator.")


async def _form(request: Request, longest: int = LONGEST_FORM) -> dict[str, str]:
    """Return the fields of a form. Raises HTTPException for one that is too long or no form."""
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > longest:
            raise HTTPException(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"The form has more than {longest} octets.")
    try:
        found = parse_qs(body.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=100)
    except ValueError as error:
        raise HTTPException(HTTPStatus.BAD_REQUEST, "The request is not a form.") from error
    return {name: values[-1] for name, values in found.items()}


def _check_form(form: Mapping[str, str], session: LoginSession) -> None:
    """Raises HTTPException for a form that does not come from a page of this session."""
    if not secrets.compare_digest(form.get("form_token", "").encode(), session.form_token.encode()):
        raise HTTPException(HTTPStatus.FORBIDDEN, "The form is not from a page of this session. Load the page again.")


def _check_origin(request: Request) -> None:
    """Raises HTTPException for a login that another site's page sends."""
    if request.headers.get("sec-fetch-site", "same-origin") not in {"same-origin", "none"}:
        raise HTTPException(HTTPStatus.FORBIDDEN, "Another site has sent this form.")
