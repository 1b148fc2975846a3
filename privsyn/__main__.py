"""python -m privsyn."""

from privsyn.cli import main

main()
