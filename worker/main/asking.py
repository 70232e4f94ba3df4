"""What a viewer's request asks of the engine: the prompt, as the model takes it."""

from worker import prompts
from worker.prompts import Prompt
from worker.server.refusals import Refusal, RefusalCode
from worker.server.requests import Request


def prompt(request: Request, *, bounds: tuple[int, int]) -> Prompt:
    """The prompt of a session; a length alone stands for some prompt of so many tokens.

    Raises: Refusal for a length out of `bounds`.
    """
    if request.prompt is not None:
        return prompts.encoded(request.prompt, bounds=bounds)
    length = request.first_forward_length
    assert length is not None, "a request has a prompt or a length"
    low, high = bounds
    if not low <= length <= high:
        reason = f"first_forward_length is {length}, allowed: {low} to {high}"
        raise Refusal(RefusalCode.BAD_REQUEST, reason)
    return Prompt(num_tokens=length, seed=request.seed)
