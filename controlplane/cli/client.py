"""The control plane's API as the commands use it: one request, one answer, errors as `CliError`.

It knows addresses, tokens and problem documents; it prints nothing and asks nobody.
"""

import secrets
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from controlplane.cli.exits import CliError, Exit

if TYPE_CHECKING:
    import httpx

Json = Any  # an answer of the API; each command reads what it shows
# Long enough for a loaded laptop, short enough for a person who waits.
TIMEOUT_S: Final = 20.0
NUM_TRIES: Final = 2
MAX_PAGES: Final = 100
PAGE_LIMIT: Final = 500

_EXITS: Final = {
    400: Exit.REFUSED,
    401: Exit.NOT_AUTHORISED,
    403: Exit.NOT_AUTHORISED,
    404: Exit.NOT_FOUND,
    409: Exit.CONFLICT,
    412: Exit.CONFLICT,
    422: Exit.REFUSED,
    423: Exit.CONFLICT,
}
_NEXT_STEPS: Final = {
    Exit.NOT_AUTHORISED: "give a token that may do this: --token-file FILE or STEADYFRAME_TOKEN",
    Exit.SERVER_FAULT: "look into the control plane's log; the same command may be tried again",
}


class Client:
    """Talks to one control plane with one token."""

    def __init__(
        self, url: str, *, token: str | None, transport: "httpx.BaseTransport | None" = None
    ) -> None:
        import httpx

        self.url = url.rstrip("/")
        headers = {"Accept": "application/json"}
        if token:
            headers["Authorization"] = f"Bearer {token}"
        try:
            self._http = httpx.Client(
                base_url=self.url, headers=headers, timeout=TIMEOUT_S, transport=transport
            )
        except httpx.InvalidURL as error:
            raise CliError(f"{url!r} is no URL: {error}", exit_code=Exit.USAGE) from error

    def close(self) -> None:
        """Give the connections back."""
        self._http.close()

    def get(self, path: str, **query: str | int | None) -> Json:
        """The answer to GET `path`. Raises: CliError."""
        params = {name: value for name, value in query.items() if value is not None}
        return self._decoded(self._send("GET", path, params=params))

    def text(self, path: str, **query: str | int | None) -> str:
        """The answer to GET `path` as it is, where it is no JSON. Raises: CliError."""
        params = {name: value for name, value in query.items() if value is not None}
        return self._send("GET", path, params=params, headers={"Accept": "text/csv"}).text

    def items(self, path: str, **query: str | int | None) -> Iterator[Json]:
        """Every item of a paged list, page after page. Raises: CliError."""
        cursor = None
        for _ in range(MAX_PAGES):
            page = self.get(path, limit=PAGE_LIMIT, cursor=cursor, **query)
            yield from page["items"] if isinstance(page, Mapping) else page
            cursor = page.get("next_cursor") if isinstance(page, Mapping) else None
            if not cursor:
                return
        raise CliError(
            f"{path} has over {MAX_PAGES * PAGE_LIMIT} items", exit_code=Exit.SERVER_FAULT
        )

    def effects(
        self, path: str, body: Mapping[str, Json], *, timeout_s: float = TIMEOUT_S
    ) -> list[str]:
        """What POST `path` would do, in words, without doing it. Raises: CliError."""
        query = {"dry_run": "true"}
        sent = self._send("POST", path, json=dict(body), params=query, timeout=timeout_s)
        answer = self._decoded(sent)
        return [str(effect) for effect in answer.get("effects", [])]

    def post(self, path: str, body: Mapping[str, Json], *, timeout_s: float = TIMEOUT_S) -> Json:
        """Do it, once: a repeat after a lost answer carries the same idempotency key."""
        headers = {"Idempotency-Key": secrets.token_hex(16)}
        sent = self._send("POST", path, json=dict(body), headers=headers, timeout=timeout_s)
        return self._decoded(sent)

    def check(self, path: str, body: Mapping[str, Json]) -> Json:
        """The answer to a POST that changes nothing. Raises: CliError."""
        return self._decoded(self._send("POST", path, json=dict(body)))

    def _send(self, method: str, path: str, **request: Json) -> "httpx.Response":
        import httpx

        for attempt in range(1, NUM_TRIES + 1):
            try:
                return self._checked(self._http.request(method, path, **request))
            except httpx.TransportError as error:
                # An answer that got lost may be asked for again: a POST by its idempotency key.
                if attempt == NUM_TRIES or isinstance(error, httpx.ConnectError):
                    raise self._away(error) from error
        raise AssertionError("the loop returns or raises")

    def _away(self, error: Exception) -> CliError:
        return CliError(
            f"no control plane answers at {self.url} ({type(error).__name__}: {error})",
            exit_code=Exit.SERVER_AWAY,
            next_step="start one with `steadyframe serve`, or say where it is: --url URL or "
            "STEADYFRAME_URL",
        )

    def _checked(self, response: "httpx.Response") -> "httpx.Response":
        if response.is_success:
            return response
        exit_code = _EXITS.get(response.status_code, Exit.SERVER_FAULT)
        raise CliError(
            _problem_text(response),
            exit_code=exit_code,
            next_step=_NEXT_STEPS.get(exit_code, ""),
        )

    def _decoded(self, response: "httpx.Response") -> Json:
        if not response.content:
            return {}
        try:
            return response.json()
        except ValueError as error:
            raise CliError(
                f"{self.url} answered, but not with JSON: is it a control plane?",
                exit_code=Exit.SERVER_FAULT,
            ) from error


def _problem_text(response: "httpx.Response") -> str:
    """What a problem document says, or the bare status of an answer that is none."""
    try:
        problem = response.json()
    except ValueError:
        problem = None
    if isinstance(problem, Mapping):
        detail = problem.get("detail") or problem.get("title")
        if isinstance(detail, str):
            return detail
    return f"the control plane answered {response.status_code} {response.reason_phrase}"
