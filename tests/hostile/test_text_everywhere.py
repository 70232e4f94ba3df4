"""Text of others in every field they can set: refused by name, or kept as it is and shown as text.

The fields are found in the schemas (`surfaces`), so a new one is tried by itself.
"""

import itertools
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests import tally
from tests.api.control_plane import ControlPlane
from tests.hostile import reading
from tests.hostile.surfaces import Surface, surfaces
from tests.web import visitor

pytestmark = pytest.mark.timeout(600)
NUMBERS = itertools.count(1000)
TEXTS = [
    "<script>alert(1)</script>",
    '"><xhostile onhostile=1>',
    "' onhostile='1",
    "</td></table><xhostile>",
    "javascript:alert(1)",
    "{{7777*7}}",
    "{% raw %}<xhostile>",
    "${7777*7}",
    "%s%n%(x)s%%",
    "\x1b[31mred\x1b[0m",
    "\u202egnp.exe",
    "\u2028\u2029\ufeff",
    "a\x00b",
    "\x00",
    "🎥" * 20,
    "x" * 10_000,
    "../../etc/passwd",
    "'; DROP TABLE fleets;--",
    "\ud800",
    "a\r\nSet-Cookie: x=1",
    "",
    " ",
    "NaN",
    "=1+1",
]
# Somebody else's text, in words or in anything that UTF-8 can carry, with our markup in it.
hostile = st.one_of(
    st.text(max_size=60),
    st.tuples(st.text(max_size=8), st.sampled_from(TEXTS[:8]), st.text(max_size=8)).map("".join),
)
MARKUP = TEXTS[0]
# Kept, or of no consequence, and answered by no call: whoever adds a field looks where it shows.
NOT_SERVED: set[tuple[str, str | int]] = set()
# Refusals that are not about the value: whose it is, or what is there.
_ABOUT_STATE = {403, 404, 409}
_MALFORMED = 400
SAID = {200, 201, 202, 204, 400, 422, *_ABOUT_STATE}


@pytest.fixture
def peopled(sqlite_plane: ControlPlane) -> ControlPlane:
    """A fleet with a canary in preflight, so that every page and every call has its subject."""
    reading.people(sqlite_plane)
    return sqlite_plane


@pytest.mark.slow
def test_every_text_in_every_field_on_either_database(plane: ControlPlane) -> None:
    """PostgreSQL has texts of its own that it cannot keep: NUL, lone surrogates."""
    reading.people(plane)
    _try_every_text(plane)


def _try_every_text(peopled: ControlPlane) -> None:
    """Each field on its own, the rest of its document as it should be."""
    session = visitor.admin(peopled)
    num_cases = num_kept = 0
    unseen = set()
    for surface in surfaces(peopled):
        for place in surface.targets("text"):
            kept = [text for text in TEXTS if _is_kept(peopled, surface, place, text)]
            num_cases += len(TEXTS)
            num_kept += len(kept)
            if MARKUP in kept and not _is_shown(peopled, kept[-1]):
                unseen.add((surface.name, place[-1]))
        # What was kept stays, so one look after each surface sees it all.
        reading.check_pages(peopled, session)
    reading.check_ticks(peopled)
    assert unseen == NOT_SERVED
    tally.note("texts_in_fields", test=_name(peopled), count=num_cases)
    assert num_cases > 2000
    assert num_kept > 200, "refusing everything would prove nothing"


@settings(
    max_examples=40,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(data=st.data())
def test_any_text_in_any_field(peopled: ControlPlane, data: st.DataObject) -> None:
    surface, place = data.draw(st.sampled_from(list(_all_places(peopled))))
    text = data.draw(hostile)
    if _is_kept(peopled, surface, place, text):
        reading.check_pages(peopled, visitor.admin(peopled))


def _all_places(plane: ControlPlane) -> Iterator[tuple[Surface, tuple[str | int, ...]]]:
    for surface in surfaces(plane):
        for place in surface.targets("text"):
            yield surface, place


def _is_kept(
    plane: ControlPlane, surface: Surface, place: tuple[str | int, ...], text: str
) -> bool:
    """Send it. A refusal must be one, and say which field it is about."""
    document = surface.with_value(place, text)
    try:
        said = surface.send(plane, document, number=next(NUMBERS))
    except (UnicodeEncodeError, ValueError):
        return False  # protobuf carries no lone surrogate at all
    where = (surface.name, place, text[:40], said)
    assert said.status in SAID, where
    if said.is_taken or said.status in _ABOUT_STATE or said.status == _MALFORMED:
        return said.is_taken
    assert said.names(place), where
    return False


def _is_shown(plane: ControlPlane, text: str) -> bool:
    """Whether an answer has it as it was sent, by the one rule there is for each sender."""
    # A NUL is left out of what a worker sends; a reason loses the blanks around it.
    spellings = {text, text.replace("\x00", ""), text.strip()}
    return not spellings.isdisjoint(reading.texts(reading.answers(plane)))


def _name(plane: ControlPlane) -> str:
    return f"text_everywhere[{plane.parts.context.database.url.partition(':')[0]}]"
