"""The command `steadyframe`: what a person at a terminal, or a script, may ask for.

Commands talk to the control plane over HTTP like any other client and decide nothing themselves;
only `serve` and `demo` start processes. Heavy libraries are imported when a command needs them.
"""
