"""JAX: the whole training step, optimizer included, under one jit with donated buffers.

It has no chains: under jit they measure the compiler, and 10^5 unrolled ops do not compile.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from harness.workloads import TrainingSpec
from peers.contract import training_inputs

Layers = list[tuple[jax.Array, jax.Array]]
Step = Callable[[Layers, Layers, jax.Array, jax.Array], tuple[Layers, Layers, jax.Array]]


def _cross_entropy(logits: jax.Array, labels: jax.Array) -> jax.Array:
    chosen = jnp.take_along_axis(jax.nn.log_softmax(logits), labels[:, None], axis=1)
    return -jnp.mean(chosen)


def _mean_squared_error(predictions: jax.Array, targets: jax.Array) -> jax.Array:
    return jnp.mean((predictions - targets) ** 2)


class Training:
    def __init__(self, spec: TrainingSpec) -> None:
        layers, x, y = training_inputs(spec)
        self._layers: Layers = [(jnp.array(weight), jnp.array(bias)) for weight, bias in layers]
        self._velocity = jax.tree.map(jnp.zeros_like, self._layers)
        self._x, self._y = jnp.array(x), jnp.array(y)
        self._compiled_step = jax.jit(_step_function(spec), donate_argnums=(0, 1))

    def step(self) -> None:
        self._layers, self._velocity, self._loss = self._compiled_step(
            self._layers, self._velocity, self._x, self._y
        )

    def finish(self) -> None:
        jax.block_until_ready((self._layers, self._loss))

    def loss(self) -> float:
        return float(self._loss)


def _step_function(spec: TrainingSpec) -> Step:
    activation = {"relu": jax.nn.relu, "tanh": jnp.tanh}[spec.activation]
    loss_function = {"cross_entropy": _cross_entropy, "mse": _mean_squared_error}[spec.loss]

    def loss_of(layers: Layers, x: jax.Array, y: jax.Array) -> jax.Array:
        *hidden, (last_weight, last_bias) = layers
        for weight, bias in hidden:
            x = activation(x @ weight + bias)
        return loss_function(x @ last_weight + last_bias, y)

    def step(
        layers: Layers, velocity: Layers, x: jax.Array, y: jax.Array
    ) -> tuple[Layers, Layers, jax.Array]:
        loss, gradients = jax.value_and_grad(loss_of)(layers, x, y)
        velocity = jax.tree.map(lambda v, g: spec.momentum * v + g, velocity, gradients)
        layers = jax.tree.map(lambda p, v: p - spec.learning_rate * v, layers, velocity)
        return layers, velocity, loss

    return step
