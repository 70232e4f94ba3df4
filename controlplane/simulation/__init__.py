"""A whole fleet on a virtual clock, driving the real services, reconcilers and store.

Nothing here decides anything; it stands in for the network, the workers and time, and it can stop
the controller between any two beats.
"""
