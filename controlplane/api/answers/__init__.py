"""What answers look like, for the OpenAPI schema: nothing is parsed or checked with these.

`views` writes the answers; tests hold the two together, for every operation and over live answers.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from controlplane.api.answers.canaries import (
    Canary,
    ChangedCanary,
    Decision,
    Explanation,
    FullCanary,
    Quality,
    ReportedQuality,
    TakenRequest,
    Transition,
    Verified,
)
from controlplane.api.answers.catalogue import ChangedPolicy, Draft, Flag, FullPolicy, Policy
from controlplane.api.answers.fleets import (
    Alive,
    ChangedFleet,
    ChangedWorker,
    Explained,
    Fleet,
    Readiness,
    Worker,
)
from controlplane.api.answers.form import Page
from controlplane.api.answers.ledger import (
    Attested,
    ChangedQualification,
    FullQualification,
    Qualification,
)
from controlplane.api.answers.office import (
    Act,
    ChangedToken,
    Imported,
    MadeToken,
    Session,
    Token,
    Weekly,
)
from controlplane.contract.messages import DesiredState

_CHANGE = "POST /v1/fleets/{fleet}"
_WORKER = f"{_CHANGE}/workers/{{worker}}"
# By operation: status and form of the answer to what was done. Rehearsals and refusals are the same
# everywhere, and OTLP answers in a form of its own.
ANSWERS: Mapping[str, tuple[int, Any]] = MappingProxyType(
    {
        "GET /livez": (200, Alive),
        "GET /readyz": (200, Readiness),
        "GET /v1/fleets": (200, Page[Fleet]),
        "POST /v1/fleets": (201, ChangedFleet),
        "GET /v1/fleets/{fleet}": (200, Fleet),
        **{
            f"{_CHANGE}/{change}": (200, ChangedFleet)
            for change in ("mode", "stop-the-line", "lift")
        },
        "GET /v1/fleets/{fleet}/workers": (200, Page[Worker]),
        "GET /v1/fleets/{fleet}/workers/{worker}": (200, Worker),
        "GET /v1/fleets/{fleet}/workers/{worker}/explain": (200, Explained),
        "GET /v1/fleets/{fleet}/workers/{worker}/desired": (200, DesiredState),
        f"{_WORKER}/registration": (200, DesiredState),
        **{
            f"{_WORKER}/{change}": (200, ChangedWorker)
            for change in ("pins", "unpin", "cordon", "uncordon", "restore")
        },
        "GET /v1/flags": (200, Page[Flag]),
        "GET /v1/policies": (200, Page[Policy]),
        "POST /v1/policies": (201, ChangedPolicy),
        "POST /v1/policies/lint": (200, Draft),
        "GET /v1/policies/{name}": (200, FullPolicy),
        "GET /v1/canaries": (200, Page[Canary]),
        "POST /v1/canaries": (201, ChangedCanary),
        "GET /v1/canaries/{name}": (200, FullCanary),
        "GET /v1/canaries/{name}/explanation": (200, Explanation),
        "GET /v1/canaries/{name}/decisions": (200, Page[Decision]),
        "GET /v1/canaries/{name}/transitions": (200, Page[Transition]),
        "POST /v1/canaries/{name}/requests": (202, TakenRequest),
        "GET /v1/canaries/{name}/quality": (200, Page[Quality]),
        "POST /v1/canaries/{name}/quality": (201, ReportedQuality),
        "GET /v1/decisions/{decision_id}": (200, Decision),
        "POST /v1/decisions/{decision_id}/verify": (200, Verified),
        "GET /v1/qualifications": (200, Page[Qualification]),
        "GET /v1/qualifications/{number}": (200, FullQualification),
        "POST /v1/qualifications/{number}/revoke": (200, ChangedQualification),
        "POST /v1/fleets/{fleet}/attestations": (201, Attested),
        "GET /v1/sessions": (200, Page[Session]),
        "GET /v1/audit": (200, Page[Act]),
        "GET /v1/tokens": (200, Page[Token]),
        "POST /v1/tokens": (201, MadeToken),
        "POST /v1/tokens/{token_id}/revoke": (200, ChangedToken),
        "GET /v1/reports/weekly": (200, Weekly),
        "POST /v1/imports/sessions": (201, Imported),
    }
)
