"""The socket a viewer speaks to: admission, pacing, frames out, and what a viewer says.

Knows the viewer's protocol and when a frame is due; what a session is, which flags it runs and
which engine computes it are the stage's, see `ports`. No torch.
"""
