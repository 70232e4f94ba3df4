"""Where worker processes live: adapters of `ports.Cluster`.

They start, watch and end processes, and know nothing of desired state, canaries or storage.
"""
