"""The decoder that a model is configured with."""

from worker.config import ModelConfig
from worker.decode.decoder import Decoder
from worker.decode.small import SmallDecoder
from worker.decode.streaming import StreamingDecoder


def drawn(model: ModelConfig) -> Decoder:
    """A decoder with weights from the seed of the model."""
    if model.decoder == "small":
        return SmallDecoder(model)
    return StreamingDecoder(model)
