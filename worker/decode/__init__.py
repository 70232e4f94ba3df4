"""From latents to JPEG frames: beside the ranks and one chunk behind them, or in rank 0."""
