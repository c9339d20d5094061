"""Run tokens: signed, expiring, naming organization, project, run, agent and capabilities. What an agent shows for recall."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import jwt

from otel_blackboard.config import Settings
from otel_blackboard.records import Tenant

AUDIENCE = "otel-blackboard/run"
CAPABILITIES = ("query_blackboard",)


class InvalidToken(Exception):
    """Not one of ours, changed, or expired. Which of them is not told."""


@dataclass(frozen=True, slots=True)
class RunContext:
    tenant: Tenant
    run_id: str
    agent_id: str
    capabilities: tuple[str, ...]


def make(secret: str, context: RunContext, now_s: float, lifetime_s: int) -> tuple[str, int]:
    """(token, unix second at which it expires)."""
    expires = int(now_s) + lifetime_s
    claims = {
        "aud": AUDIENCE,
        "exp": expires,
        "org": context.tenant.organization_id,
        "prj": context.tenant.project_id,
        "run": context.run_id,
        "agt": context.agent_id,
        "cap": list(context.capabilities),
    }
    return jwt.encode(claims, secret, algorithm="HS256"), expires


def read(secret: str, token: str, clock_s: Callable[[], float]) -> RunContext:
    """Raises InvalidToken."""
    try:
        claims = jwt.decode(
            token, secret, algorithms=["HS256"], audience=AUDIENCE, options={"verify_exp": False, "require": ["exp"]}
        )
        if float(claims["exp"]) <= clock_s():
            raise InvalidToken
        capabilities: Sequence[str] = claims["cap"]
        return RunContext(
            Tenant(str(claims["org"]), str(claims["prj"])), str(claims["run"]), str(claims["agt"]), tuple(capabilities)
        )
    except (jwt.InvalidTokenError, KeyError, TypeError, ValueError) as error:
        raise InvalidToken from error


def secret_of(settings: Settings) -> str:
    """The signing secret: the one set, which all workers share, else one made once and kept under the data folder."""
    if configured := settings.token_secret.get_secret_value():
        return configured
    path = Path(settings.data) / "token-secret"
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return path.read_text().strip()
    with os.fdopen(descriptor, "w") as file:
        file.write(made := secrets.token_urlsafe(48))
    return made
