"""The worker: one session at a time through an autoregressive video diffusion transformer.

Knows of the control plane only `controlplane.contract`. Start reading at `worker/main.py`.
"""
