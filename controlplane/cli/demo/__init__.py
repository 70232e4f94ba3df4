"""`steadyframe demo`: the main job on one machine, with real workers and a real control plane.

It starts processes, watches them through the public API as anyone could, and checks that each scene
ends as it must. It decides nothing: whatever happens to a worker, the control plane did it.
"""
