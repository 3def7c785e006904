"""`python -m headcount`: the command line."""

from headcount.cli.main import main

main()
