"""What an inference server tells its agent once, at start."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentConfig:
    """Who this worker is, where the control plane is, and which flags this build knows.

    `fallback` names for each flag the plainest variant that holds the deadline on this hardware:
    the agent goes there by itself when a lease lapses, a breaker trips or someone breaks the glass.
    """

    fleet: str
    worker: str
    hardware: str
    url: str  # of the control plane, e.g. http://127.0.0.1:8400
    state_dir: Path  # this worker's own; kept over restarts
    fallback: Mapping[str, str]  # flag -> variant
    capabilities: Mapping[str, Sequence[str]]  # flag -> variants this build knows
    token_file: Path | None = None  # read anew for every request, so that a token can be rotated
    address: str = ""  # where viewers reach this worker, for display
    stack: Mapping[str, str] = field(default_factory=dict)  # parts only the server knows: weights
    window_s: float = 5.0
    spool_limit_bytes: int = 64 * 1024 * 1024

    def __post_init__(self) -> None:
        """Refuse a fallback that this build cannot run: nothing would be left to flee to.

        Raises: ValueError naming the flag, the variant and what is allowed.
        """
        for flag, variants in self.capabilities.items():
            if self.fallback.get(flag) not in variants:
                message = (
                    f"fallback.{flag} is {self.fallback.get(flag)!r}, "
                    f"allowed: {', '.join(variants)}"
                )
                raise ValueError(message)
        unknown = sorted(set(self.fallback) - set(self.capabilities))
        if unknown:
            message = (
                f"fallback.{unknown[0]} is not a flag of this build, "
                f"allowed: {', '.join(self.capabilities)}"
            )
            raise ValueError(message)
        if self.window_s <= 0:
            message = f"window_s is {self.window_s}, allowed: above 0"
            raise ValueError(message)
