"""Wires one worker together, runs it until a signal, and takes it apart in order."""

import asyncio
import json
import logging
import os
import signal
from pathlib import Path
from typing import Any

from worker.agent import files
from worker.agent.agent import Agent
from worker.engine.engine import EngineStartError, LocalEngine, WeightsRefusedError
from worker.main import nvml
from worker.main.gpus import GpuSampler
from worker.main.settings import Settings
from worker.main.supervisor import Supervisor
from worker.server.viewer_server import ViewerServer

WORKER_NAME = "worker.json"

logger = logging.getLogger(__name__)


async def run(settings: Settings) -> None:
    """Serve until SIGTERM or SIGINT; then drain.

    Raises: StateDirInUseError, ConfigError; WeightsRefusedError once everything is taken apart.
    """
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    config = settings.worker_config()
    agent = Agent(settings.agent_config())
    gpus = GpuSampler(nvml.boards, period_s=settings.window_s)
    supervisor = Supervisor(
        LocalEngine(config),
        agent,
        length_bounds=config.model.first_forward_bounds,
        window_s=settings.window_s,
        start_errors=(EngineStartError,),
        final_errors=(WeightsRefusedError,),
        gpus=gpus.readings,
    )
    server = ViewerServer(supervisor, rate_fps=settings.rate_fps)
    port = await server.open(host=settings.host, port=settings.port)
    address = f"ws://{settings.host}:{port}"
    _write_worker_file(settings, address=address, incarnation=agent.incarnation)
    logger.info("worker_listening address=%s", address)
    gpus.start()
    try:
        await _serve(supervisor, agent, address=address, stopping=stopping)
    finally:
        gpus.stop()
        supervisor.drain()
        await server.close()
        await supervisor.stop()
        await asyncio.to_thread(agent.stop, flush_s=settings.flush_s)
        logger.info("worker_stopped")


def worker_file(state_dir: Path) -> dict[str, Any] | None:
    """What the last run wrote about itself; None if none did."""
    path = state_dir / WORKER_NAME
    if not path.exists():
        return None
    content: dict[str, Any] = json.loads(path.read_text())
    return content


async def _serve(
    supervisor: Supervisor, agent: Agent, *, address: str, stopping: asyncio.Event
) -> None:
    """Run the supervisor's tasks until `stopping`; the first that fails ends the worker."""
    on_change = supervisor.attach(asyncio.get_running_loop())
    tasks = [
        asyncio.create_task(supervisor.watch_engine()),
        asyncio.create_task(supervisor.report_process()),
        asyncio.create_task(supervisor.until_given_up()),
        asyncio.create_task(stopping.wait()),
    ]
    bring_up = asyncio.create_task(supervisor.bring_up())
    try:
        # The engine first: what it starts with is decided by the disk, not by the network.
        await asyncio.wait(
            [asyncio.create_task(supervisor.has_tried.wait()), bring_up, tasks[-1]],
            return_when=asyncio.FIRST_COMPLETED,
        )
        if supervisor.final_error:  # then nobody is told of a worker that never was
            raise supervisor.final_error
        agent.start(on_change=on_change, address=address)
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in (*tasks, bring_up):
            task.cancel()
        await asyncio.gather(*tasks, bring_up, return_exceptions=True)


def _write_worker_file(settings: Settings, *, address: str, incarnation: str) -> None:
    content = {
        "fleet": settings.fleet,
        "worker": settings.worker,
        "address": address,
        "incarnation": incarnation,
        "pid": os.getpid(),
    }
    files.replace(settings.state_dir / WORKER_NAME, json.dumps(content, indent=1).encode())
