"""`python -m pspo` is the command `pspo`."""

import sys

from pspo.cli.main import main

sys.exit(main())
