"""Session records from a plain OpenTelemetry SDK: at most once, so not for what must be proven.

python send.py URL FLEET WORKER TOKEN_FILE NUM_SESSIONS
"""

import hashlib
import secrets
import sys
from pathlib import Path

import httpx
from opentelemetry._logs import LogRecord, SeverityNumber
from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import BatchLogRecordProcessor
from opentelemetry.sdk.resources import Resource

FLAGS = {"fused_allreduce": "nccl"}
STACK = {"server": "1.0"}


def digest(parts: dict[str, str]) -> str:
    """Fingerprint of a software stack, as the control plane makes it."""
    lines = "\n".join(f"{part}={parts[part]}" for part in sorted(parts))
    return hashlib.sha256(lines.encode()).hexdigest()[:16]


def main(url: str, fleet: str, worker: str, token_file: str, number: str) -> None:
    """Register one life of the worker, then send a start and an end for each session."""
    token = {"Authorization": f"Bearer {Path(token_file).read_text().strip()}"}
    incarnation = secrets.token_hex(16)
    life = {
        "fleet": fleet,
        "worker": worker,
        "incarnation": incarnation,
        "hardware": "cpu",
        "stack": STACK,
        "generation": 0,
        "flags": FLAGS,
        "capabilities": {"fused_allreduce": ["nccl"]},
    }
    path = f"{url}/v1/fleets/{fleet}/workers/{worker}/registration"
    httpx.post(path, json=life, headers=token, trust_env=False).raise_for_status()
    resource = Resource(
        {
            "service.instance.id": incarnation,
            "steadyframe.fleet": fleet,
            "steadyframe.worker": worker,
            "steadyframe.hardware": "cpu",
            "steadyframe.stack": digest(STACK),
        }
    )
    provider = LoggerProvider(resource=resource)
    exporter = OTLPLogExporter(endpoint=f"{url}/v1/logs", headers=token)
    provider.add_log_record_processor(BatchLogRecordProcessor(exporter))
    logger = provider.get_logger("send.py")

    def emit(event: str, **attributes: object) -> None:
        record = LogRecord(
            event_name=event, severity_number=SeverityNumber.INFO, attributes=attributes
        )
        logger.emit(record)

    seq = 0
    for _ in range(int(number)):
        common = {"session": secrets.token_hex(16), "flags": FLAGS, "first_forward_length": 77}
        emit("session.started", seq=seq + 1, **common)
        counters = {"num_frames": 252, "num_first_chunk_frames": 4, "streamed_s": 10.0}
        emit("session.ended", seq=seq + 2, outcome="completed", **common, **counters)
        seq += 2
    provider.shutdown()  # sends what is queued, once; what fails now is gone


if __name__ == "__main__":
    main(*sys.argv[1:])
