"""Pages of both parties' sites: the root, the sign-in, the sign-out, and static files."""

# annotations are read at once here: the roles in them differ by party

import hashlib
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Request, Response
from fastapi.responses import HTMLResponse, RedirectResponse
from starlette.concurrency import run_in_threadpool

from label_dp.errors import NotFound, Unauthenticated
from label_dp.http.code_flow import COOKIE_SECONDS, RETURN, CodeFlow
from label_dp.http.threads import SIGN_INS
from label_dp.pages.site import FORM, HEADERS, Site, Visit, page_router, read_form, visitor
from label_dp.pages.verifier import POLICY, verifier
from label_dp.store.apikeys import Principal
from label_dp.store.sessions import HOURS

# what a person can do about a sign-in that opens nothing, by its reason; a stranger learns only of an own account
ADVICE = {
    "no role": "Your account has no role of this service; ask for one where your organisation manages accounts.",
    "several roles": "Your account has several roles of this service, and may have one; have the others removed.",
    "revoked subject": "Your account was shut out here; ask whoever runs this service.",
    "sign-in refused by the issuer": "Your organisation's sign-in was cancelled or refused; start it again.",
    "code refused by the issuer": "Your organisation's sign-in refused this service, not you: tell whoever runs it.",
}
# the same for every key that opens nothing
REFUSED_KEY = "This API key opens nothing here. Check it, or ask for a new one (the `apikey create` command makes one)."
MOST_AT_ONCE = 4  # sign-ins of one browser at the issuer
OTHERWISE = "Start it again from this page."


def site_router(*roles: str, home: str) -> APIRouter:
    """`roles`: all of the party; `home`: the page that comes first."""
    router = page_router()
    anybody = visitor(*roles)

    @router.get("/")
    def root(visit: Annotated[Visit, anybody]) -> Response:
        return visit.go(home)

    @router.get("/sign-in")
    def ask(request: Request) -> Response:
        site: Site = request.app.state.site
        back = _path(request.query_params.get("next", ""))
        return site.render(request, "sign_in", next=back, problem=None)

    @router.post("/sign-in", dependencies=[FORM])
    async def enter(request: Request) -> Response:
        """A cookie for a valid API key. Raises nothing that says why a key is refused."""
        site: Site = request.app.state.site
        visit = Visit(request, Principal("", ""), "")
        await read_form(request, visit)
        back = _path(visit.form.get("next", ""))
        try:
            token = await SIGN_INS.run(partial(site.sessions.open, visit.form.get("key", "").strip() or None))
        except Unauthenticated as error:
            request.app.state.failures.note(error, request.scope)
            return await run_in_threadpool(site.render, request, "sign_in", 401, next=back, problem=REFUSED_KEY)
        answer = site.go(request, back or home)
        _keep_session(request, answer, token)
        return answer

    @router.get("/sign-in/issuer")
    async def leave_for_issuer(request: Request) -> Response:
        site: Site = request.app.state.site
        flow = _flow(site)
        address, bound = await SIGN_INS.run(partial(flow.begin, _path(request.query_params.get("next", ""))))
        answer = RedirectResponse(address, 303, HEADERS)
        # lax: the issuer's answer is a navigation from another site
        secure = request.url.scheme == "https"
        cookie = _bound(site, bound.partition(".")[0])
        answer.set_cookie(cookie, bound, COOKIE_SECONDS, path="/", httponly=True, samesite="lax", secure=secure)
        for old in [name for name in request.cookies if name.startswith(_bound(site, ""))][: 1 - MOST_AT_ONCE]:
            answer.delete_cookie(old, path="/", httponly=True, samesite="lax")
        return answer

    @router.get(RETURN)
    async def enter_from_issuer(request: Request) -> Response:
        """A session for a code of the issuer, in the browser that asked for it; its cookie for that is used up."""
        site: Site = request.app.state.site
        flow, cookie = _flow(site), _bound(site, request.query_params.get("state", ""))

        def opened() -> tuple[str, str]:
            identity, page = flow.finish(request.cookies.get(cookie, ""), request.query_params)
            return site.sessions.open_for(identity), _path(page)

        try:
            token, back = await SIGN_INS.run(opened)
        except Unauthenticated as error:
            request.app.state.failures.note(error, request.scope)
            advice = ADVICE.get(error.reason.partition(":")[0], OTHERWISE)
            said = f"This sign-in opens nothing here. {advice}"
            answer: Response = await run_in_threadpool(site.render, request, "sign_in", 401, next="", problem=said)
        else:
            # a page, not a redirect: the strict cookie does not go along on a navigation that another site began
            answer = await run_in_threadpool(site.render, request, "signed_in", next=back or home)
            _keep_session(request, answer, token)
        answer.delete_cookie(cookie, path="/", httponly=True, samesite="lax")
        return answer

    @router.post("/sign-out", dependencies=[FORM])
    def leave(visit: Annotated[Visit, anybody]) -> Response:
        site: Site = visit.request.app.state.site
        site.sessions.close(visit.request.cookies.get(site.cookie))
        answer = visit.go("/sign-in", "signed-out")
        answer.delete_cookie(site.cookie, path="/", httponly=True, samesite="strict")
        return answer

    @router.get("/verify")
    def verify() -> HTMLResponse:
        return HTMLResponse(verifier(), headers=HEADERS | {"Content-Security-Policy": POLICY})

    @router.get("/static/{name}")
    def static(name: str, request: Request) -> Response:
        site: Site = request.app.state.site
        if name not in site.files:
            raise NotFound("There is no such file.")
        data, kind = site.files[name]
        attributes = {"Cache-Control": "public, max-age=31536000, immutable"}
        return Response(data, media_type=kind, headers=HEADERS | attributes)

    return router


def _keep_session(request: Request, answer: Response, token: str) -> None:
    secure = request.url.scheme == "https"
    attributes: dict[str, Any] = {"httponly": True, "samesite": "strict", "secure": secure, "path": "/"}
    answer.set_cookie(request.app.state.site.cookie, token, max_age=HOURS * 3600, **attributes)


def _bound(site: Site, state: str) -> str:
    """Return the name of the cookie of a sign-in at the issuer, of which each tab may have one; with no state, what all
    of them begin with."""
    return f"{site.cookie}_oidc_{hashlib.sha256(state.encode('utf-8', 'replace')).hexdigest()[:12] if state else ''}"


def _flow(site: Site) -> CodeFlow:
    """Return the sign-in at an issuer. Raises NotFound."""
    if site.flow is None:
        raise NotFound("People sign in with an API key here.")
    return site.flow


def _path(given: str) -> str:
    """A path of this site, or nothing: an address of another one would lead a person away after the sign-in."""
    plain = given.isascii() and given.isprintable() and "\\" not in given and "?" not in given and "#" not in given
    return given if plain and given.startswith("/") and not given.startswith("//") and ".." not in given else ""
