"""Run tokens: signed, expiring, naming organization, project, run, agent and capabilities. What an agent shows for recall."""

from __future__ import annotations

import contextlib
import os
import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import jwt

from otel_blackboard.config import Settings
from otel_blackboard.records import Tenant

SHORTEST_SECRET = 16
AUDIENCE = "otel-blackboard/run"
_STALE = 3600
"""Seconds after which a half-made secret belongs to no start that still runs."""


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
        if len(configured) < SHORTEST_SECRET:
            raise ValueError(f"BLACKBOARD_TOKEN_SECRET is shorter than {SHORTEST_SECRET} characters")
        return configured
    path = Path(settings.data) / "token-secret"
    path.parent.mkdir(parents=True, exist_ok=True)
    for left_over in path.parent.glob(f"{path.name}.*"):  # of a start that was killed
        with contextlib.suppress(FileNotFoundError):
            if time.time() - left_over.stat().st_mtime > _STALE:
                left_over.unlink()
    if not path.exists():
        # Whole or not at all, and the first of two processes wins: an empty secret would sign anybody's token.
        fresh = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
        with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(secrets.token_urlsafe(48))
        with contextlib.suppress(FileExistsError):
            path.hardlink_to(fresh)
        fresh.unlink()
    secret = path.read_text().strip()
    if len(secret) < SHORTEST_SECRET:
        raise ValueError(f"{path} holds no secret; remove it, and a new one is made (run tokens given out end with it)")
    return secret
