"""`python -m worker.viewer`."""

from worker.viewer import cli

if __name__ == "__main__":
    cli.main()
