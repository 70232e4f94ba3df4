"""What Steadyframe knows and decides, as pure values and functions.

No IO, no clock, no randomness, no third-party import: `now`, ids and evidence come in as arguments.
Start reading at `canary.py`, then `plan.py`.
"""
