"""What every other package builds on: errors, files, cache, checkpoints, configuration, threads and progress.

Any package may import from here; nothing here knows about data, networks or algorithms, except that
renamed.py has the names of version 0.1, some of which belonged to one algorithm. Modules that need JAX (cache,
checkpoint, trees) are not imported by this package itself, so that the command line starts quickly.
"""

from pspo.core.config import Bounds, build, flatten
from pspo.core.errors import Diverged, UserError, unknown_name
from pspo.core.progress import Progress, Reporter, silent

__all__ = ["Bounds", "Diverged", "Progress", "Reporter", "UserError", "build", "flatten", "silent", "unknown_name"]
