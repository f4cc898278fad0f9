"""``python -m jobpool`` is the ``jobpool`` command."""

from jobpool.cli import main

if __name__ == "__main__":
    main()
