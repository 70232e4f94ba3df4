"""The last latents of the running session, in memory that outlives the ranks.

Rank 0 writes, after each step, what a later group needs to go on with the session: what the last
pass saw, for the keys, and the latent itself, for the decoder's memory. A memory file of the
supervisor: it is still there when every rank has been killed. No torch.
"""

import mmap
import os
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

from worker import features

# Session, step, prompt seed, prompt length, features, checksum.
_HEADER = struct.Struct(f"<IIQI{features.NUM_BYTES}sI")
_NO_CHECKSUM = _HEADER.size - 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """One step of a session."""

    session: int  # its number in the engine, from 1
    step: int  # of the session, from 0
    prompt_seed: int
    prompt_length: int  # tokens
    features: bytes
    seen: bytes  # by the last pass, float32
    latent: bytes  # float32


def create(*, num_slots: int, latent_bytes: int) -> int:
    """A memory file for the last `num_slots` steps. Returns: its descriptor."""
    memory = os.memfd_create("steadyframe-kept")
    os.ftruncate(memory, num_slots * _slot_bytes(latent_bytes))
    return memory


class KeptSteps:
    """The memory file as one process sees it."""

    def __init__(self, memory: int, *, num_slots: int, latent_bytes: int) -> None:
        """Map `memory`. Raises: OSError without memory."""
        self._num_slots, self._latent_bytes = num_slots, latent_bytes
        self._slot_bytes = _slot_bytes(latent_bytes)
        self._memory = mmap.mmap(memory, num_slots * self._slot_bytes)

    def put(self, kept: Kept) -> None:
        """Keep one step in place of the oldest; a death in the middle leaves no valid slot."""
        assert len(kept.seen) == len(kept.latent) == self._latent_bytes, "another shape"
        body = kept.seen + kept.latent
        head = _HEADER.pack(
            kept.session, kept.step, kept.prompt_seed, kept.prompt_length, kept.features, 0
        )
        checksum = struct.pack("<I", zlib.crc32(body, zlib.crc32(head[:_NO_CHECKSUM])))
        at = self._at(kept.step)
        self._memory[at : at + self._slot_bytes] = head[:_NO_CHECKSUM] + checksum + body

    def before(self, step: int, *, session: int, most: int) -> Sequence[Kept]:
        """Up to `most` steps of `session` that end right before `step`, oldest first.

        Without a gap: what is not whole ends them, and with it all that is older.
        """
        found: list[Kept] = []
        for number in range(step - 1, max(step - 1 - most, -1), -1):
            kept = self._read(number)
            if kept is None or (kept.session, kept.step) != (session, number):
                break
            found.insert(0, kept)
        return found

    def _read(self, step: int) -> Kept | None:
        at = self._at(step)
        packed = self._memory[at : at + self._slot_bytes]
        session, held, prompt_seed, prompt_length, features, checksum = _HEADER.unpack_from(packed)
        body = packed[_HEADER.size :]
        if zlib.crc32(body, zlib.crc32(packed[:_NO_CHECKSUM])) != checksum:
            return None
        return Kept(
            session=session,
            step=held,
            prompt_seed=prompt_seed,
            prompt_length=prompt_length,
            features=features,
            seen=body[: self._latent_bytes],
            latent=body[self._latent_bytes :],
        )

    def _at(self, step: int) -> int:
        return (step % self._num_slots) * self._slot_bytes


def _slot_bytes(latent_bytes: int) -> int:
    return _HEADER.size + 2 * latent_bytes
