"""What a result depends on besides data and settings: versions, machine, threads."""

from __future__ import annotations

import contextlib
import platform
from importlib import metadata
from typing import Any

from pspo import __version__
from pspo.core.compute import cores, threads

LIBRARIES = ("jax", "jaxlib", "equinox", "optax", "numpy", "scipy", "gymnasium", "safetensors")
OPTIONAL = ("mujoco", "h5py", "pyarrow", "minari")  # recorded where installed


def describe_machine() -> dict[str, Any]:
    """Versions and hardware, for manifest.json."""
    import jax

    return {
        "pspo": __version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "libraries": {name: metadata.version(name) for name in LIBRARIES} | _installed(OPTIONAL),
        "device": str(jax.devices()[0]),
        "cores": cores(),
        "threads": threads(),
    }


def _installed(names: tuple[str, ...]) -> dict[str, str]:
    versions = {}
    for name in names:
        with contextlib.suppress(metadata.PackageNotFoundError):
            versions[name] = metadata.version(name)
    return versions
