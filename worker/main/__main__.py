"""`python -m worker.main`."""

from worker.main import cli

if __name__ == "__main__":
    cli.main()
