"""`python -m unperturbed` is the command `unperturbed`."""

from .cli import main

if __name__ == "__main__":
    main()
