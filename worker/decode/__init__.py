"""From latents to JPEG frames, in a process of its own, one chunk behind the ranks."""
