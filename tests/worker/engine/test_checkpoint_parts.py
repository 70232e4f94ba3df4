"""What the ranks of a running group hold of a checkpoint, and how they tell that they get on."""

import asyncio
import contextlib
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from tests.worker.engine.conftest import Stand
from tests.worker.model import folders
from worker import config, shapes
from worker.config import MIB, CheckpointSource, WorkerConfig
from worker.engine import rank_weights, reports, wiring
from worker.engine.engine import LocalEngine
from worker.model import checkpoint
from worker.parallel import channel
from worker.parallel.channel import Channel, Message, PeerLostError

FLOAT32_BYTES = 4
# Of 54 MiB that one of four ranks need not hold: what else differs between groups of one and four.
NOISE_BYTES = 16 * MIB


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> WorkerConfig:
    """72 MiB of products."""
    folder = tmp_path_factory.mktemp("large")
    digest = folders.written(folder, folders.LARGE)
    source = CheckpointSource(folder=str(folder), digest=digest)
    return replace(config.tiny(folders.LARGE), checkpoint=source)


def _own_bytes(pid: int) -> int:
    """Memory of this process alone: neither of files nor shared with the fork server."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return sum(int(ln.split()[1]) * 1024 for ln in lines if ln.startswith("Private_Dirty:"))


def _most_of_a_rank(stand: Stand, worker: WorkerConfig, *, num_ranks: int) -> int:
    engine = stand.started(replace(worker, num_ranks=num_ranks))
    ranks = {name: pid for name, pid in engine.pids().items() if name.startswith("rank")}
    assert len(ranks) == num_ranks
    for pid in engine.pids().values():
        assert ".safetensors" not in Path(f"/proc/{pid}/maps").read_text()
    most = max(_own_bytes(pid) for pid in ranks.values())
    stand.run(engine.stop())
    return most


def test_a_rank_of_a_running_group_holds_its_part_only(stand: Stand, large: WorkerConfig) -> None:
    """And no process keeps a file mapped: at the true size each map is 2 GB."""
    products = shapes.product_parameters(folders.LARGE) * FLOAT32_BYTES
    whole = _most_of_a_rank(stand, large, num_ranks=1)
    part = _most_of_a_rank(stand, large, num_ranks=4)
    assert whole > products
    assert whole - part > products * 3 // 4 - NOISE_BYTES


def test_a_rank_that_loads_says_now_and_then_how_far_it_is(
    large: WorkerConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A start is given up when nobody gets on, not when it takes long."""
    monkeypatch.setattr(rank_weights, "PROGRESS_PERIOD_S", 0.0)
    assert large.checkpoint
    proven = checkpoint.opened(Path(large.checkpoint.folder), large.model)
    ours, theirs = channel.pair()
    with ours, theirs:
        ends = wiring.Ends(
            index=1, num_ranks=4, supervisor=theirs, board=-1, kept=-1, slots=-1, rendezvous=-1
        )
        rank_weights.held(ends, large.model, proven, supervisor=Channel(theirs, peer="ours"))
        supervisor = Channel(ours, peer="the rank")
        told = [supervisor.receive() for _ in range(large.model.num_blocks)]
    assert {message.kind for message in told} == {reports.LOADING}
    assert [message.fields["block"] for message in told] == list(range(8))


def test_a_sign_of_progress_gives_a_start_its_whole_time_again(stand: Stand) -> None:
    """As the engine hears it from a rank."""
    engine = LocalEngine(config.tiny())
    loading = Message(kind=reports.LOADING, fields={"block": 3, "num_blocks": 60})

    async def moved() -> float:
        async with asyncio.timeout(1.0) as limit:
            engine._start_limit = limit
            before = limit.when() or 0.0
            engine._heard(1, loading)
            await asyncio.sleep(0)
            return (limit.when() or 0.0) - before

    assert stand.run(moved()) >= config.tiny().start_timeout_s - 1.0
    engine._start_limit = None
    engine._heard(1, loading)  # late: of a start that has ended


def _three_ranks(stack: contextlib.ExitStack) -> list[wiring.Ends]:
    pairs = [[stack.enter_context(end) for end in channel.pair()] for _ in range(2)]
    group = [
        wiring.Ends(
            index=index,
            num_ranks=3,
            supervisor=pairs[0][0],
            board=-1,
            kept=-1,
            slots=-1,
            rendezvous=-1,
        )
        for index in range(3)
    ]
    for index, (near, far) in enumerate(pairs, start=1):
        group[0].plans[index], group[index].plans[0] = near, far
    return group


def test_no_rank_goes_on_to_a_collective_before_the_last_one_has_loaded() -> None:
    """A collective waits for seconds; at the true size ranks load for minutes."""
    happened: list[str] = []
    release = threading.Event()

    def load_and_meet(ends: wiring.Ends) -> None:
        if ends.index == 2:
            release.wait()
            happened.append("the last has loaded")
        rank_weights.meet(ends)
        happened.append(f"rank {ends.index} goes on")

    with contextlib.ExitStack() as stack:
        group = _three_ranks(stack)
        threads = [threading.Thread(target=load_and_meet, args=(ends,)) for ends in group]
        for thread in threads:
            thread.start()
        threads[0].join(timeout=0.3)  # time enough to go on by mistake
        release.set()
        for thread in threads:
            thread.join()
    assert happened[0] == "the last has loaded"
    assert len(happened) == 4


def test_a_rank_that_is_gone_is_not_waited_for() -> None:
    """It has told why; the others only notice."""
    with contextlib.ExitStack() as stack:
        group = _three_ranks(stack)
        group[1].plans[0].close()
        with pytest.raises(PeerLostError, match="rank 1"):
            rank_weights.meet(group[0])
