"""Policies: checked, kept, and found again by the digest that canaries hold."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from controlplane.domain import policy_document
from controlplane.domain.policy import Policy
from controlplane.services.change import Act, Change
from controlplane.services.documents import load_yaml
from controlplane.store import audit as audit_store
from controlplane.store import flags as flag_store
from controlplane.store import policies as policy_store
from controlplane.store.policies import StoredPolicy
from controlplane.store.transaction import Connection


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """A document that holds together, and what it asks in words."""

    policy: object  # the canonical document
    describes: tuple[str, ...]


def of_digest(conn: Connection, digest: str) -> Policy:
    """The policy that a canary was started under, whatever has been uploaded since.

    Raises:
        NotFoundError: no policy has that digest.
        InvalidValueError: the catalogue no longer has what it speaks of.
    """
    return _parsed(conn, policy_store.get(conn, digest=digest))


def latest(conn: Connection, name: str) -> Policy:
    """The newest policy named `name`. Raises as `of_digest` does."""
    return _parsed(conn, policy_store.latest(conn, name=name))


def show(conn: Connection, name: str) -> Mapping[str, object]:
    """The newest policy named `name`, its document and what it asks in words. Raises likewise."""
    stored = policy_store.latest(conn, name=name)
    described = policy_document.describe(_parsed(conn, stored))
    return {**summary(stored), "document": json.loads(stored.document), "describes": described}


def list_latest(conn: Connection) -> tuple[Mapping[str, object], ...]:
    """The newest policy of each name, without the documents."""
    return tuple(summary(stored) for stored in policy_store.list_latest(conn))


def summary(stored: StoredPolicy) -> Mapping[str, object]:
    """What a list says of one policy."""
    return {
        "name": stored.name,
        "flag": stored.flag,
        "summary": stored.summary,
        "digest": stored.digest,
        "created_at": stored.created_at,
    }


def lint(conn: Connection, document: str) -> Draft:
    """Check `document` and say what it asks; nothing is kept.

    Raises:
        InvalidValueError: naming the key, its value and what is allowed.
    """
    policy = policy_document.parse(load_yaml(document), catalogue=flag_store.catalogue(conn))
    return Draft(
        policy=json.loads(policy.document), describes=tuple(policy_document.describe(policy))
    )


def add(conn: Connection, document: str, *, act: Act) -> Change:
    """Keep the policy in `document`; canaries that run go on under the one they started with.

    Raises:
        InvalidValueError: as `lint`.
    """
    policy = policy_document.parse(load_yaml(document), catalogue=flag_store.catalogue(conn))
    is_new = put(conn, policy, now=act.now)
    if is_new:
        audit_store.append(
            conn,
            actor=act.actor,
            action="policy.added",
            target=policy.name,
            reason=act.reason,
            detail={"digest": policy.digest},
            now=act.now,
        )
    first = (
        f"canaries that start from now on under {policy.name} are judged by {policy.digest[:12]}"
        if is_new
        else f"nothing changes: {policy.name} {policy.digest[:12]} is kept already"
    )
    return Change(
        subject=summary(policy_store.get(conn, digest=policy.digest)),
        effects=(first, *policy_document.describe(policy)),
    )


def put(conn: Connection, policy: Policy, *, now: datetime) -> bool:
    """Keep `policy`; whether it was new."""
    return policy_store.put(conn, policy, now=now)


def _parsed(conn: Connection, stored: StoredPolicy) -> Policy:
    catalogue = flag_store.catalogue(conn)
    return policy_document.parse(json.loads(stored.document), catalogue=catalogue)
