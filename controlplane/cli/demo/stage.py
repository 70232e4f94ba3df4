"""The demo's processes and its folder: a control plane, workers, viewers; and their sure end.

Everything lives in one temporary folder and on free ports, so that nothing of the machine's own is
touched and two demos can run side by side.
"""

import json
import os
import shutil
import socket
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from controlplane.cli import connection, tokens
from controlplane.cli.client import Client
from controlplane.cli.demo.viewers import Viewers
from controlplane.cli.demo.watching import FLEET
from controlplane.cli.exits import CliError, Exit
from controlplane.clock import SystemClock
from controlplane.cluster.janitor import Janitor
from controlplane.cluster.local import Happened, LocalCluster, WorkerProgram
from controlplane.cluster.processes import Child, stop_all

WORKERS: Final = ("worker-a", "worker-b", "worker-c")
# A rank's, above what it uses when warm: five lengths under `fused_all`, which keeps 8 MiB each.
MEMORY_LIMIT_MIB: Final = 40
# A window a second, so that a canary of half a minute has evidence.
WINDOW_S: Final = 1.0
SERVER_READY_WITHIN_S: Final = 40.0
# Workers that start take every core for a while.
ANSWER_WITHIN_S: Final = 20.0

# What the control plane of the demo is told: a tick each second, a quiet log in the folder.
_SERVER_ENVIRONMENT: Final = {"STEADYFRAME_TICK_S": "1"}
# Inherited settings of the person's own control plane must not leak into the demo's.
_NOT_INHERITED: Final = "STEADYFRAME_"


class Stage:
    """The demo's processes. Make it with `opened`; call everything from one thread."""

    def __init__(self, folder: Path, *, janitor: Janitor) -> None:
        self.folder = folder
        self.clock = SystemClock()
        self.cluster = LocalCluster(clock=self.clock)
        self.viewers = Viewers(folder / "viewers", clock=self.clock)
        self._janitor = janitor
        # Chosen once, so that workers find a control plane that was started again.
        self._port = free_port()
        self._server: Child | None = None
        self._client: Client | None = None

    @property
    def client(self) -> Client:
        """A client with the admin token of the demo's control plane."""
        assert self._client is not None, "start_server comes first"
        return self._client

    @property
    def state_dir(self) -> Path:
        """The control plane's own folder."""
        return self.folder / "control-plane"

    @property
    def token_file(self) -> Path:
        """Where the demo's admin token is."""
        return self.state_dir / connection.TOKEN_FILE

    def start_server(self, *, wait: Callable[[float], None]) -> None:
        """Start `steadyframe serve` on a free port and wait until it answers.

        Raises: CliError: it does not.
        """
        self._server = Child(
            [sys.executable, "-m", "controlplane.cli.main", "serve"],
            log=self.folder / "control-plane.log",
            environment={
                **_SERVER_ENVIRONMENT,
                "STEADYFRAME_PORT": str(self._port),
                "STEADYFRAME_STATE_DIR": str(self.state_dir),
            },
        )
        self._janitor.watch(self._server.pid)
        give_up_at = self.clock.monotonic() + SERVER_READY_WITHIN_S
        while not self._is_server_ready():
            if self._server.exit_code() is not None or self.clock.monotonic() > give_up_at:
                raise CliError(
                    "the demo's control plane did not start",
                    exit_code=Exit.DEMO_FAILED,
                    detail=self._server.last_lines(),
                )
            wait(0.1)

    def kill_server(self) -> None:
        """End the control plane with SIGKILL, as a machine that fails would."""
        assert self._server is not None, "start_server comes first"
        self._server.kill()

    def start_workers(self) -> None:
        """Start every worker with a token of its own."""
        for name in WORKERS:
            program = self._worker_program(name)
            self.cluster.add(program)
            pid = self.cluster.pid(fleet=FLEET, worker=name)
            assert pid is not None, f"{name} was started above"
            self._janitor.watch(pid)

    def start_viewers(self, lengths: Sequence[int]) -> None:
        """Start the synthetic viewers of each worker, one session after the other."""
        for number, name in enumerate(WORKERS):
            pid = self.viewers.start(name, url=self._viewer_url(name), lengths=lengths, seed=number)
            self._janitor.watch(pid)

    def change_viewers(self, name: str, lengths: Sequence[int]) -> None:
        """Other viewers for one worker, who bring these lengths from now on."""
        self.viewers.stop_watching(name)
        number = WORKERS.index(name)
        pid = self.viewers.start(name, url=self._viewer_url(name), lengths=lengths, seed=number)
        self._janitor.watch(pid)

    def tend(self) -> tuple[Happened, ...]:
        """Keep the workers running; what happened to their processes."""
        happened = self.cluster.tend()
        for each in happened:
            pid = self.cluster.pid(fleet=FLEET, worker=each.worker)
            if pid is not None:
                self._janitor.watch(pid)
        return happened

    def server_exit_code(self) -> int | None:
        """None while the control plane runs."""
        return self._server.exit_code() if self._server else None

    def logs(self) -> str:
        """The end of every log: for a scene that ended otherwise."""
        paths = sorted(self.folder.glob("*.log"))
        return "\n".join(
            f"--- {path.name}\n" + "\n".join(path.read_text(errors="replace").splitlines()[-8:])
            for path in paths
        )

    def close(self) -> None:
        """End every process, viewers first: a viewer that leaves is no failure of a worker."""
        self.viewers.stop()
        self.cluster.stop()
        if self._client:
            self._client.close()
        if self._server:
            stop_all([self._server])

    def _is_server_ready(self) -> bool:
        address = self.state_dir / connection.ADDRESS_FILE
        if not address.exists() or not self.token_file.exists():
            return False
        url = json.loads(address.read_text())["url"]
        if self._client is None:
            self._client = self._as_admin(url)
        try:
            self._client.get("/livez")
        except CliError:
            return False
        return True

    def _as_admin(self, url: str) -> Client:
        found = str(self.token_file)
        token = connection.Token(text=connection.read_token(self.token_file), found_in=found)
        return Client(url, token=token, timeout_s=ANSWER_WITHIN_S)

    def _worker_program(self, name: str) -> WorkerProgram:
        home = self.folder / name
        home.mkdir(mode=0o700)
        config = home / "config.json"
        config.write_text(json.dumps(self._worker_settings(name, home)))
        return WorkerProgram(
            fleet=FLEET,
            worker=name,
            argv=(sys.executable, "-m", "worker.main", "run", "--config", str(config)),
            log=self.folder / f"{name}.log",
            environment=(("OMP_NUM_THREADS", "1"),),
        )

    def _worker_settings(self, name: str, home: Path) -> dict[str, object]:
        token = self.client.post(
            "/v1/tokens",
            {"role": "worker", "fleet": FLEET, "worker": name, "reason": "the demo's own worker"},
        )["token"]
        tokens.write_secret(home / "token", token)
        return {
            "fleet": FLEET,
            "worker": name,
            "hardware": "cpu",
            "preset": "demo",
            "memory_limit_mib": MEMORY_LIMIT_MIB,
            "url": self.client.url,
            "token_file": str(home / "token"),
            "state_dir": str(home / "state"),
            # Kept over a restart, so that the viewers find the worker again.
            "port": free_port(),
            "window_s": WINDOW_S,
        }

    def _viewer_url(self, name: str) -> str:
        """Where the worker wrote that viewers reach it."""
        told = json.loads((self.folder / name / "state" / "worker.json").read_text())
        return str(told["address"])


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def opened() -> Iterator[Stage]:
    """A stage in a folder of its own; however this ends, no process and no file is left."""
    for name in [name for name in os.environ if name.startswith(_NOT_INHERITED)]:
        del os.environ[name]
    folder = Path(tempfile.mkdtemp(prefix="steadyframe-demo-"))
    janitor = Janitor(folder)
    stage = Stage(folder, janitor=janitor)
    try:
        yield stage
    finally:
        stage.close()
        shutil.rmtree(folder, ignore_errors=True)
        janitor.dismiss()
