"""Every setting of the service once: name, default, unit, meaning.

Each is the environment variable BLACKBOARD_<NAME> and, where `serve` has an option for it, that option. README's table
is tested against this module.
"""

from __future__ import annotations

import ipaddress
from pathlib import Path

from pydantic import Field, SecretStr
from pydantic_settings import BaseSettings, SettingsConfigDict


class Settings(BaseSettings):
    model_config = SettingsConfigDict(env_prefix="BLACKBOARD_", extra="ignore", frozen=True)

    # Where things are kept
    data: Path = Field(Path("blackboard-data"), description="Folder of the embedded default: chDB rows, packed bodies")
    clickhouse: str = Field(
        "", description="DSN of a ClickHouse server, `clickhouse://user:password@host:8123`; empty = chDB in process"
    )
    database: str = Field("blackboard", description="Database that holds the tables; made when it is missing")
    s3: str = Field(
        "",
        description="Body store, `http(s)://access-key:secret-key@host:port/bucket`; empty = a folder under `data`",
    )
    s3_region: str = Field("us-east-1", description="Region that S3 requests are signed for")

    # Doors
    otlp_grpc: str = Field("127.0.0.1:4317", description="Address of the OTLP/gRPC door; empty = closed")
    otlp_http: str = Field("127.0.0.1:4318", description="Address of the OTLP/HTTP door; empty = closed")
    api: str = Field("127.0.0.1:8787", description="Address of the query service; empty = closed")
    keys_file: Path | None = Field(None, description="JSON file of API keys (hashes); needed on any other address")
    token_secret: SecretStr = Field(
        SecretStr(""), description="Secret that signs run tokens, shared by all workers; empty = one kept under `data`"
    )
    token_lifetime: int = Field(86_400, description="Longest lifetime of a run token, seconds", gt=0)

    # Limits
    max_request_bytes: int = Field(48 * 1024 * 1024, description="Largest OTLP request, bytes decompressed", gt=0)
    max_queue_bytes: int = Field(
        192 * 1024 * 1024, description="Decoded requests waiting for a flush, bytes; more is refused", gt=0
    )
    flush_bytes: int = Field(16 * 1024 * 1024, description="Largest flush, bytes of requests", gt=0)
    store_timeout: int = Field(
        8,
        description="Seconds a store may stay silent, and a request wait for its turn; then senders are asked to send "
        "again and readers get 503",
        gt=0,
    )
    retry_after: int = Field(2, description="Seconds a refused sender is asked to wait", gt=0)
    shutdown_timeout: int = Field(20, description="Seconds a stop may take to finish what was taken", gt=0)

    # What is made of it
    capture_artifacts: bool = Field(True, description="Make `tool_result` and `agent_output` artifacts")
    capture_prompts: bool = Field(True, description="Make `llm_prompt` artifacts")
    action_ledger: bool = Field(True, description="Serve the action ledger")
    retrieval: bool = Field(False, description="Serve recall to agents")
    plan_state_persistence: bool = Field(False, description="List a `tool_path` artifact for each pass")
    ledger_recall_calls: bool = Field(False, description="Keep `__query_blackboard` calls in the ledger")
    recall_characters: int = Field(20_000, description="Longest `content` of a recall result, characters", gt=0)
    characters_per_token: int = Field(4, description="Characters counted as one token in `token_size`", gt=0)
    summary_characters: int = Field(500, description="Longest summary shown, characters; 500 are stored", gt=0, le=500)
    run_idle_timeout: int = Field(3_600, description="Seconds after which an open run is shown as interrupted", gt=0)
    organization: str = Field("default", description="Organization of data that names none (without keys)")
    project: str = Field("default", description="Project of data that names none (without keys)")


def is_loopback(address: str) -> bool:
    """Whether `host:port` can be reached from this machine only."""
    host = address.rsplit(":", 1)[0].strip("[]")
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def split_address(address: str) -> tuple[str, int]:
    """`host:port` or `[v6]:port` into its parts. Raises ValueError that names the address."""
    host, separator, port = address.rpartition(":")
    if not separator or not host or not port.isdigit() or int(port) > 65535:
        raise ValueError(f"address {address!r} is not host:port")
    return host.strip("[]"), int(port)
