"""States that rollouts have visited: a ring that overwrites the oldest and never gives out what was not written."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from pspo.algorithms.pspo import algorithm as pspo
from pspo.algorithms.pspo import rollout
from tests.algorithms.pspo.pspo_cases import made_config, made_data, made_setup, start

visit = jax.jit(rollout.visit)


@given(blocks=st.integers(1, 4), steps=st.integers(1, 11), seed=st.integers(0, 100))
@settings(max_examples=40, deadline=None)
def test_the_ring_holds_the_newest_states_and_draws_only_from_them(blocks: int, steps: int, seed: int) -> None:
    state = start()
    count, columns = state.rollouts.obs.shape
    state = state._replace(visited=jnp.full((blocks * count, columns), jnp.nan))
    for step in range(steps):
        here = jnp.full((count, columns), float(step)) + jnp.arange(count)[:, None] / 100.0
        state = state._replace(rollouts=state.rollouts._replace(obs=here), step=jnp.int32(step))
        visited, drawn = visit(state, jax.random.PRNGKey(seed))
        state = state._replace(visited=visited)
    kept = np.asarray(state.visited)[:, 0]
    newest = {f"{s + i / 100:.2f}" for s in range(max(0, steps - blocks), steps) for i in range(count)}
    assert {f"{value:.2f}" for value in kept[np.isfinite(kept)]} == newest
    assert {f"{value:.2f}" for value in np.asarray(drawn)[:, 0]} <= newest


def test_synthetic_states_are_visited_ones_and_rollouts_continue_as_before() -> None:
    setup, data = made_setup(), made_data()
    after = {}
    for capacity in (0, 21):
        config = made_config(visited=capacity)
        state = jax.jit(lambda data, key, config=config: pspo.init(config, setup, data, key))(
            data, jax.random.PRNGKey(0)
        )
        if capacity:
            assert state.visited.shape[0] == 25  # a whole number of batches of five
            state = state._replace(visited=state.visited.at[:20].set(3.0), step=jnp.int32(4))

        def run(state, key, config=config):
            moved, context, _ = pspo.begin_chunk(config, setup, data, state)
            return pspo.update(config, setup, context, moved, pspo.draw(config, data, key), key)

        after[capacity], _ = jax.jit(run)(state, jax.random.PRNGKey(3))
    np.testing.assert_allclose(after[0].rollouts.obs, after[21].rollouts.obs, rtol=1e-6)
    np.testing.assert_array_equal(after[21].visited[:20], 3.0)
    np.testing.assert_allclose(after[21].visited[20:], state.rollouts.obs, rtol=1e-6)
    critics = [jax.tree.leaves(one.params.critic)[0] for one in after.values()]
    assert np.abs(critics[0] - critics[1]).max() > 1e-6  # other states, other gradients
