import sys

from pspo.cli.main import main

sys.exit(main())
