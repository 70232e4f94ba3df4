"""The control plane: decides which kernel variant each worker runs, and shows why.

Imports point downwards: cli, app, api, simulation, adapters, reconcilers, services, store,
telemetry, ports, domain, contract. Start reading at `controlplane/domain/canary.py`.
"""
