"""`python -m scripted` is `scripted-provider`."""

from scripted.cli import main

if __name__ == "__main__":
    main()
