"""The last known good on disk: what a worker may run before the control plane has spoken.

Only proven flags are kept, with the stack they were proven on: on another they are not proven.
"""

import logging
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from worker.agent import files
from worker.agent.breaker import Breaker

FILE_NAME = "last-state.json"
FORMAT = 1

logger = logging.getLogger(__name__)


class LastState(BaseModel):
    """What the worker had accepted when it last wrote."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    format: Annotated[int, Field(ge=FORMAT, le=FORMAT)] = FORMAT
    generation: Annotated[int, Field(ge=0)] = 0  # last accepted, proven or not; never falls
    flags: dict[str, str] = {}  # last proven
    stack: str = ""  # digest of the stack on which `flags` were proven
    tripped_generation: Annotated[int, Field(ge=0)] = 0
    lapsed_generation: Annotated[int, Field(ge=0)] = 0

    @property
    def breaker(self) -> Breaker:
        """The breaker as it stood."""
        return Breaker(
            tripped_generation=self.tripped_generation, lapsed_generation=self.lapsed_generation
        )


def load(state_dir: Path) -> LastState:
    """The stored state; an empty one, which means fallback, if none can be read."""
    path = state_dir / FILE_NAME
    try:
        return LastState.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        return LastState()
    except ValidationError as error:
        logger.warning("last_state_refused path=%s num_errors=%d", path, error.error_count())
        return LastState()


def save(state_dir: Path, state: LastState) -> None:
    """Keep `state` over a restart."""
    files.replace(state_dir / FILE_NAME, state.model_dump_json(indent=1).encode())
