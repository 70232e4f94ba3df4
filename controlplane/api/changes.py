"""Carries out what operators ask: one transaction, once per idempotency key, or dry.

A dry run does the whole of it and rolls back, so that what it says is what would happen.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import Depends, Header, Query, Request
from fastapi.responses import JSONResponse

from controlplane.api import views
from controlplane.api.auth import Role, require
from controlplane.api.context import Context, Here
from controlplane.api.schemas import Because
from controlplane.services import change as changes
from controlplane.services.change import Act, Change, Once
from controlplane.services.tokens import Principal
from controlplane.store.transaction import Connection

Work = Callable[[Connection, Act], Change]
Key = Annotated[str | None, Header(alias="Idempotency-Key", pattern=r"^[A-Za-z0-9_-]{1,100}$")]


DryRun = Annotated[bool, Query(description="Say what would happen, and change nothing.")]


class _DryRun(Exception):  # noqa: N818 - not an error: the way to roll a transaction back
    """Carries the change out of the transaction that is rolled back."""

    def __init__(self, change: Change) -> None:
        super().__init__()
        self.change = change


@dataclass(frozen=True, slots=True, kw_only=True)
class Changing:
    """One request that changes something."""

    here: Context
    principal: Principal
    call: str  # method and path, part of what an idempotency key stands for
    key: str | None
    is_dry_run: bool

    def make(self, body: Because, work: Work, *, status: int = 200) -> JSONResponse:
        """Do `work` and answer with its subject and effects."""
        act = Act(
            actor=self.principal.actor,
            reason=body.reason,
            now=self.here.clock.now(),
            new_id=self.here.new_id,
        )
        if self.is_dry_run:
            return JSONResponse({"effects": list(self._rehearsed(work, act).effects)})
        answer, change = self._made(work, act, body)
        if change is None:  # answered before
            return JSONResponse(answer, status_code=status)
        for worker in change.woken:
            self.here.signals.notify(f"worker:{worker}")
        self.here.nudge()
        return JSONResponse({**answer, **change.secret}, status_code=status)

    def _made(self, work: Work, act: Act, body: Because) -> tuple[Any, Change | None]:
        once = self._once(body)
        with self.here.database.write() as conn:
            earlier = changes.earlier_answer(conn, once, now=act.now) if once else None
            if earlier is not None:
                return earlier, None
            change = work(conn, act)
            answer = {**views.plain(change.subject), "effects": list(change.effects)}
            if once:
                changes.keep_answer(conn, once, answer)
        return answer, change

    def _once(self, body: Because) -> Once | None:
        if self.key is None:
            return None
        request = [self.call, body.model_dump(mode="json")]
        return Once(principal=self.principal.id, key=self.key, request=request)

    def _rehearsed(self, work: Work, act: Act) -> Change:
        try:
            with self.here.database.write() as conn:
                raise _DryRun(work(conn, act))  # noqa: TRY301 - the raise is what rolls it back
        except _DryRun as rehearsed:
            return rehearsed.change


def _changing(role: Role) -> Callable[..., Changing]:
    def changing(
        request: Request,
        here: Here,
        principal: Annotated[Principal, Depends(require(role))],
        key: Key = None,
        dry_run: DryRun = False,  # noqa: FBT002 - FastAPI calls by name
    ) -> Changing:
        return Changing(
            here=here,
            principal=principal,
            call=f"{request.method} {request.url.path}",
            key=key,
            is_dry_run=dry_run,
        )

    return changing


ByOperator = Annotated[Changing, Depends(_changing(Role.OPERATOR))]
ByAdmin = Annotated[Changing, Depends(_changing(Role.ADMIN))]
