"""Memory and processor time as the demo reports them."""

import os
import subprocess
import sys

from controlplane.cli.demo import footprint

MIB = 1024 * 1024


def test_a_child_s_memory_counts() -> None:
    """The limit of the demo is for all of its processes together."""
    before = footprint.of(os.getpid())
    program = "held = bytearray(b'x') * (64 << 20); print(1, flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-S", "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        child.stdout.readline()
        during = footprint.of(os.getpid())
        child.communicate(b"\n")
    assert during.num_processes == before.num_processes + 1
    assert during.memory_bytes - before.memory_bytes > 60 * MIB


def test_a_process_that_is_gone_takes_nothing() -> None:
    """Processes end while one looks at them."""
    with subprocess.Popen([sys.executable, "-S", "-c", ""]) as child:
        pass
    assert footprint.of(child.pid).memory_bytes == 0
