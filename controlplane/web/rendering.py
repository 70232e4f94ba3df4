"""Markup out of views: one Jinja environment that escapes everything, and the headers of a page."""

import gzip
import hashlib
from dataclasses import asdict
from functools import cache
from http import HTTPStatus
from pathlib import Path
from typing import Any

from fastapi import Request, Response
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from controlplane.web import static
from controlplane.web.present import words

TEMPLATES = Path(__file__).parent / "templates"
# Everything from here, nothing inline. Frames and charts are images and SVG of ours.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self';"
    " form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    # `no-referrer` would take the origin from our own forms, and with it the check of it.
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}
_HTML = "text/html; charset=utf-8"


def page(
    request: Request, template: str, *, status: int = HTTPStatus.OK, **values: Any
) -> Response:
    """The page of `template`; 304 where the browser has just this one."""
    text = _environment().get_template(template).render(path=request.url.path, **values)
    body = text.encode()
    tag = f'W/"{hashlib.sha256(body).hexdigest()[:24]}"'
    headers = {**HEADERS, "ETag": tag, "Vary": "Accept-Encoding"}
    if status == HTTPStatus.OK and request.headers.get("if-none-match") == tag:
        return Response(status_code=HTTPStatus.NOT_MODIFIED, headers=headers)
    if takes_gzip(request):
        headers["Content-Encoding"] = "gzip"
        body = gzip.compress(body, compresslevel=6, mtime=0)
    return Response(body, status_code=status, media_type=_HTML, headers=headers)


def refusal(request: Request, status: int, why: str) -> Response:
    """A page that says what is refused and why."""
    title = HTTPStatus(status).phrase
    return page(request, "refusal.html", status=status, title=title, why=why)


def takes_gzip(request: Request) -> bool:
    """Whether the browser understands gzip. No secret is in a page, so its size tells none."""
    return "gzip" in request.headers.get("accept-encoding", "")


def _visible(value: object) -> object:
    # Markup is of our own templates, and what was put into it has been here before.
    return words.visible(value) if type(value) is str else value


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_visible,
    )
    environment.globals["asset"] = static.address
    environment.globals["plotly_style_elements"] = static.plotly_style_elements
    environment.filters["plain"] = asdict
    return environment
