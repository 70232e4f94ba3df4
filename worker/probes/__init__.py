"""Preflight: whether flags compute what the plain path computes, and give back what they took.

`trial` runs on an engine that serves. All else runs in a process of its own, one rank without a
group, on a small model with the heads of the preset: `numerics` (against the plain path),
`synchronisation` (what makes the host wait), `graphs` (how many are compiled), told by `report`.
`check` and `trial` are free of torch: a supervisor reads them. No check asks the control plane.
"""
