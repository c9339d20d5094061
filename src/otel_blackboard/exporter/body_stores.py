"""Which body store the settings name."""

from __future__ import annotations

from otel_blackboard.config import Settings
from otel_blackboard.exporter.bodies import BodyStore


def open_body_store(settings: Settings) -> BodyStore:
    """The store that the settings name. Touches nothing outside the process: `check()` does.

    Raises ValueError when the S3 URL cannot be understood (without quoting it, since it holds the secret).
    """
    # Imported here so that the embedded default starts without the S3 SDK.
    if settings.s3:
        from otel_blackboard.exporter.s3_store import S3Store

        return S3Store(settings.s3, settings.s3_region, settings.store_timeout)
    from otel_blackboard.exporter.folder_store import FolderStore

    return FolderStore(settings.data / "bodies")
