"""Shared by all tests: an own cache, so that nothing is read from or left in the user's."""

from __future__ import annotations

import os
import tempfile

# Set by the controlling process before its workers start, so that they share compiled programs and pools.
os.environ.setdefault("PSPO_TEST_CACHE", tempfile.mkdtemp(prefix="pspo-test-cache-"))
os.environ["PSPO_CACHE"] = os.environ["PSPO_TEST_CACHE"]
# Programs that compile in a third of the time and run slower: the right trade for tiny networks.
os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")
if os.environ["JAX_DISABLE_MOST_OPTIMIZATIONS"] == "1":
    # XLA's older code generators compile the same programs in three fifths of the time.
    os.environ.setdefault("XLA_FLAGS", "--xla_cpu_use_fusion_emitters=false")
# Programs that one test has compiled serve all others, in both workers and in the processes that they start.
os.environ["JAX_COMPILATION_CACHE_DIR"] = os.path.join(os.environ["PSPO_TEST_CACHE"], "programs")
os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0.2"
os.environ.setdefault("NPROC", "1")  # two workers share the machine; one thread each


def pytest_sessionfinish(session) -> None:
    """The controller removes the cache when all workers are done."""
    import shutil

    if not hasattr(session.config, "workerinput"):
        shutil.rmtree(os.environ["PSPO_TEST_CACHE"], ignore_errors=True)
