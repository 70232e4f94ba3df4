"""Latents as rows and columns, for every decoder alike."""

# ruff: noqa: N803 - shape suffixes in names; the legend is in `worker.decode.decoder`

from torch import Tensor

from worker.config import ConfigError, ModelConfig


def laid_out(latents_NGC: Tensor, model: ModelConfig) -> Tensor:
    """`latents_NGC` on the grid of `model`, [N, C, Y, X]. Raises: ConfigError."""
    rows, columns = model.grid
    cells, channels = rows * columns, model.latent_channels
    if latents_NGC.ndim != 3 or latents_NGC.shape[1:] != (cells, channels):  # noqa: PLR2004
        shape = tuple(latents_NGC.shape)
        raise ConfigError("latents", shape, f"[any number, {cells}, {channels}]")
    return latents_NGC.transpose(1, 2).reshape(-1, channels, rows, columns)
