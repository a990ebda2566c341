"""`python -m unperturbed` is the command `unperturbed`."""

from .signals import ending_at_once

with ending_at_once():
    from .cli import main

if __name__ == "__main__":
    main()
