"""`python -m worker.main` is the command `steadyframe-worker`."""

from worker.main import cli

if __name__ == "__main__":
    cli.main()
