"""The pages of a party: templates, files of ours, the headers of every page, and who may see one.

A page is rendered on the server and needs no script. Nothing on it comes from elsewhere. Addresses are relative, so
that a proxy may serve the pages below a path of its own.
"""

from __future__ import annotations

import hashlib
import hmac
import mimetypes
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from importlib import resources
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, Depends, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, RedirectResponse
from fastapi.routing import APIRoute
from markupsafe import Markup
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import FormData, UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser

from label_dp.documents.statement_text import visible
from label_dp.errors import InvalidRequest, LabelDPError, UnsupportedMediaType
from label_dp.http.asgi import is_utf8
from label_dp.http.calls import LARGE_BODY, Takes, refuse_other_roles
from label_dp.http.threads import LOOKS, Handler, taking_turns
from label_dp.pages.engine import engine
from label_dp.problems import problem
from label_dp.store.apikeys import Principal
from label_dp.store.sessions import Sessions

if TYPE_CHECKING:
    from label_dp.http.code_flow import CodeFlow

POLICY = (
    "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self' data:; form-action 'self'; "
    "frame-ancestors 'none'; base-uri 'none'; connect-src 'self'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}
FORM, FILE_FORM = Depends(Takes(1 << 16)), Depends(Takes(LARGE_BODY))
FORM_TYPES = ("application/x-www-form-urlencoded", "multipart/form-data")
MOST_FIELDS = 1000
ID = re.compile(r"\b([a-z]{1,3}_[0-9a-f]{22,24})\b")


@dataclass(frozen=True)
class Entry:
    """A page of the menu, and the roles that see it."""

    path: str
    title: str
    roles: tuple[str, ...]


DONE = {"signed-out": "You have signed out.", "ended": "Your session has ended. Sign in again."}


class Site:
    """`package` holds the party's `templates/`; `done`: what a page says after a change, by a short word."""

    def __init__(
        self,
        title: str,
        package: str,
        menu: Sequence[Entry],
        sessions: Sessions,
        done: Mapping[str, str],
        objects: Mapping[str, str] = MappingProxyType({}),
        flow: CodeFlow | None = None,
    ) -> None:
        """`objects`: where the pages of ids are, by the prefix of the ids; `flow`: the sign-in at an issuer, if any."""
        self.flow = flow
        self.title, self.menu, self.sessions, self.objects, self.done = (
            title,
            menu,
            sessions,
            objects,
            DONE | dict(done),
        )
        self.cookie = f"{sessions.apikeys.prefix}_session"
        self.engine = engine(package)

    @cached_property
    def files(self) -> dict[str, tuple[bytes, str]]:
        """Content and media type of each file of ours, by a name with its digest in it."""
        found = {}
        for file in resources.files("label_dp.pages").joinpath("static").iterdir():
            data = file.read_bytes()
            stem, _, ending = file.name.rpartition(".")
            kind = mimetypes.guess_type(file.name)[0] or "application/octet-stream"
            found[f"{stem}.{hashlib.sha256(data).hexdigest()[:12]}.{ending}"] = (data, kind)
        return found

    def named(self, name: str) -> str:
        stem, _, ending = name.rpartition(".")
        return next(f for f in self.files if f.startswith(f"{stem}.") and f.endswith(f".{ending}"))

    def render(self, request: Request, template: str, status: int = 200, **values: Any) -> HTMLResponse:
        """A page as a response. `caller` and `csrf` are None where nobody has signed in."""
        up = relative(request)
        caller: Principal | None = values.setdefault("caller", None)
        values.setdefault("csrf", None)
        values.setdefault("name_of_caller", None)

        def at(path: str) -> str:
            return up + path.removeprefix("/")

        text = self.engine.get_template(f"{template}.html.jinja").render(
            site=self,
            here=request.url.path,
            query=request.query_params,
            at=at,
            linked=lambda sentence: self.linked(str(sentence), at),
            static=lambda name: f"{up}static/{self.named(name)}",
            menu=[e for e in self.menu if caller is not None and caller.role in e.roles],
            said=self.done.get(request.query_params.get("done", "")),
            **values,
        )
        return HTMLResponse(text, status, HEADERS)

    def linked(self, sentence: str, at: Callable[[str], str]) -> Markup:
        """Return a sentence whose ids lead to their pages."""
        parts = ID.split(visible(sentence))  # every second part is an id
        link, pages = Markup('<a href="{}">{}</a>'), self.objects
        return Markup("").join(
            link.format(at(page + part), part)
            if place % 2 and (page := pages.get(part[: part.find("_") + 1]))
            else part
            for place, part in enumerate(parts)
        )

    def go(self, request: Request, path: str) -> RedirectResponse:
        return RedirectResponse(relative(request) + path.removeprefix("/"), 303, HEADERS)


def relative(request: Request) -> str:
    """From the page that is asked for to the root: `../` as often as needed."""
    raw = request.scope.get("raw_path") or request.scope["path"].encode()
    root = request.scope.get("root_path", "").encode()
    return "../" * (raw.removeprefix(root).count(b"/") - 1) or "./"


class _SignInFirst(Exception):
    """Nobody has signed in; private to this module."""


class PageRoute(APIRoute):
    """A route whose refusals are pages, and whose strangers are asked to sign in."""

    def get_route_handler(self) -> Handler:
        handle = taking_turns(self, super().get_route_handler())

        async def shown(request: Request) -> Response:
            site: Site = request.app.state.site
            try:
                return await handle(request)
            except _SignInFirst:
                back = request.scope["path"] if request.method == "GET" else "/"
                ended = "&done=ended" if site.cookie in request.cookies else ""
                return site.go(request, f"/sign-in?next={back}{ended}" if back != "/" else "/sign-in")
            except RequestValidationError:
                error: LabelDPError = InvalidRequest("The address or the form has a field of the wrong kind.")
            except LabelDPError as found:
                error = found
            status, body = problem(error)
            visit: Visit | None = getattr(request.state, "visit", None)
            who: dict[str, Any] = (
                {} if visit is None else {"caller": visit.caller, "csrf": visit.csrf, "name_of_caller": visit.name}
            )
            return await run_in_threadpool(site.render, request, "refused", status, problem=body, **who)

        return shown


def page_router() -> APIRouter:
    """For pages: they are in no reference of calls."""
    return APIRouter(route_class=PageRoute, include_in_schema=False)


@dataclass
class Visit:
    """One look at a page by somebody who has signed in; `form`: the fields that were sent."""

    request: Request
    caller: Principal
    csrf: str
    name: str | None = None
    form: dict[str, str] = field(default_factory=dict)
    files: dict[str, bytes] = field(default_factory=dict)

    @property
    def services(self) -> Any:
        return self.request.app.state.services

    @property
    def role(self) -> str:
        return self.caller.role

    def page(self, template: str, **values: Any) -> HTMLResponse:
        site: Site = self.request.app.state.site
        return site.render(
            self.request, template, caller=self.caller, csrf=self.csrf, name_of_caller=self.name, **values
        )

    def go(self, path: str, done: str | None = None) -> RedirectResponse:
        """Where a change leads to, and the short word for what was done."""
        site: Site = self.request.app.state.site
        return site.go(self.request, path if done is None else f"{path}?done={done}")


class Visitor:
    """A dependency: who looks, if the key behind the session has one of `roles`; of a change, also its checked form."""

    def __init__(self, roles: tuple[str, ...]) -> None:
        self.roles = frozenset(roles)

    async def __call__(self, request: Request) -> Visit:
        """Raises NotFound (another role), InvalidRequest (no token of this session in a form)."""
        site: Site = request.app.state.site
        session = await LOOKS.run(partial(site.sessions.find, request.cookies.get(site.cookie)))
        if session is None:
            raise _SignInFirst
        request.state.caller = session.caller
        visit = request.state.visit = Visit(request, session.caller, session.csrf, session.name)
        refuse_other_roles(session.caller, self.roles)
        if request.method == "POST":
            await read_form(request, visit)
            if not hmac.compare_digest(visit.form.pop("csrf", "").encode("utf-8", "replace"), session.csrf.encode()):
                raise InvalidRequest("The form is not of this session. Open the page again, and send it from there.")
        return visit


def visitor(*roles: str) -> Any:
    """Return a dependency: the visit of a person whose key has one of `roles`."""
    return Depends(Visitor(roles))


async def read_form(request: Request, visit: Visit) -> None:
    """Raises UnsupportedMediaType, and InvalidRequest for a form that another site sent."""
    if request.headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        raise InvalidRequest("The form came from another site. Open the page of this service, and send it from there.")
    content = request.headers.get("content-type", "").lower()
    if (kind := content.partition(";")[0].strip()) not in FORM_TYPES or not is_utf8(content):
        raise UnsupportedMediaType("Send the form of the page.")
    form = await (_in_memory(request) if kind == FORM_TYPES[1] else request.form(max_fields=MOST_FIELDS))
    for name, value in form.multi_items():
        if isinstance(value, UploadFile):
            visit.files[name] = await value.read()
        else:
            visit.form[name] = value
    await form.close()


async def _in_memory(request: Request) -> FormData:
    """Parse a form with files, none of which touches a disk: one may have labels. Raises InvalidRequest."""
    parser = MultiPartParser(request.headers, request.stream(), max_files=2, max_fields=MOST_FIELDS)
    parser.spool_max_size = LARGE_BODY  # by default a file of a mebibyte is written to a temporary one
    try:
        return await parser.parse()
    except MultiPartException:
        raise InvalidRequest("The form cannot be read. Open the page again, and send it from there.") from None
