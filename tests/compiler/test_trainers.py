"""Trainers as their authors write them: each compiles at the first try, and trains as eagerly."""

import threading
import time
import warnings

import numpy as np
import pytest

import odyssey as od
from odyssey import GradientTape, Variable, linalg, losses, nn, ops
from odyssey.errors import CompileWarning

pytestmark = pytest.mark.slow


def weight(rng, *shape, scale=None):
    scale = 1 / np.sqrt(shape[-1]) if scale is None else scale
    return Variable(rng.normal(0.0, scale, shape), requires_grad=True)


class Trainer:
    """What all of them have: parameters, an optimizer, a log, a clock, a stream of batches."""

    def __init__(self, parameters, rate=0.01, optimizer=od.optim.Adam):
        self.parameters = parameters
        self.optimizer = optimizer(od.tree.leaves(parameters), rate)
        self.rng = np.random.default_rng(0)
        self.batches = iter(self.draw, None)
        self.history, self.begun, self.lock = [], time.time(), threading.Lock()

    def __call__(self):
        with self.lock:
            loss = self.step(*next(self.batches))
            self.history.append(float(loss))
            return self.history[-1]

    def update(self, loss, tape):
        tape.backward(loss)
        self.optimizer.step()
        self.optimizer.zero_grad()


class Block:
    def __init__(self, rng, width, heads):
        self.heads, self.width = heads, width
        self.qkv, self.out = weight(rng, 3 * width, width), weight(rng, width, width)
        self.up, self.down = weight(rng, 4 * width, width), weight(rng, width, 4 * width)
        self.norms = [Variable(np.ones(width), requires_grad=True) for _ in range(2)]

    def __call__(self, x):
        x = x + self.attend(nn.layer_norm(x, self.norms[0]))
        h = nn.layer_norm(x, self.norms[1])
        return x + nn.linear(nn.gelu(nn.linear(h, self.up)), self.down)

    def attend(self, x):
        batch, length, _ = x.shape
        qkv = nn.linear(x, self.qkv).reshape(batch, length, 3, self.heads, -1)
        q, k, v = [ops.swapaxes(qkv[:, :, j], 1, 2) for j in range(3)]
        y = nn.scaled_dot_product_attention(q, k, v, causal=True)
        return nn.linear(ops.swapaxes(y, 1, 2).reshape(batch, length, self.width), self.out)


class GPT(Trainer):
    def __init__(self, words=11, width=8):
        rng = np.random.default_rng(1)
        self.embedding = weight(rng, words, width)
        self.positions = weight(rng, 6, width)
        self.blocks = [Block(rng, width, heads=2) for _ in range(2)]
        super().__init__(
            [self.embedding, self.positions]
            + [v for b in self.blocks for v in (b.qkv, b.out, b.up, b.down, *b.norms)]
        )

    def draw(self):
        text = self.rng.integers(0, 11, (4, 7))
        return text[:, :-1], text[:, 1:]

    def forward(self, tokens):
        x = nn.embedding(tokens, self.embedding) + self.positions
        for block in self.blocks:
            x = block(x)
        return nn.linear(x, self.embedding)

    def step(self, tokens, targets):
        with GradientTape() as tape:
            logits = self.forward(tokens)
            loss = losses.cross_entropy(logits.reshape(-1, 11), targets.reshape(-1))
        self.update(loss, tape)
        return loss


class BatchNorm:
    def __init__(self, channels):
        self.gain = Variable(np.ones(channels), requires_grad=True)
        self.bias = Variable(np.zeros(channels), requires_grad=True)
        self.mean, self.var = Variable(np.zeros(channels)), Variable(np.ones(channels))
        self.training = True

    def __call__(self, x):
        return nn.batch_norm(x, self.mean, self.var, self.gain, self.bias, training=self.training)


class Residual:
    def __init__(self, rng, channels):
        self.kernels = [weight(rng, channels, channels, 3, 3, scale=0.1) for _ in range(2)]
        self.norms = [BatchNorm(channels) for _ in range(2)]

    def __call__(self, x):
        y = x
        for kernel, norm in zip(self.kernels, self.norms, strict=True):
            y = norm(nn.conv2d(nn.relu(y), kernel, padding=1))
        return x + y


class ResNet(Trainer):
    def __init__(self):
        rng = np.random.default_rng(2)
        self.stem, self.head = weight(rng, 4, 1, 3, 3, scale=0.3), weight(rng, 3, 4)
        self.blocks = [Residual(rng, 4) for _ in range(2)]
        inner = [[*b.kernels, *[p for n in b.norms for p in (n.gain, n.bias)]] for b in self.blocks]
        super().__init__([self.stem, self.head, *inner], 0.1, od.optim.SGD)

    def draw(self):
        return self.rng.normal(size=(4, 1, 6, 6)), self.rng.integers(0, 3, 4)

    def step(self, images, labels):
        with GradientTape() as tape:
            x = nn.conv2d(images, self.stem, padding=1)
            for block in self.blocks:
                x = block(x)
            loss = losses.cross_entropy(nn.linear(ops.mean(x, axis=(2, 3)), self.head), labels)
        self.update(loss, tape)
        return loss


class PINN(Trainer):
    """u'' = -u with u(0) = 0 and u'(0) = 1."""

    def __init__(self):
        rng = np.random.default_rng(3)
        super().__init__({"w": weight(rng, 8, 1), "b": weight(rng, 8), "v": weight(rng, 1, 8)})

    def draw(self):
        return (self.rng.uniform(0, 1, 16),)

    def u(self, t):
        p = self.parameters
        return nn.linear(ops.tanh(nn.linear(t[..., None], p["w"], p["b"])), p["v"])[..., 0]

    def residual(self, t):
        def slope(t):
            return od.grad(lambda t: self.u(t).sum())(t)

        return od.grad(lambda t: slope(t).sum())(t) + self.u(t)

    def step(self, t):
        with GradientTape() as tape:
            start = np.zeros(1)
            slope = od.grad(lambda t: self.u(t).sum())(start)
            loss = (self.residual(t) ** 2).mean() + self.u(start).sum() ** 2
            loss = loss + ((slope - 1.0) ** 2).sum()
        self.update(loss, tape)
        return loss


class Kalman(Trainer):
    """Fits the noises of a filter by the likelihood of what it predicts."""

    def __init__(self):
        self.a, self.h = np.array([[1.0, 0.1], [0.0, 1.0]]), np.array([[1.0, 0.0]])
        self.logs = Variable(np.zeros(2), requires_grad=True)
        super().__init__([self.logs])

    def draw(self):
        return (np.cumsum(self.rng.normal(size=(9, 1)), axis=0),)

    def filter(self, carry, z):
        m, p, q, r = carry
        m, p = self.a @ m, self.a @ p @ self.a.T + q * np.eye(2)
        s = self.h @ p @ self.h.T + r * np.eye(1)
        gain = linalg.solve(s, self.h @ p).T
        error = z - self.h @ m
        m, p = m + gain @ error, p - gain @ s @ gain.T
        loss = 0.5 * ((error * linalg.solve(s, error)).sum() + ops.log(s[0, 0]))
        return (m, p, q, r), loss

    def step(self, observed):
        with GradientTape() as tape:
            q, r = ops.exp(self.logs[0]), ops.exp(self.logs[1])
            _, terms = od.scan(self.filter, (np.zeros(2), np.eye(2), q, r), observed)
            loss = terms.sum()
        self.update(loss, tape)
        return loss


class WordLSTM(Trainer):
    """Carries its state, detached, from one piece of a text to the next."""

    def __init__(self, words=11, width=4):
        rng = np.random.default_rng(4)
        self.embedding, self.decoder = weight(rng, words, width), weight(rng, words, width)
        self.w_x, self.w_h = weight(rng, 4 * width, width), weight(rng, 4 * width, width)
        self.state = (Variable(np.zeros((3, width))), Variable(np.zeros((3, width))))
        super().__init__([self.embedding, self.decoder, self.w_x, self.w_h])

    def draw(self):
        text = self.rng.integers(0, 11, (6, 3))
        return text[:-1], text[1:]

    def step(self, words, targets):
        with GradientTape() as tape:
            x = nn.embedding(words, self.embedding)
            out, (h, c) = nn.lstm(x, self.state, self.w_x, self.w_h)
            logits = nn.linear(out, self.decoder)
            loss = losses.cross_entropy(logits.reshape(-1, 11), targets.reshape(-1))
        self.update(loss, tape)
        self.state = (h.detach(), c.detach())
        return loss


class MAML(Trainer):
    """Learns a start from which one step of gradient descent fits a sine."""

    def __init__(self):
        rng = np.random.default_rng(5)
        super().__init__({"w": weight(rng, 8, 1), "b": weight(rng, 8), "v": weight(rng, 1, 8)})

    def draw(self):
        x = self.rng.uniform(-3, 3, (3, 8, 1))
        return x, np.sin(x + self.rng.uniform(0, 3, (3, 1, 1)))

    def loss(self, p, x, y):
        return ((nn.linear(ops.tanh(nn.linear(x, p["w"], p["b"])), p["v"]) - y) ** 2).mean()

    def adapted(self, x, y):
        gradient = od.grad(self.loss)(self.parameters, x[:4], y[:4])
        fast = {k: p - 0.1 * gradient[k] for k, p in self.parameters.items()}
        return self.loss(fast, x[4:], y[4:])

    def step(self, xs, ys):
        with GradientTape() as tape:
            loss = sum(self.adapted(x, y) for x, y in zip(xs, ys, strict=True)) / len(xs)
        self.update(loss, tape)
        return loss


class Corridor:
    """A world whose generator only ``play`` draws from."""

    def __init__(self, rng):
        self.rng, self.state, self.length = rng, 0, 5

    def play(self, policy):
        self.state, places, actions, rewards = 2, [], [], []
        for _ in range(6):
            action = int(self.rng.random() < policy(self.state))
            places.append(self.state)
            actions.append(action)
            self.state = min(max(self.state + 2 * action - 1, 0), self.length - 1)
            rewards.append(float(self.state == self.length - 1))
        return np.array(places), np.array(actions), np.cumsum(rewards[::-1])[::-1].copy()


class Reinforce(Trainer):
    def __init__(self):
        self.scores = Variable(np.zeros((5, 2)), requires_grad=True)
        super().__init__([self.scores])
        self.world = Corridor(self.rng)

    def draw(self):
        return self.world.play(lambda k: nn.softmax(self.scores.numpy()[k])[1])

    def step(self, places, actions, returns):
        with GradientTape() as tape:
            logs = nn.log_softmax(self.scores[places])
            chosen = ops.take_along_axis(logs, actions[:, None], axis=1)[:, 0]
            loss = -(chosen * returns / self.world.length).mean()
        self.update(loss, tape)
        return loss


class WGAN(Trainer):
    """A critic with a penalty on its gradient."""

    def __init__(self):
        rng = np.random.default_rng(6)
        self.critic = [weight(rng, 8, 2), weight(rng, 1, 8)]
        self.maker = [weight(rng, 8, 2), weight(rng, 2, 8)]
        super().__init__(self.critic)
        self.second = od.optim.Adam(self.maker, 0.01)

    def draw(self):
        return self.rng.normal(1.0, 1.0, (8, 2)), self.rng.normal(size=(8, 2)), self.rng.random()

    def judge(self, x):
        return nn.linear(nn.silu(nn.linear(x, self.critic[0])), self.critic[1])[:, 0]

    def make(self, z):
        return nn.linear(nn.silu(nn.linear(z, self.maker[0])), self.maker[1])

    def step(self, real, z, mix):
        with GradientTape() as tape:
            fake = self.make(z).detach()
            between = mix * real + (1 - mix) * fake
            slope = od.grad(lambda x: self.judge(x).sum())(between)
            norm = ops.sqrt((slope**2).sum(axis=1))
            loss = self.judge(fake).mean() - self.judge(real).mean()
            loss = loss + 10.0 * ((norm - 1.0) ** 2).mean()
        self.update(loss, tape)
        with GradientTape() as tape:
            score = -self.judge(self.make(z)).mean()
        tape.backward(score)
        self.second.step()
        self.second.zero_grad()
        self.optimizer.zero_grad()
        return loss


KINDS = (GPT, ResNet, PINN, Kalman, WordLSTM, MAML, Reinforce, WGAN)


@pytest.mark.parametrize("kind", KINDS)
def test_a_trainer_compiles_at_the_first_try_and_trains_as_eagerly(kind):
    with warnings.catch_warnings():
        warnings.simplefilter("error", CompileWarning)
        trainer, eager = kind(), kind()
        trainer.step = od.compile(trainer.step)
        found = [trainer() for _ in range(10)]
    np.testing.assert_allclose(found, [eager() for _ in range(10)], rtol=1e-7)
    statistics = trainer.step.statistics()
    assert statistics.programs == 1
    assert statistics.native == 9


@pytest.mark.parametrize("kind", KINDS)
def test_a_trainer_that_decorates_its_step_compiles_too(kind):
    class Decorated(kind):
        step = od.compile(kind.step)

    with warnings.catch_warnings():
        warnings.simplefilter("error", CompileWarning)
        trainer, eager = Decorated(), kind()
        found = [trainer() for _ in range(5)]
    np.testing.assert_allclose(found, [eager() for _ in range(5)], rtol=1e-7)
    assert Decorated.step.statistics().programs == 1
