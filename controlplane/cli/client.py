"""The control plane's API as the commands use it: one request, one answer, errors as `CliError`.

It knows addresses, tokens and problem documents; it prints nothing and asks nobody.
"""

import secrets
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from controlplane.cli import connection
from controlplane.cli.exits import CliError, Exit

if TYPE_CHECKING:
    import httpx

Json = Any  # an answer of the API; each command reads what it shows
# A machine that is there accepts at once; one that is not should not be waited for.
CONNECT_TIMEOUT_S: Final = 5.0
NUM_TRIES: Final = 2
MAX_PAGES: Final = 100
PAGE_LIMIT: Final = 500
# Other servers answer JSON, too; refusals of ours are of this type.
PROBLEM: Final = "application/problem+json"
# Members of a problem document that a script may want beside the sentence.
FACTS: Final = ("key", "value", "allowed", "kind", "name", "errors", "num_bad", "bad", "error_id")

_EXITS: Final = {
    400: Exit.REFUSED,
    401: Exit.NOT_AUTHORISED,
    403: Exit.NOT_AUTHORISED,
    404: Exit.NOT_FOUND,
    409: Exit.CONFLICT,
    412: Exit.CONFLICT,
    413: Exit.REFUSED,
    415: Exit.REFUSED,
    422: Exit.REFUSED,
    423: Exit.CONFLICT,
}


class Client:
    """Talks to one control plane with one token."""

    def __init__(
        self,
        url: str,
        *,
        token: connection.Token | None,
        timeout_s: float = connection.TIMEOUT_S,
        transport: "httpx.BaseTransport | None" = None,
    ) -> None:
        import httpx

        self.url = url.rstrip("/")
        self._token = token
        self._timeout_s = timeout_s
        headers = {"Accept": "application/json"}
        if token:
            headers["Authorization"] = f"Bearer {token.text}"
        try:
            self._http = httpx.Client(
                base_url=self.url,
                headers=headers,
                timeout=httpx.Timeout(timeout_s, connect=min(timeout_s, CONNECT_TIMEOUT_S)),
                transport=transport,
            )
        except (httpx.InvalidURL, ValueError) as error:
            raise CliError(f"{url!r} is no URL: {error}", exit_code=Exit.USAGE) from error

    def close(self) -> None:
        """Give the connections back."""
        self._http.close()

    def get(self, path: str, **query: str | int | None) -> Json:
        """The object that is the answer to GET `path`. Raises: CliError."""
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
            yield from self.rows_of(page, "items")
            cursor = page.get("next_cursor")
            if not cursor:
                return
        raise CliError(
            f"{path} has over {MAX_PAGES * PAGE_LIMIT} items", exit_code=Exit.SERVER_FAULT
        )

    def rows_of(self, answer: Mapping[str, Json], name: str) -> list[Mapping[str, Json]]:
        """The list of objects that `answer` has under `name`. Raises: CliError: it has none."""
        rows = answer.get(name)
        if not isinstance(rows, list) or not all(isinstance(row, Mapping) for row in rows):
            raise self._other(f"its {name} are no list of ours")
        return rows

    def is_ready(self) -> bool:
        """Whether the control plane says that it does its work. Raises: CliError: it is away."""
        response = self._answer("GET", "/readyz")
        if response.is_success:
            return True
        # What is not ready says so itself, in its own form.
        if response.status_code == 503 and "status" in (_object(response) or {}):  # noqa: PLR2004 - HTTP
            return False
        self._checked(response)
        return False

    def effects(
        self, path: str, body: Mapping[str, Json], *, timeout_s: float | None = None
    ) -> list[str]:
        """What POST `path` would do, in words, without doing it. Raises: CliError."""
        query = {"dry_run": "true"}
        sent = self._send(
            "POST", path, json=dict(body), params=query, timeout=self._wait(timeout_s)
        )
        answer = self._decoded(sent)
        return [str(effect) for effect in answer.get("effects", [])]

    def post(self, path: str, body: Mapping[str, Json], *, timeout_s: float | None = None) -> Json:
        """Do it, once: a repeat after a lost answer carries the same idempotency key."""
        headers = {"Idempotency-Key": secrets.token_hex(16)}
        sent = self._send(
            "POST",
            path,
            json=dict(body),
            headers=headers,
            timeout=self._wait(timeout_s),
            num_tries=NUM_TRIES,
        )
        return self._decoded(sent)

    def _wait(self, least_s: float | None) -> "httpx.Timeout":
        """The usual time to wait for an answer, or a longer one for what takes longer."""
        import httpx

        seconds = max(self._timeout_s, least_s or 0.0)
        return httpx.Timeout(seconds, connect=min(self._timeout_s, CONNECT_TIMEOUT_S))

    def _send(
        self, method: str, path: str, *, num_tries: int = 1, **request: Json
    ) -> "httpx.Response":
        return self._checked(self._answer(method, path, num_tries=num_tries, **request))

    def _answer(
        self, method: str, path: str, *, num_tries: int = 1, **request: Json
    ) -> "httpx.Response":
        import httpx

        for attempt in range(1, num_tries + 1):
            try:
                return self._http.request(method, path, **request)
            except httpx.TransportError as error:
                # An answer that got lost may be asked for again: a POST by its idempotency key.
                if attempt == num_tries or isinstance(error, httpx.ConnectError):
                    raise self._away(error) from error
            except (httpx.DecodingError, httpx.InvalidURL) as error:
                # A name in an answer before may be none.
                raise self._other(f"not as ours does: {error}") from error
        raise AssertionError("the loop returns or raises")

    def _away(self, error: Exception) -> CliError:
        import httpx

        if isinstance(error, httpx.ReadTimeout):
            return CliError(
                f"{self.url} takes connections but has not answered in time"
                f" ({self._timeout_s:g} s unless the command waits longer)",
                exit_code=Exit.SERVER_AWAY,
                next_step="check that a Steadyframe control plane listens at that address and look"
                " into its log; one that is only slow gets more time with --timeout SECONDS or"
                f" {connection.TIMEOUT_VARIABLE}",
            )
        return CliError(
            f"no control plane answers at {self.url} ({type(error).__name__}: {error})",
            exit_code=Exit.SERVER_AWAY,
        )

    def _other(self, what: str) -> CliError:
        return CliError(
            f"that is not a Steadyframe server: {self.url} answers, but {what}",
            exit_code=Exit.SERVER_AWAY,
            next_step="check host and port of --url or STEADYFRAME_URL, and whether a proxy stands"
            " in between",
        )

    def _checked(self, response: "httpx.Response") -> "httpx.Response":
        if response.is_success:
            return response
        problem = _problem(response)
        sentence = problem.get("detail") or problem.get("title")
        if not isinstance(sentence, str):
            told = f"{response.status_code} {response.reason_phrase}".strip()
            raise self._other(f"with {told} and not in our form")
        exit_code = _EXITS.get(response.status_code, Exit.SERVER_FAULT)
        if response.status_code == 401:  # noqa: PLR2004 - HTTP
            raise self._unknown(sentence)
        facts = {name: problem[name] for name in FACTS if name in problem}
        raise CliError(sentence, exit_code=exit_code, facts=facts)

    def _unknown(self, sentence: str) -> CliError:
        if self._token is None:
            return CliError(
                f"{self.url} wants a token, and none was found",
                exit_code=Exit.NOT_AUTHORISED,
                next_step=connection.no_token_step(),
            )
        return CliError(
            f"{self.url} does not take the token of {self._token.found_in}: {sentence}",
            exit_code=Exit.NOT_AUTHORISED,
        )

    def _decoded(self, response: "httpx.Response") -> Json:
        if not response.content:
            return {}
        answer = _object(response)
        if answer is None:
            raise self._other("not with the JSON of ours")
        return answer


def _object(response: "httpx.Response") -> Mapping[str, Json] | None:
    """The answer as a JSON object, or None where it is none."""
    try:
        answer = response.json()
    except (ValueError, RecursionError):
        return None
    return answer if isinstance(answer, Mapping) else None


def _problem(response: "httpx.Response") -> Mapping[str, Json]:
    """The problem document that a refusal of ours is; empty where it is something else."""
    if PROBLEM not in response.headers.get("Content-Type", ""):
        return {}
    return _object(response) or {}
