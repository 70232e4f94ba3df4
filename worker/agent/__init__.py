"""A library that any inference server can use to be run by Steadyframe.

Desired state, leases, breaker, spool and session records. No torch and no numpy: a foreign server
imports this and nothing else of the worker.
"""
