"""`python -m hub.cli`: the command line without its entry point on the PATH."""

from hub.cli import main

main()
