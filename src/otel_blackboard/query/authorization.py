"""Who may ask what of the REST routes, decided in one place before anything is read or looked up."""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine
from typing import Any

from clickhouse_connect.driver.exceptions import ClickHouseError
from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException

from otel_blackboard.access import Credential, KeyRing, allows
from otel_blackboard.config import Settings
from otel_blackboard.exporter.bodies import BodyError
from otel_blackboard.exporter.clickhouse import StoreError
from otel_blackboard.failures import log_failure
from otel_blackboard.query.board import MovedRun, NoSuchRun
from otel_blackboard.query.problems import Problem
from otel_blackboard.records import Tenant

log = logging.getLogger(__name__)


class Access:
    """The one place where a request is allowed or refused. Who asks and whether the role may is decided before any
    look-up; a project of others is answered like one that does not exist."""

    def __init__(self, keys: KeyRing | None, settings: Settings) -> None:
        self._keys, self._settings = keys, settings

    def credential(self, request: Request, permission: str) -> Credential | None:
        if self._keys is None:
            return None
        credential = self._keys.find(request.headers.get("authorization"))
        if credential is None:
            raise Problem("unauthenticated", "Send `Authorization: Bearer <key>`.", {"WWW-Authenticate": "Bearer"})
        if not allows(credential.role, permission):
            raise Problem("forbidden", f"The role {credential.role!r} may not {permission}.")
        return credential

    def tenant(self, credential: Credential | None, project_id: str, organization_id: str | None) -> Tenant:
        if credential is None:
            return Tenant(organization_id or self._settings.organization, project_id)
        if project_id not in credential.projects or organization_id not in (None, credential.organization_id):
            raise Problem("not-found")
        return Tenant(credential.organization_id, project_id)


LARGEST_BODY = 1024 * 1024
"""Bytes of a request to this API: a question, never data."""


FORESEEN = (Problem, HTTPException, RequestValidationError, ClickHouseError, StoreError, BodyError, MovedRun, NoSuchRun)
"""What the application has an answer for."""


class Guarded(APIRoute):
    """Decides who may ask, and how much, before anything of the request is read: FastAPI reads a body first, whatever its
    size, and would answer 422."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def guarded(request: Request) -> Response:
            for dependency in self.dependant.dependencies:
                if who := getattr(dependency.call, "who", None):
                    who(request)
            sent = request.headers.get("content-length", "")
            if "transfer-encoding" in request.headers or (sent.isdecimal() and int(sent) > LARGEST_BODY):
                raise Problem("too-large", f"Send at most {LARGEST_BODY} bytes, with a Content-Length.")
            try:
                return await handle(request)
            except FORESEEN:
                raise
            except Exception as error:
                # Here and not in a handler of the application: that would have the server log the text as well.
                log_failure(log, f"{request.method} {self.path}", error)
                raise Problem("internal") from None

        return guarded
