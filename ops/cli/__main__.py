"""`python -m ops.cli` is `a44`, for those who start it by interpreter."""

from ops.cli.app import main

if __name__ == "__main__":
    main()
