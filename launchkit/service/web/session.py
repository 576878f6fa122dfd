"""Who looks at a page: the token in a cookie, and what guards forms. Of the service's page.

The cookie holds the token itself, so that every replica knows it and revoking it ends the visit.
Scripts cannot read it, other sites cannot make a browser send it, and the API takes no cookie. A
form that writes shows besides what only a page that was read with the cookie can know.
"""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass
from urllib.parse import parse_qs

from fastapi import Request
from fastapi.responses import RedirectResponse, Response

from launchkit.service.auth import Auth, Caller
from launchkit.service.context import Service, service
from launchkit.service.protocol import Scope
from launchkit.service.refused import Refused

LASTS_S = 12 * 3600
"""A visit ends after so long, whatever the token allows."""
FORM = "application/x-www-form-urlencoded"


@dataclass(frozen=True, slots=True)
class Visitor:
    """Who looks at a page, and what may be offered there."""

    caller: Caller
    token: str | None
    auth: Auth

    @property
    def logged_in(self) -> bool:
        """Whether there is a token."""
        return self.token is not None

    @property
    def guard(self) -> str:
        """What forms of this visitor show: nobody without the token can make it."""
        return guard_of(self.token or "")

    def may(self, scope: Scope, namespace: str | None) -> bool:
        """Tell whether a page offers this. Nobody writes by pages without a token."""
        if scope == "read" and namespace is not None:
            return self.auth.reads(self.caller, namespace)
        return self.logged_in and self.caller.may(scope, namespace)


def visitor(request: Request) -> Visitor:
    """Return who makes a request. Raises Refused for a token that is not in force."""
    here, token = service(request), cookie(request)
    return Visitor(here.visitor(request, token), token, here.auth)


def reader(request: Request, namespace: str) -> Visitor:
    """Return who makes a request, if it may read there. Raises Refused otherwise."""
    here, token = service(request), cookie(request)
    return Visitor(here.admit_page(request, token, "read", namespace), token, here.auth)


def writer(request: Request, form: dict[str, str], scope: Scope, namespace: str | None) -> Caller:
    """Return who sends a form that writes. Raises Refused for who may not, and for forged ones."""
    token = cookie(request)
    if token is None:
        raise Refused("unauthenticated", "this needs a token. Log in with one.")
    caller = service(request).admit_page(request, token, scope, namespace)
    if not caller.may(scope, namespace):
        # What everybody may do by the API needs a token here: a form can come from anywhere.
        raise Refused("forbidden", f"this token does not allow {scope} there. Use another one.")
    refuse_foreign(request)
    if not hmac.compare_digest(form.get("guard", "").encode(), guard_of(token).encode()):
        raise Refused("forbidden", "the form is not of this visit. Open its page again.")
    return caller


def refuse_foreign(request: Request) -> None:
    """Raise Refused where the browser says that another site has made the request."""
    if request.headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        raise Refused("forbidden", "the form is of another site. Open the page here.")


def guard_of(token: str) -> str:
    """Return what the forms of a token's visits show."""
    return hmac.new(token.encode(), b"launchkit form", hashlib.sha256).hexdigest()


def fields(request: Request, body: bytes) -> dict[str, str]:
    """Return a form's fields, the first of each name. Raises Refused for another kind of body."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != FORM:
        raise Refused("invalid", f"a form is sent as {FORM}. Use the page's own form.")
    try:
        found = parse_qs(body.decode(), keep_blank_values=True, max_num_fields=20)
    except ValueError:
        raise Refused("invalid", "the form cannot be read. Use the page's own form.") from None
    return {name: values[0] for name, values in found.items()}


def cookie(request: Request) -> str | None:
    """Return the token in the cookie; None: nobody is logged in."""
    return request.cookies.get(_cookie_name(service(request))) or None


def remember(here: Service, answer: Response, token: str) -> None:
    """Have the browser keep a token for this visit."""
    answer.set_cookie(
        _cookie_name(here), token, max_age=LASTS_S, path="/", httponly=True, samesite="strict",
        secure=here.settings.secure_cookies,
    )  # fmt: skip


def forget(here: Service, answer: Response) -> None:
    """Have the browser forget the token."""
    answer.delete_cookie(
        _cookie_name(here), path="/", httponly=True, samesite="strict",
        secure=here.settings.secure_cookies,
    )  # fmt: skip


def see_other(url: str) -> RedirectResponse:
    """Send the browser to another page of this server."""
    return RedirectResponse(url, 303, {"Cache-Control": "no-store"})


def page_of(text: str) -> str:
    """Return the page to go on to: one of this server, or the first one."""
    within = text.startswith("/web/") and not any(mark in text for mark in ("\\", "//", "/."))
    return text if within and text.isprintable() and text.isascii() else "/"


def _cookie_name(here: Service) -> str:
    # Browsers take a cookie of such a name from this very host alone, and only by https.
    return "__Host-launchkit" if here.settings.secure_cookies else "launchkit"
