"""Pages of both parties' sites: the root, the sign-in, the sign-out, and static files."""

# annotations are read at once here: the roles in them differ by party

from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Request, Response
from fastapi.responses import RedirectResponse
from starlette.concurrency import run_in_threadpool

from label_dp.errors import NotFound, Unauthenticated
from label_dp.http.code_flow import COOKIE_SECONDS, RETURN, CodeFlow
from label_dp.http.threads import WRITERS
from label_dp.pages.site import FORM, HEADERS, Site, Visit, page_router, read_form, refused_sign_in, visitor
from label_dp.store.apikeys import Principal
from label_dp.store.sessions import HOURS

NOT_FROM_ISSUER = "This sign-in opens nothing here. Start it again from this page, or ask for a role of this service."


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
            token = await WRITERS.run(partial(site.sessions.open, visit.form.get("key", "").strip() or None))
        except Unauthenticated as error:
            request.app.state.failures.note(error, request.scope)
            told = refused_sign_in(error)
            return await run_in_threadpool(site.render, request, "sign_in", 401, next=back, problem=told)
        answer = site.go(request, back or home)
        _keep_session(request, answer, token)
        return answer

    @router.get("/sign-in/issuer")
    async def leave_for_issuer(request: Request) -> Response:
        site: Site = request.app.state.site
        flow = _flow(site)
        address, bound = await WRITERS.run(partial(flow.begin, _path(request.query_params.get("next", ""))))
        answer = RedirectResponse(address, 303, HEADERS)
        # lax: the issuer's answer is a navigation from another site
        secure = request.url.scheme == "https"
        answer.set_cookie(
            f"{site.cookie}_oidc", bound, COOKIE_SECONDS, path="/", httponly=True, samesite="lax", secure=secure
        )
        return answer

    @router.get(RETURN)
    async def enter_from_issuer(request: Request) -> Response:
        """A session for a code of the issuer, in the browser that asked for it; its cookie for that is used up."""
        site: Site = request.app.state.site
        flow, cookie = _flow(site), f"{site.cookie}_oidc"

        def opened() -> tuple[str, str]:
            identity, page = flow.finish(request.cookies.get(cookie, ""), request.query_params)
            return site.sessions.open_for(identity), _path(page)

        try:
            token, back = await WRITERS.run(opened)
        except Unauthenticated as error:
            request.app.state.failures.note(error, request.scope)
            answer: Response = await run_in_threadpool(
                site.render, request, "sign_in", 401, next="", problem=NOT_FROM_ISSUER
            )
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


def _flow(site: Site) -> CodeFlow:
    """Return the sign-in at an issuer. Raises NotFound."""
    if site.flow is None:
        raise NotFound("People sign in with an API key here.")
    return site.flow


def _path(given: str) -> str:
    """A path of this site, or nothing: an address of another one would lead a person away after the sign-in."""
    plain = given.isascii() and given.isprintable() and "\\" not in given and "?" not in given and "#" not in given
    return given if plain and given.startswith("/") and not given.startswith("//") and ".." not in given else ""
