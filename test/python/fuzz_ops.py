"""The operations of random programs: how each is written, and what it means to
Nabla, to JAX and to the writer, who only wants shapes.

A rule gets a source of randomness and operands of any shape and gives the text
of an expression.  It is total, it finds axes, keys and shapes that fit, so that
a program stays one whatever is cut out of it.  It is smooth, and its values
are within about two of zero if those of its operands are, so that sixty of
them in a row stay in range."""

import math
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import programs
from jax import lax

import nabla as nb

MOST = 36  # elements of a value


@dataclass(frozen=True)
class Leaf:
    """A tensor as a rule sees it."""

    text: str
    shape: tuple
    dtype: str = "float64"

    def __str__(self):
        return self.text


# What m stands for.


class Common:
    """What random programs say beyond the names of the two libraries."""

    def set_at(m, x, key, v):
        return x.at[key].set(v)

    def const(m, shape, seed):
        k = np.arange(math.prod(shape)).reshape(shape)
        return m.array(np.cos(k + seed))

    def mask(m, shape, seed):
        k = np.arange(math.prod(shape)).reshape(shape) * 7 + seed
        return m.array(k % 3 > 0)

    def real(m, n):
        """Integers or truths as reals."""
        return 0.3 * m.astype(n, "float64") - 0.2

    def number(m, x, n):
        """Reals as integers from 0 to n - 1, and a little more; it is unlikely
        that two libraries see a step between their results."""
        return m.astype(m.floor(m.abs(x) * 2.7 + 0.123) % n, "int64")

    def truth(m, x):
        return x > 0.0137

    def calm(m, tree):
        """Derivatives of any size, brought within one of zero."""
        return m.tree_map(lambda x: x / m.sqrt(1.0 + x * x), tree)

    def wave(m, tree):
        return m.tree_map(m.cos, tree)

    def sum_of(m, tree):
        """All of a tree in one number, no two of its elements alike."""
        return sum(
            m.sum(x * m.const(x.shape, k)) + 0.1 * m.sum(x * x)
            for k, x in enumerate(m.tree_leaves(tree))
        )

    def total(m, f):
        return lambda *x: m.sum_of(f(*x))

    def total_aux(m, f):
        def both(*x):
            y = f(*x)
            return m.sum_of(y), y

        return both

    def with_aux(m, f):
        def twice(*x):
            y = f(*x)
            return y, y

        return twice

    def compose(m, f, g):
        """Affine functions of the line, one after the other."""
        return f[0] * g[0], f[1] * g[0] + g[1]

    def spd(m, x):
        """A symmetric positive definite matrix."""
        n = x.shape[-1]
        return x @ m.t(x) / n + m.array(np.eye(n))

    def regular(m, x):
        """A matrix that is far from singular."""
        n = x.shape[-1]
        return 0.5 * x + m.array(np.eye(n) * n)


class Nabla(Common, programs.Nabla):
    cumsum_back = staticmethod(
        lambda x, axis: nb.cumsum(x, axis=axis, reverse=True)
    )

    @staticmethod
    def fit(x, shape):
        n, size = math.prod(x.shape), math.prod(shape)
        if n != size:
            x = nb.reshape(x, (n,))[np.arange(size) % n]
        return nb.reshape(x, shape)

    astype = staticmethod(nb.cast)
    axis_index = staticmethod(
        lambda i: nb.ops.communication.axis_index(axis_name=i)
    )
    psum = staticmethod(lambda x, i: nb.all_reduce(x, reduce_axes=i))
    pmean = staticmethod(nb.ops.communication.pmean)
    ppermute = staticmethod(
        lambda x, i, perm: nb.ppermute(x, perm, axis_name=i)
    )

    @staticmethod
    def with_jvp(f):
        """A function whose rule is its derivative."""
        g = nb.custom_jvp(f)
        g.defjvp(lambda x, u: nb.jvp(f, x, u))
        return g

    @staticmethod
    def with_vjp(f):
        g = nb.custom_vjp(f)
        g.defvjp(lambda *x: (f(*x), x), lambda x, ct: nb.vjp(f, *x)[1](ct))
        return g

    @staticmethod
    def until(n, goes_on, f, init):
        def body(state):
            return state[0] + 1, f(state[1])

        def test(state):
            return (state[0] < n) & goes_on(state[1])

        return nb.while_loop(test, body, (0, init))[1]


class Jax(Common, programs.Jax):
    tree_map = staticmethod(jax.tree.map)
    tree_leaves = staticmethod(jax.tree.leaves)
    fit = staticmethod(jnp.resize)
    hessian = staticmethod(jax.hessian)
    checkpoint = staticmethod(lambda f, policy=None: jax.checkpoint(f))
    linearize = staticmethod(jax.linearize)
    custom_jvp = staticmethod(jax.custom_jvp)
    diagonal = staticmethod(lambda x: jnp.diagonal(x, axis1=-2, axis2=-1))
    cumsum_back = staticmethod(
        lambda x, axis: lax.cumsum(x, axis % x.ndim, reverse=True)
    )

    axis_index = staticmethod(lax.axis_index)
    psum = staticmethod(lax.psum)
    ppermute = staticmethod(lax.ppermute)
    # JAX has no forward mode of a custom_vjp, and its rules must not see what
    # is around them.  The rules are the true ones: it does without.
    with_jvp = with_vjp = staticmethod(lambda f: f)

    @staticmethod
    def associative_scan(f, tree, axis=0, reverse=False):
        axis %= jax.tree.leaves(tree)[0].ndim
        return lax.associative_scan(f, tree, axis=axis, reverse=reverse)

    @staticmethod
    def astype(x, dtype):
        return jnp.asarray(x).astype(dtype)

    @staticmethod
    def hvp(f, primals, tangents):
        g = jax.grad(f, argnums=tuple(range(len(primals))))
        return jax.jvp(g, primals, tangents)[1]

    @staticmethod
    def until(n, goes_on, f, init):
        """JAX does not go back through a while loop: here it goes on, and
        forgets what came after the end."""

        def step(state, _):
            on, x = state
            on = on & goes_on(x)
            y = jax.tree.map(lambda a, b: jnp.where(on, b, a), x, f(x))
            return (on, y), None

        return lax.scan(step, (jnp.asarray(True), init), length=n)[0][1]


def custom(m):
    """A function with a rule for its derivative.  It is the true one: at second
    order JAX uses a rule or not, by where the call is."""
    f = m.custom_jvp(lambda x: 0.5 * x * m.sin(x))

    @f.defjvp
    def rule(primals, tangents):
        (x,), (u,) = primals, tangents
        return f(x), 0.5 * u * (m.sin(x) + x * m.cos(x))

    return f


def gated(x, y):
    return nb.tanh(x) * y


NABLA, JAX = Nabla(), Jax()
NABLA.custom, JAX.custom = custom(NABLA), custom(JAX)
NABLA.gated, JAX.gated = nb.custom_vjp(gated), lambda x, y: jnp.tanh(x) * y
NABLA.gated.defvjp(
    lambda x, y: (gated(x, y), (nb.tanh(x), y)),
    lambda res, ct: (ct * res[1] * (1.0 - res[0] * res[0]), ct * res[0]),
)


class Shapes:
    """NumPy, on zeros, for the sake of their shapes."""

    def __getattr__(self, name):
        if hasattr(np, name):
            return getattr(np, name)
        return lambda x, **options: x

    linalg = np.linalg
    array = staticmethod(np.asarray)
    fit = staticmethod(lambda x, shape: np.zeros(shape, np.asarray(x).dtype))
    const = staticmethod(lambda shape, seed: np.zeros(shape))
    mask = staticmethod(lambda shape, seed: np.zeros(shape, bool))
    regular = spd = staticmethod(lambda x: x + np.eye(x.shape[-1]))
    t = staticmethod(lambda x: np.swapaxes(x, -1, -2))
    cumsum_back = staticmethod(np.cumsum)
    diagonal = staticmethod(lambda x: np.diagonal(x, axis1=-2, axis2=-1))
    add_at = set_at = staticmethod(lambda x, key, v: x)
    number = staticmethod(lambda x, n: np.zeros(np.shape(x), int))
    truth = staticmethod(lambda x: np.zeros(np.shape(x), bool))
    real = staticmethod(lambda n: np.zeros(np.shape(n)))
    psum = pmean = staticmethod(lambda x, name: x)
    ppermute = staticmethod(lambda x, name, perm: x)
    axis_index = staticmethod(lambda name: np.zeros((), int))
    gated = staticmethod(lambda x, y: x)
    take = staticmethod(lambda x, at, axis: np.take(x, at * 0, axis=axis))

    @staticmethod
    def associative_scan(f, tree, axis=0, reverse=False):
        return tree

    @staticmethod
    def logsumexp(x, axis=None, keepdims=False):
        return np.sum(x, axis=axis, keepdims=keepdims)

    @staticmethod
    def conv(x, w):
        n, h, width, _ = x.shape
        kh, kw, _, c = w.shape
        return np.zeros((n, h + 3 - kh, width + 3 - kw, c))


SHAPES = Shapes()


# Rules.

RULES = {}
EXACT = {"picked", "decided"}  # rules that take integers and truths as they are


def rule(weight, operands=1):
    def note(f):
        RULES[f.__name__] = f, weight, operands
        return f

    return note


def fitted(x, shape):
    """The text of an operand in another shape, cut or repeated."""
    shape = tuple(shape)
    return x.text if x.shape == shape else f"m.fit({x.text}, {shape})"


def fits(x, y):
    """The text of y, in a shape that broadcasts with that of x."""
    try:
        wide = np.broadcast_shapes(x.shape, y.shape)
    except ValueError:
        wide = ()
    if wide == () != y.shape or math.prod(wide) > MOST:
        return fitted(y, x.shape)
    return y.text


def matrix(x, least=1):
    """An operand with two axes or more."""
    if len(x.shape) >= 2 and min(x.shape[-2:]) >= least:
        return x
    n = max(2, math.isqrt(math.prod(x.shape)))
    return Leaf(fitted(x, (n, n)), (n, n))


def line(x):
    """An operand with one axis or more."""
    return x if x.shape else Leaf(fitted(x, (3,)), (3,))


def some_axis(r, x):
    n = len(x.shape)
    return r.randrange(-n, n)


def some_axes(r, x):
    """None, an axis, or several."""
    n = len(x.shape)
    if n == 0 or r.random() < 0.2:
        return None
    if r.random() < 0.5:
        return some_axis(r, x)
    axes = r.sample(range(n), r.randint(0, n))
    return tuple(a - n if r.random() < 0.3 else a for a in axes)


def count(x, axes):
    """How many elements a reduction over axes puts into one."""
    if axes is None:
        return math.prod(x.shape)
    axes = axes if isinstance(axes, tuple) else (axes,)
    return math.prod(x.shape[a] for a in axes)


@rule(10)
def unary(r, x):
    form = r.choice(
        "m.sin({x}) | m.cos({x}) | m.tanh({x}) | 0.8 * m.exp(0.4 * {x}) | "
        "m.log(2.0 + {x} * {x}) | 0.8 * m.sqrt(1.0 + m.square({x})) | "
        "m.sigmoid({x}) | m.erf({x}) | m.gelu({x}) | m.silu({x}) | -{x} | "
        "m.log1p(m.square({x})) | m.expm1(0.4 * {x}) | {x} ** 3 / 4.0 | "
        "1.0 / (2.0 + {x} * {x}) | (2.0 + m.square({x})) ** 1.3 / 6.0 | "
        "m.atan({x}) | 0.9 * m.log1p(m.exp({x})) | m.asinh({x}) | "
        "m.rsqrt(1.0 + {x} * {x}) | m.sinh(0.5 * {x}) | "
        "m.cosh(0.5 * {x}) | m.reciprocal(1.0 + {x} ** 2)".split(" | ")
    )
    return form.format(x=x.text)


@rule(2)
def special(r, x):
    form = r.choice(["m.custom({x})", "m.stop_gradient({x})"])
    return form.format(x=x.text)


@rule(1, 2)
def with_own_rules(r, x, y):
    return f"m.gated({x.text}, {fitted(y, x.shape)})"


@rule(4)
def lanes(r, x, axes=()):
    """Across the lanes of a vmap, one of those that have a name and a size."""
    if not axes:
        return f"m.cos({x.text})"
    name, n = r.choice(axes)
    order = r.sample(range(n), n)
    return r.choice(
        [
            f"m.psum({x.text}, {name!r}) / {n}.0",
            f"m.pmean({x.text}, {name!r})",
            f"m.ppermute({x.text}, {name!r}, {list(enumerate(order))})",
            f"{x.text} * m.real(m.axis_index({name!r}))",
        ]
    )


@rule(10, 2)
def binary(r, x, y):
    form = r.choice(
        "0.5 * ({x} + {y}) | {y} * {x} * 0.5 | 0.5 * {x} * {y} | "
        "0.5 * ({x} - {y}) | {x} / (2.0 + m.square({y})) | "
        "m.atan2({x}, 3.0 + m.square({y})) | 0.7 * m.logaddexp({x}, {y}) | "
        "0.3 * m.hypot({x}, 1.0 + m.square({y})) | "
        "0.3 * (1.5 + m.square({x})) ** (0.5 * {y})".split(" | ")
    )
    return form.format(x=x.text, y=fits(x, y))


@rule(5)
def reduction(r, x):
    axes, keep = some_axes(r, x), r.random() < 0.3
    form = r.choice(
        "m.sum({x}, {at}) / {n} | m.mean({x}, {at}) | 0.5 * m.var({x}, {at}) | "
        "m.logsumexp({x}, {at}) - {log} | "
        "m.sqrt(1.0 + m.mean({x} * {x}, {at}))".split(" | ")
    )
    n = float(count(x, axes))
    at = f"axis={axes}, keepdims={keep}"
    return form.format(x=x.text, at=at, n=n, log=round(math.log(n), 3))


@rule(1)
def product(r, x):
    x = line(x)
    axis = some_axis(r, x)
    return f"0.3 * m.prod(1.0 + 0.3 * {x.text}, axis={axis})"


@rule(3)
def along(r, x):
    x = line(x)
    form = r.choice(
        "m.softmax({x}, axis={a}) | 0.3 * m.logsoftmax({x}, axis={a}) | "
        "m.cumsum({x}, axis={a}) / {n} | m.cumsum_back({x}, axis={a}) / {n} | "
        "0.5 * m.cumprod(1.0 + 0.2 * {x}, axis={a})".split(" | ")
    )
    a = some_axis(r, x)
    return form.format(x=x.text, a=a, n=float(x.shape[a]))


@rule(2)
def reshape(r, x):
    n, shape = math.prod(x.shape), []
    while n > 1:
        shape.append(r.choice([k for k in range(2, n + 1) if n % k == 0]))
        n //= shape[-1]
    if r.random() < 0.3:
        shape.insert(r.randint(0, len(shape)), 1)
    return f"m.reshape({x.text}, {tuple(shape)})"


@rule(3)
def axes_moved(r, x):
    x = matrix(x)
    n = len(x.shape)
    order = tuple(r.sample(range(n), n))
    a, b, k = some_axis(r, x), some_axis(r, x), r.randint(-3, 3)
    return r.choice(
        [
            f"m.permute_dims({x.text}, {order})",
            f"m.swapaxes({x.text}, {a}, {b})",
            f"m.moveaxis({x.text}, {a}, {b})",
            f"m.flip({x.text}, axis={a})",
            f"m.roll({x.text}, {k}, {a})",
            f"m.t({x.text})",
        ]
    )


@rule(2)
def larger(r, x):
    x = line(x)
    a, n = some_axis(r, x), r.randint(1, 3)
    widths = [(r.randint(0, 1), r.randint(0, 2)) for _ in x.shape]
    return r.choice(
        [
            f"m.broadcast_to({x.text}, {(n, *x.shape)})",
            f"m.expand_dims({x.text}, {r.randint(-1, len(x.shape))})",
            f"m.repeat({x.text}, {n}, axis={a})",
            f"m.tile({x.text}, {(n,) + (1,) * (len(x.shape) - 1)})",
            f"m.pad({x.text}, {widths})",
        ]
    )


@rule(2)
def of_matrix(r, x):
    x = matrix(x)
    k = r.randint(-1, 1)
    form = r.choice(["m.triu({x}, {k})", "m.tril({x}, {k})", "m.diagonal({x})"])
    return form.format(x=x.text, k=k)


def some_slice(r, n):
    """A slice that is not empty."""
    start, step = r.randrange(n), r.choice([1, 1, 2, 3, -1, -2])
    if step > 0:
        return r.choice([f"{start}::{step}", f":{start + 1}:{step}"])
    return f"{start}::{step}"


@rule(4)
def view(r, x):
    x = line(x)
    parts = []
    for n in x.shape[: r.randint(1, len(x.shape))]:
        kind = r.choice(["int", "slice", "slice", "slice", "all"])
        at = {"int": str(r.randrange(-n, n)), "all": ":"}
        parts.append(at.get(kind) or some_slice(r, n))
    if r.random() < 0.2:
        parts.insert(r.randint(0, len(parts)), "None")
    if r.random() < 0.2:
        parts.append("...")
    return f"{x.text}[{', '.join(parts)}]"


def some_indices(r, n, most=4):
    """Constant indices, some from the end, some twice."""
    return [r.randrange(-n, n) for _ in range(r.randint(1, most))]


@rule(3)
def gathered(r, x):
    x = line(x)
    a = r.randrange(len(x.shape))
    at = some_indices(r, x.shape[a])
    before = ":, " * a
    forms = [f"{x.text}[{before}np.array({at})]"]
    if len(x.shape) >= 2:
        rows = [r.randrange(x.shape[0]) for _ in at]
        cols = [r.randrange(x.shape[1]) for _ in at]
        forms.append(f"{x.text}[np.array({rows}), np.array({cols})]")
    up = [k % x.shape[a] for k in at]
    forms.append(f"m.take({x.text}, m.array(np.array({up})), axis={a})")
    shape = tuple(x.shape[a] if i == a else n for i, n in enumerate(x.shape))
    index = [[k] for k in range(x.shape[a])][::-1]
    if len(shape) == 2 and a == 0:
        whole = f"np.broadcast_to(np.array({index}), {shape})"
        forms.append(f"m.take_along_axis({x.text}, m.array({whole}), axis=0)")
    return r.choice(forms)


@rule(2, 2)
def updated(r, x, y):
    x = line(x)
    n = x.shape[0]
    if r.random() < 0.5:
        at = sorted(r.sample(range(n), r.randint(1, n)))
        v = fitted(y, (len(at), *x.shape[1:]))
        return f"m.set_at({x.text}, np.array({at}), {v})"
    at = some_indices(r, n)
    v = fitted(y, (len(at), *x.shape[1:]))
    return f"0.4 * m.add_at({x.text}, np.array({at}), {v})"


@rule(3, 2)
def joined(r, x, y):
    x = line(x)
    a = some_axis(r, x)
    shape = list(x.shape)
    if r.random() < 0.4:
        return f"m.stack([{x.text}, {fitted(y, shape)}], axis={a})"
    shape[a] = r.randint(1, 2)
    pair = [x.text, fitted(y, shape)]
    if r.random() < 0.5:
        pair.reverse()
    return f"m.concatenate([{', '.join(pair)}], axis={a})"


@rule(3, 2)
def chosen(r, x, y):
    shape = x.shape if r.random() < 0.7 else x.shape[-1:]
    mask = f"m.mask({shape}, {r.randrange(9)})"
    return f"m.where({mask}, {x.text}, {fits(x, y)})"


def as_index(x, n):
    """The text of an operand as indices below n."""
    if x.dtype == "int64":
        return f"{x.text} % {n}"
    return f"m.number({real(x).text}, {n})"


def as_truth(x):
    if x.dtype == "bool":
        return x.text
    return f"m.truth({real(x).text})"


def real(x):
    """An operand of real numbers."""
    if x.dtype == "float64":
        return x
    return Leaf(f"m.real({x.text})", x.shape)


@rule(2, 2)
def picked(r, x, y):
    """By indices that depend on data."""
    x = line(real(x))
    a = r.randrange(len(x.shape))
    n = x.shape[a]
    if math.prod(y.shape) > 4:
        y = Leaf(fitted(y, (2,)), (2,), y.dtype)
    at = as_index(y, n)
    forms = [f"m.take({x.text}, {at}, axis={a})"]
    forms.append(f"{x.text}[{':, ' * a}{at}]")
    if len(y.shape) <= 1:
        at = as_index(y, x.shape[0])
        forms.append(f"0.6 * m.add_at({x.text}, {at}, 0.5)")
    return r.choice(forms)


@rule(2, 3)
def decided(r, x, y, z):
    """By truths that depend on data."""
    x, z = real(x), real(z)
    y = Leaf(fitted(y, x.shape), x.shape, y.dtype)
    forms = (
        "m.where({y}, {x}, {z}) | m.where(~({y}), {z}, 0.3) | "
        "{x} * m.astype({y}, 'float64') | m.where({y} & ({x} < 0.7), {x}, {z})"
    )
    form = r.choice(forms.split(" | "))
    return form.format(x=x.text, y=as_truth(y), z=fits(x, z))


@rule(1, 2)
def associative(r, x, y):
    x = line(x)
    a = some_axis(r, x)
    at = f"axis={a}, reverse={r.random() < 0.4}"
    if r.random() < 0.4:
        some = f"0.5 + 0.3 * {x.text}"
        return f"m.associative_scan(lambda a, b: a * b, {some}, {at})"
    pair = f"(0.4 * {x.text}, {fitted(y, x.shape)})"
    return f"m.associative_scan(m.compose, {pair}, {at})[{r.randrange(2)}]"


@rule(1)
def with_constant(r, x):
    const = f"m.const({x.shape[-r.randint(0, 3) :]}, {r.randrange(9)})"
    return r.choice([f"{x.text} * {const}", f"0.6 * ({x.text} + {const})"])


@rule(4, 2)
def matmul(r, x, y):
    x = line(x)
    k, n = x.shape[-1], r.randint(1, 3)
    shapes = [(k,), (k, n), (k, n)]
    if len(x.shape) >= 3:
        shapes += [(*x.shape[:-2], k, n), (1, k, n)]
    v = fitted(y, r.choice(shapes))
    form = r.choice(["{x} @ {v} / {k}.0", "m.matmul({x}, {v}) / {k}.0"])
    return form.format(x=x.text, v=v, k=k)


@rule(4, 2)
def einsum(r, x, y):
    x = matrix(x)
    if len(x.shape) > 3:
        x = Leaf(fitted(x, (2, 3)), (2, 3))
    letters = "ijk"[: len(x.shape)]
    sizes = dict(zip(letters, x.shape, strict=True)) | {"l": r.randint(1, 3)}
    second = "".join(r.sample(list(sizes), r.randint(1, 2)))
    both = sorted(set(letters + second))
    out = "".join(r.sample(both, r.randint(0, min(3, len(both)))))
    n = math.prod(sizes[c] for c in both if c not in out)
    v = fitted(y, [sizes[c] for c in second])
    spec = f'"{letters},{second}->{out}"'
    return f"m.einsum({spec}, {x.text}, {v}) / {n}.0"


@rule(1, 2)
def more_products(r, x, y):
    x = line(x)
    k = x.shape[-1]
    flat = f"m.reshape({x.text}, (-1,))"
    return r.choice(
        [
            f"0.5 * m.outer({flat}[:4], {fitted(y, (3,))})",
            f"m.tensordot({x.text}, {fitted(y, (k, 2))}, axes=1) / {k}.0",
            f"m.vecdot({x.text}, {fitted(y, x.shape)}) / {k}.0",
        ]
    )


@rule(2, 2)
def linear_algebra(r, x, y):
    n = r.randint(1, 3)
    lead = (2,) if r.random() < 0.3 else ()
    a = fitted(x, (*lead, n, n))
    b = fitted(y, (*lead, n, r.randint(1, 2)))
    return r.choice(
        [
            f"m.linalg.solve(m.regular({a}), {b})",
            f"m.linalg.solve(m.spd({a}), {b})",
            f"m.linalg.inv(m.regular({a}))",
            f"m.linalg.cholesky(m.spd({a}))",
            f"m.linalg.det(m.regular({a})) / {(1.5 * n) ** n}",
            f"m.linalg.slogdet(m.regular({a}))[1] / {n}.0",
        ]
    )


@rule(1, 2)
def convolution(r, x, y):
    cin, cout = r.randint(1, 2), r.randint(1, 2)
    k = r.randint(1, 3)
    v = fitted(x, (1, 3, 3, cin))
    w = fitted(y, (k, k, cin, cout))
    return f"m.conv({v}, {w}) / {k * k * cin}.0"
