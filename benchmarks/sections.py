"""The measurements, one function each. Every result is a plain dictionary: what the JSON file holds."""

from __future__ import annotations

from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

from benchmarks import flops
from benchmarks.breakdown import parts_of_step
from benchmarks.cases import Case
from pspo.algorithms.pspo import algorithm as pspo
from pspo.core.compute import threads
from pspo.dynamics import fit
from pspo.dynamics.ensemble import model_inputs
from pspo.envs import liquidation_jax
from pspo.experiments.timing import Machine, Samples, Work, summary
from pspo.policies.policy import from_network
from pspo.training.loop import compile_chunk

CHUNK = 20  # steps per call of a compiled loop: enough to hide the call, few enough for short rounds


def machine_speed(machine: Machine) -> dict[str, Any]:
    """Best of several, per size; all fractions refer to the best size."""
    best = {str(n): gflops for n, gflops in machine.rates.items()}
    return {"gflops": machine.rates[machine.size], "size": machine.size, "threads": threads(), "best_by_size": best}


def pool_fit(machine: Machine, case: Case) -> dict[str, Any]:
    count = flops.pool_step(case)
    samples = machine.measure({"step": _fit_steps(case)}, per_call=CHUNK)["step"]
    return {"flops": count, **_speed(samples, count)}


def _fit_steps(case: Case) -> Work:
    """`CHUNK` gradient steps of the whole pool, as pspo.dynamics.fit.fit compiles them."""
    config, norm, data, model = case.config.model, case.setup.norm, case.dataset, case.setup.arrays.pool
    raw, mean, std = fit.fit_targets(data, norm)
    x = model_inputs(norm, jnp.asarray(data.obs), jnp.asarray(norm.unit_action(data.action)))
    y = fit.Targets(jnp.asarray((raw - mean) / std), None)
    boots = np.random.default_rng(0).integers(0, data.size, (config.pool, data.size), dtype=np.int32)
    optimiser = optax.adamw(optax.cosine_decay_schedule(config.lr, config.steps), weight_decay=config.weight_decay)
    run, _ = fit.compile_fit(optimiser, config)
    trainable, fixed = eqx.partition(model, fit.is_trained(model))
    opt = optimiser.init(trainable)
    arrays = {"x": x, "y": y, "boots": jnp.asarray(boots)}
    return partial(run, trainable, fixed, opt=opt, **arrays, key=jax.random.PRNGKey(0), count=CHUNK)


def pspo_step(machine: Machine, case: Case, quick: bool) -> dict[str, Any]:
    """The scanned chunk as training runs it, and its parts one by one."""
    by_part = flops.pspo_step(case)
    total = sum(by_part.values())
    chunk, state = compile_chunk(pspo, case.config, case.setup), case.state
    step = machine.measure({"step": partial(chunk, state, case.setup.arrays, case.device_data, length=CHUNK)}, CHUNK)[
        "step"
    ]
    parts = machine.measure(parts_of_step(case))
    return {
        "flops": total,
        "flops_by_part": by_part,
        "flops_by_xla": (counted := xla_flops(case, compiled=not quick)),
        "flops_by_xla_over_formula": counted / total,
        **_speed(step, total),
        "parts": {name: _part(samples, step, by_part.get(name, 0)) for name, samples in parts.items()},
    }


def xla_flops(case: Case, compiled: bool) -> float:
    """XLA's own count for one update outside a loop, of the compiled program or of the one it is given.

    It comes out a few per cent above the formula, which counts matrix products only: XLA adds one per
    element and operation for biases, activations, densities, Adam, averages and the integer arithmetic of
    random bits. Exponentials and the like it counts apart, as transcendentals. Before compilation it also
    counts the policy at the batch twice.
    """
    config, setup = case.config, case.setup
    state, context, batch = case.start
    update = jax.jit(lambda *inputs: pspo.update(config, setup, *inputs))
    program = update.lower(context, state, batch, jax.random.PRNGKey(0))
    return float((program.compile() if compiled else program).cost_analysis()["flops"])


def single_action(machine: Machine, case: Case, batch: int) -> dict[str, Any]:
    """The saved policy in NumPy: one state at a time, as an agent calls it, and many at once."""
    policy = from_network(case.setup.arrays.reference, case.setup.norm, {})
    one, many = case.dataset.obs[0], np.resize(case.dataset.obs, (batch, case.dataset.obs_dim))
    measured = machine.measure({"one": lambda: policy(one), "many": lambda: policy(many)})
    one_us, many_us = measured["one"].seconds * 1e6, measured["many"].seconds / batch * 1e6
    return {
        "microseconds_per_state": summary(one_us),
        "batch": batch,
        "microseconds_per_state_in_batch": summary(many_us),
        "batch_gain": summary(one_us / many_us),
        "rounds": {"one": _raw(measured["one"]), "many": _raw(measured["many"])},
    }


def simulator(machine: Machine, episodes: int) -> dict[str, Any]:
    """Episodes of the liquidation task under the optimal policy; only transitions of running episodes count."""
    play = partial(liquidation_jax.simulate, liquidation_jax.optimal, jax.random.key(0), episodes)
    transitions = int(play().lengths.sum())
    samples = machine.measure({"play": play})["play"]
    rate = transitions / samples.seconds
    return {
        "episodes": episodes,
        "transitions": transitions,
        "transitions_per_second": summary(rate),
        "transitions_per_machine_gflop": summary(rate / samples.machine),
        "rounds": _raw(samples),
    }


def _speed(samples: Samples, count: float) -> dict[str, Any]:
    return {
        "milliseconds": summary(samples.seconds * 1e3),
        "gflops": summary(samples.gflops(count)),
        "fraction_of_machine": summary(samples.fraction(count)),
        "rounds": _raw(samples),
    }


def _part(samples: Samples, step: Samples, count: float) -> dict[str, Any]:
    """A part's cost next to the whole step's, both in units of the machine's speed at their own moments."""
    share = (samples.seconds * samples.machine) / np.median(step.seconds * step.machine)
    measured = {"flops": count, "milliseconds": summary(samples.seconds * 1e3), "share_of_step": summary(share)}
    return measured | ({"fraction_of_machine": summary(samples.fraction(count))} if count else {})


def _raw(samples: Samples) -> dict[str, list[float]]:
    return {"seconds": samples.seconds.tolist(), "machine_gflops": samples.machine.tolist()}
