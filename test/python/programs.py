"""Programs that are written once and run by Nabla and by JAX.

A program takes a backend and arrays, all of which it is differentiated by, and
returns a scalar.  A backend is the namespace of NumPy's names, and what the two
libraries spell differently."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import nabla as nb


class Nabla:
    """nabla, with a few names of its own."""

    def __getattr__(self, name):
        return getattr(nb, name)

    array = staticmethod(lambda x: nb.constant(np.asarray(x)))
    t = staticmethod(lambda x: nb.swap_axes(x, -2, -1))
    add_at = staticmethod(lambda x, i, v: x.at[i].add(v))
    sort = staticmethod(lambda x: nb.sort(x, axis=-1))

    @staticmethod
    def conv(x, w, stride=1):
        return nb.conv2d(x, w, stride=(stride, stride), padding=1)

    @staticmethod
    def pool(x):
        return nb.max_pool2d(x, kernel_size=2)


class Jax:
    """jax.numpy, with the names of Nabla."""

    def __getattr__(self, name):
        for home in (jnp, jax.nn, lax, jax):
            if hasattr(home, name):
                return getattr(home, name)
        raise AttributeError(name)

    array = staticmethod(lambda x: jnp.asarray(np.asarray(x)))
    t = staticmethod(lambda x: jnp.swapaxes(x, -2, -1))
    add_at = staticmethod(lambda x, i, v: x.at[i].add(v))
    sort = staticmethod(jnp.sort)
    erf = staticmethod(jax.scipy.special.erf)
    logsumexp = staticmethod(jax.scipy.special.logsumexp)
    stop_gradient = staticmethod(lax.stop_gradient)
    gather = staticmethod(lambda x, i, axis=0: jnp.take(x, i, axis=axis))
    gelu = staticmethod(lambda x: jax.nn.gelu(x, approximate=False))
    logsoftmax = staticmethod(jax.nn.log_softmax)
    vmap = staticmethod(jax.vmap)
    grad = staticmethod(jax.grad)
    scan = staticmethod(lax.scan)
    cond = staticmethod(lax.cond)
    while_loop = staticmethod(lax.while_loop)

    @staticmethod
    def conv(x, w, stride=1):
        return lax.conv_general_dilated(
            *(x, w, (stride, stride), [(1, 1), (1, 1)]),
            dimension_numbers=("NHWC", "HWIO", "NHWC"),
        )

    @staticmethod
    def pool(x):
        window = (1, 2, 2, 1)
        return lax.reduce_window(x, -jnp.inf, lax.max, window, window, "VALID")


NABLA, JAX = Nabla(), Jax()
PROGRAMS = {}


def program(*shapes):
    """Notes a program with the shapes of its arguments."""

    def note(f):
        PROGRAMS[f.__name__] = f, shapes
        return f

    return note


def arguments(name):
    """NumPy arrays for a program, the same at every run."""
    _, shapes = PROGRAMS[name]
    rng = np.random.default_rng(len(name))
    return [np.asarray(rng.normal(size=s) * 0.7) for s in shapes]


@program((5, 4), (4, 6), (6,), (6, 2))
def mlp(m, x, w, b, v):
    return m.mean(m.tanh(x @ w + b) @ v) ** 2


@program((2, 5, 5, 2), (3, 3, 2, 3), (3,), (3, 4))
def cnn(m, x, w, b, v):
    y = m.silu(m.conv(x, w, 2) + b)
    return m.sum(m.mean(y, axis=(1, 2)) @ v * 0.1)


@program((1, 6, 6, 1), (3, 3, 1, 2))
def pooled(m, x, w):
    return m.sum(m.square(m.pool(m.conv(x, w))))


@program((3, 4), (4, 8), (4, 8), (4, 8))
def attention(m, x, wq, wk, wv):
    def heads(w):
        return m.swapaxes(m.reshape(x @ w, (3, 2, 4)), 0, 1)

    q, k, v = map(heads, (wq, wk, wv))
    scores = m.einsum("hqd,hkd->hqk", q, k) / 2.0
    mask = m.array(np.tril(np.ones((3, 3), bool)))
    scores = m.where(mask, scores, -1e9)
    return m.sum(m.sin(m.softmax(scores, axis=-1) @ v))


@program((4, 6), (6,), (6,))
def layer_norm(m, x, scale, shift):
    mean = m.mean(x, axis=-1, keepdims=True)
    var = m.mean(m.square(x - mean), axis=-1, keepdims=True)
    y = (x - mean) / m.sqrt(var + 1e-5) * scale + shift
    return m.sum(y**3)


@program((5, 3), (3, 4))
def cross_entropy(m, x, w):
    labels = m.array(np.array([0, 3, 1, 1, 2]))
    p = m.logsoftmax(x @ w, axis=-1)
    picked = m.take_along_axis(p, m.reshape(labels, (5, 1)), axis=1)
    return -m.mean(picked)


@program((3, 4), (4, 5), (5, 2))
def einsum_chain(m, a, b, c):
    return m.sum(m.cos(m.einsum("ij,jk,kl->il", a, b, c)))


@program((2, 3, 4), (2, 4, 5))
def batched_matmul(m, a, b):
    y = a @ b
    return m.sum(y * m.tanh(y)) / 7.0


@program((6, 3), (2, 3), (2,))
def mixture(m, x, centre, weight):
    d = m.sum(m.square(x[:, None, :] - centre), axis=-1)
    return m.sum(m.logsumexp(weight - 0.5 * d, axis=-1))


@program((6, 2), (2, 3), (3, 3), (3,))
def rnn(m, xs, w, u, h):
    def step(h, x):
        h = m.tanh(x @ w + h @ u)
        return h, m.sum(h)

    h, sums = m.scan(step, h, xs)
    return m.sum(h * h) + m.sum(m.sin(sums))


@program((5, 2), (5, 8), (2, 8))
def lstm(m, xs, w, u):
    def step(state, x):
        z = m.concatenate([x, state["h"], x[:1]]) @ w + x @ u
        i, f, o, g = z[0:2], z[2:4], z[4:6], z[6:8]
        c = m.sigmoid(f) * state["c"] + m.sigmoid(i) * m.tanh(g)
        h = m.sigmoid(o) * m.tanh(c)
        return {"h": h, "c": c}, (h, {"c": c})

    zero = m.array(np.zeros(2))
    state, (hs, more) = m.scan(step, {"h": zero, "c": zero}, xs)
    return m.sum(state["h"]) + m.sum(hs * more["c"])


@program((5, 3), (3, 3), (3,))
def kalman(m, ys, a, noise):
    def step(state, y):
        mean, gain = state
        gain = gain * m.exp(-m.square(noise))
        mean = a @ mean + gain * (y - mean)
        return (mean, gain), m.sum(m.square(y - mean))

    start = m.array(np.zeros(3)), m.array(np.ones(3))
    (mean, _), losses = m.scan(step, start, ys, reverse=True)
    return m.sum(losses) + m.sum(mean)


@program((4, 5))
def running_sums(m, x):
    y = m.cumsum(x, axis=1)
    z = m.cumprod(1.0 + 0.1 * x, axis=0)
    return m.sum(m.sin(y) * z)


@program((4, 4), (4,))
def gaussian_density(m, a, x):
    cov = a @ m.t(a) + m.array(np.eye(4))
    chol = m.linalg.cholesky(cov)
    log_det = 2.0 * m.sum(m.log(m.diagonal(chol)))
    return x @ m.linalg.solve(cov, m.reshape(x, (4, 1)))[:, 0] + log_det


@program((3, 3), (3, 2))
def linear_solves(m, a, b):
    a = a + m.array(3.0 * np.eye(3))
    sign, log = m.linalg.slogdet(a)
    return m.sum(m.linalg.solve(a, b)) + log + m.linalg.det(m.linalg.inv(a))


@program((4, 4))
def spectrum(m, a):
    a = a + m.t(a) + m.array(np.diag([0.0, 3.0, 7.0, 12.0]))
    return m.sum(m.exp(0.1 * m.linalg.eigvalsh(a)))


@program((5, 3))
def least_squares(m, x):
    q, r = m.linalg.qr(x + m.array(np.eye(5, 3)))
    return m.sum(m.sin(q)) + m.sum(r * r * 0.1)


@program((6, 4), (3, 4))
def embedding(m, table, w):
    at = m.array(np.array([1, 1, 5]))
    return m.sum(m.tanh(m.gather(table, at, axis=0) * w))


@program((5,), (3,))
def scatter_add(m, x, v):
    at = m.array(np.array([0, 2, 2]))
    return m.sum(m.square(m.add_at(x, at, v)))


@program((4, 3), (2, 3))
def cut_and_paste(m, x, y):
    z = m.concatenate([x[1:3], y, m.flip(x, axis=0)[::2]], axis=0)
    z = m.stack([z, m.roll(z, 1, 0)], axis=1)
    return m.sum(m.pad(z, [(1, 0), (0, 0), (0, 2)]) ** 3)


@program((7,))
def order_statistics(m, x):
    y = m.sort(x)
    return m.sum(y * m.array(np.arange(7.0))) + m.max(x) * m.min(x)


@program((4,), (4,))
def rational(m, x, y):
    a, b = m.square(x) + 1.0, m.exp(y)
    return m.sum(m.log(a) / b + a**1.5 - m.sqrt(a * b) + a**b)


@program((3, 1, 2), (4, 1), (2,), ())
def broadcasting(m, a, b, c, d):
    return m.sum(m.sin(a * b + c) * d) + m.sum((c - d) * (a + d))


@program((6,))
def activations(m, x):
    y = m.gelu(x) + m.silu(x) + m.sigmoid(x) + m.erf(x) + m.relu(x + 3.0)
    return m.sum(y * m.expm1(0.3 * x) + m.log1p(m.square(x)))


@program((5, 3))
def pairwise_energy(m, x):
    d = x[:, None, :] - x[None, :, :]
    r2 = m.sum(d * d, axis=-1) + m.array(np.eye(5))
    return m.sum(1.0 / r2 - m.exp(-r2))


@program((4, 2), (2,), ())
def logistic(m, x, w, b):
    y = m.array(np.array([0.0, 1.0, 1.0, 0.0]))
    z = x @ w + b
    return m.sum(m.logaddexp(z * 0.0, z) - y * z) + 0.1 * m.sum(w * w)


@program((5,))
def rosenbrock(m, x):
    return m.sum(100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1.0 - x[:-1]) ** 2)


@program((4, 3))
def standardised(m, x):
    y = (x - m.mean(x, axis=0)) / (m.std(x, axis=0) + 0.1)
    return m.sum(y**3) + m.sum(m.var(x, axis=1))


@program((3,))
def by_case(m, x):
    def large(x, y):
        return m.sum(x * y)

    def small(x, y):
        return m.sum(m.sin(x)) - m.sum(y)

    y = m.cond(m.sum(x) > 0.0, large, small, x, x * 2.0)
    return y + m.cond(m.sum(x) < 0.0, large, small, x, m.cos(x))


@program((3, 2), (4, 2), (4,))
def gaussian_process(m, x, z, y):
    def kernel(a, b):
        d = a[:, None, :] - b[None, :, :]
        return m.exp(-0.5 * m.sum(d * d, axis=-1))

    k = kernel(z, z) + m.array(np.eye(4))
    return m.sum(kernel(x, z) @ m.linalg.solve(k, m.reshape(y, (4, 1))))


@program((3, 4))
def fourier_features(m, x):
    scale = m.array(np.arange(1.0, 4.0))
    z = x[..., None] * scale
    y = m.concatenate([m.sin(z), m.cos(z)], axis=-1)
    return m.mean(m.prod(m.reshape(y, (3, 24))[:, :5], axis=1)) + m.sum(y**2)


@program((3, 4))
def shapes(m, x):
    y = m.reshape(m.swapaxes(x, 0, 1), (2, 6))
    y = m.broadcast_to(y[:, None], (2, 3, 6)) * m.tile(y, (1, 1))[0]
    y = m.moveaxis(y, 2, 0)
    return m.sum(m.squeeze(y[:1], 0) ** 2) + m.sum(m.repeat(y, 2, axis=1))


@program((3,), ())
def normalised(m, x, a):
    y = x / m.sqrt(m.sum(x * x))
    return (
        m.sum(m.stop_gradient(y) * x * a) + m.atan2(a, y[0]) + m.hypot(a, 2.0)
    )


@program((2, 3), (3,))
def mapped(m, x, w):
    inner = m.vmap(lambda a, b: m.sin(a) * b, in_axes=(0, None))
    outer = m.vmap(lambda row: inner(row, m.sum(w)) * w)
    return m.sum(outer(x) ** 2)


@program((3,), ())
def meta_learning(m, w, rate):
    def loss(w):
        return m.sum(m.cos(w) ** 2)

    w = w - rate * m.grad(loss)(w)
    return loss(w - rate * m.grad(loss)(w))
