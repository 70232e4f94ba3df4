"""The supervisor of a worker: owns agent, engine and socket. No torch in this process.

Start reading at `supervisor`; `settings` is the configuration file, `cli` the command.
"""
