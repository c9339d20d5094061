"""What an agent imports loads none of the service's libraries."""

from __future__ import annotations

import json
import subprocess
import sys

HEAVY = (
    "clickhouse_connect chdb minio grpc fastapi starlette uvicorn pydantic pydantic_settings google.protobuf orjson numpy "
    "jwt genai_prices backports.zstd"
).split()


def test_the_face_for_agents_loads_nothing_of_the_service() -> None:
    code = "import sys, json, otel_blackboard; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = json.loads(done.stdout)
    assert "otel_blackboard" in loaded
    assert [name for name in HEAVY if any(m == name or m.startswith(name + ".") for m in loaded)] == []
    own = {name for name in loaded if name.startswith("otel_blackboard.")}
    assert not {name for name in own if name.split(".")[1] in ("collector", "exporter", "query", "service", "cli")}


def test_the_command_in_a_light_install_says_what_to_install() -> None:
    program = (
        "import sys; sys.modules['click'] = None; sys.argv = ['otel-blackboard', 'serve']; import otel_blackboard.cli"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert ended.returncode == 1
    assert ended.stderr.strip().endswith("pip install 'otel-blackboard[embedded]'")
    assert "Traceback" not in ended.stderr
