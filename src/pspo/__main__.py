import sys

from pspo.cli import main

sys.exit(main())
