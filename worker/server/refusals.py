"""Why a viewer is not served: codes that a program can tell apart, reasons that a person reads."""

from enum import StrEnum


class RefusalCode(StrEnum):
    """Why a viewer is not served; all but a bad request may be tried again."""

    BUSY = "busy"
    NOT_ADMITTING = "not_admitting"
    NOT_READY = "not_ready"
    BAD_REQUEST = "bad_request"


class Refusal(Exception):  # noqa: N818 - an answer to the viewer, not an error of ours
    """The worker does not serve this viewer."""

    def __init__(self, code: RefusalCode, reason: str) -> None:
        super().__init__(f"{code}: {reason}")
        self.code = code
        self.reason = reason
