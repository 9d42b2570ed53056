"""Traces: what a listing says, what its nodes tell, and where the calls of a
program were made, also by errors."""

import gc
import inspect
import io
import traceback

import numpy as np
import pytest

import nabla as nb
from nabla import _nabla


def here():
    """The line that calls this."""
    frame = inspect.currentframe().f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


def lists(fn, *args, text):
    """Whether a function lists as the text, which is indented."""
    assert nb.xpr(fn)(*args) == inspect.cleandoc(text)


# Listings.


def test_the_listing():
    x = nb.ones((8, 4))

    def f(x):
        y = nb.sin(x)
        return y, nb.sum(y, axis=1, keepdims=True)

    text = nb.xpr(f)(x)
    assert text == (
        "fn(\n"
        "  %a1: f32[8,4],\n"
        ") {\n"
        "  %v1: f32[8,4] = sin(%a1)\n"
        "  %v2: f32[8,1] = reduce_sum(%v1, axis=1, keepdims=True)\n"
        "  return (%v1, %v2)\n"
        "}"
    )
    trace = nb.trace(f, x)
    assert str(trace) == repr(trace) == text
    assert [n.op for n in trace.nodes] == ["sin", "reduce_sum"]
    kwargs = trace.nodes[1].kwargs
    assert kwargs["axis"] == 1 and kwargs["keepdims"] is True
    assert trace.nodes[1].inputs == trace.nodes[0].outputs == ["%v1"]
    assert trace.inputs[0].shape == (8, 4)
    assert [y.shape for y in trace.outputs] == [(8, 4), (8, 1)]


def test_listings_of_transforms():
    x, captured = nb.ones(3), nb.ones(3).realize()
    text = nb.xpr(nb.vmap(nb.grad(lambda a: nb.sin(a) * 2)))(x)
    assert "f32[3 |]" in text and "return %v" in text
    text = nb.xpr(lambda p, *, q: p["a"] * captured * q)({"a": x}, q=x)
    assert "mul(%a1, ?)" in text and "%a2" in text
    text = nb.xpr(lambda a: nb.cast(a, "int32"))(x)
    assert "cast(%a1, dtype=@int32)" in text
    assert nb.trace(lambda a: nb.cast(a, "int32"), x).nodes[0].kwargs == {
        "dtype": nb.int32
    }
    product = nb.trace(lambda a, b: nb.einsum("i,j->ij", a, b), x, x)
    assert "," in product.nodes[-1].kwargs["rule"]
    same = nb.trace(lambda a, b: a + b, x, x)
    assert "add(%a1, %a2)" in str(same)
    looked = nb.trace(lambda a: nb.sum(a * a) if a[0] > 0 else a, x)
    assert [n.op for n in looked.nodes] == ["mul", "reduce_sum"]
    with pytest.raises(ValueError, match="no tensor"):
        nb.trace(lambda a: a, 1.0)


def test_a_gradient_and_its_map():
    def f(a):
        return nb.sum(nb.sin(a) * 2)

    lists(
        nb.grad(f),
        nb.ones(3),
        text="""
        fn(
          %a1: f32[3],
        ) {
          %v1: f32[1] = reshape(1.0:f32, shape=(1,))
          %v2: f32[3] = broadcast_to(%v1, shape=(3,))
          %v3: f32[3] = mul(%v2, 2.0:f32)
          %v4: f32[3] = cos(%a1)
          %v5: f32[3] = mul(%v3, %v4)
          return %v5
        }
        """,
    )
    lists(
        nb.vmap(nb.grad(f)),
        nb.ones((2, 3)),
        text="""
        fn(
          %a1: f32[2,3],
        ) {
          %v1: f32[1] = reshape(1.0:f32, shape=(1,))
          %v2: f32[3] = broadcast_to(%v1, shape=(3,))
          %v3: f32[3] = mul(%v2, 2.0:f32)
          %v4: f32[2 | 3] = hide(%a1, axis=0, id=1, size=2)
          %v5: f32[2 | 3] = cos(%v4)
          %v6: f32[2 | 3] = mul(%v3, %v5)
          %v7: f32[2,3] = show(%v6, axis=0, id=1, size=2)
          return %v7
        }
        """,
    )


def test_a_hessian():
    trace = nb.trace(nb.hessian(lambda a: nb.sum(a * a)), nb.ones(2))
    said = str(trace).splitlines()
    assert said[:3] == ["fn(", "  %a1: f32[2],", ") {"]
    assert any("f32[2,1 | 2] = add(" in line for line in said)
    assert trace.nodes[-1].types == ["f32[2,2]"]
    assert said[-2] == f"  return {trace.nodes[-1].outputs[0]}"


def test_a_scan():
    def f(c, xs):
        return nb.scan(lambda c, x: (c * x, nb.sin(c)), c, xs)

    lists(
        f,
        nb.constant(1.0),
        nb.ones(5),
        text="""
        fn(
          %a1: f32[],
          %a2: f32[5],
        ) {
          %v1: f32[], %v2: f32[5] = scan(%a1, %a2, carries=1, length=5, \
reverse=False, xs=1) {
            body(%a3: f32[], %a4: f32[]) {
              %v3: f32[] = mul(%a3, %a4)
              %v4: f32[] = sin(%a3)
              return (%v3, %v4)
            }
          }
          return (%v1, %v2)
        }
        """,
    )
    (scan,) = nb.trace(f, nb.constant(1.0), nb.ones(5)).nodes
    assert scan.op == "scan" and scan.inputs == ["%a1", "%a2"]
    assert scan.outputs == ["%v1", "%v2"]
    assert scan.types == ["f32[]", "f32[5]"]
    assert scan.kwargs == {"carries": 1, "xs": 1, "length": 5, "reverse": False}
    body = scan.regions["body"]
    assert body.inputs == ["%a3", "%a4"] and body.outputs == ["%v3", "%v4"]
    assert [node.op for node in body.nodes] == ["mul", "sin"]
    assert repr(body.nodes[0]) == "<mul %v3: f32[]>"


def test_what_nobody_needs_has_no_name():
    def last(c, xs):
        return nb.scan(lambda c, x: (c * x, c), c, xs)[0]

    trace = nb.trace(last, nb.constant(1.0), nb.ones(5))
    assert trace.nodes[0].outputs == ["%v1", None]
    assert "  %v1: f32[], _ = scan(" in str(trace)
    assert repr(trace.nodes[0]) == "<scan %v1: f32[], _>"


def test_a_branch():
    lists(
        lambda a: nb.cond(a > 0, lambda v: v * 2, lambda v: v * v, a),
        nb.constant(1.0),
        text="""
        fn(
          %a1: f32[],
        ) {
          %v1: bool[] = greater(%a1, 0.0:f32)
          %v2: f32[] = cond(%v1, %a1, captured=0, operands=1) {
            true(%a2: f32[]) {
              %v3: f32[] = mul(%a2, 2.0:f32)
              return %v3
            }
            false(%a3: f32[]) {
              %v4: f32[] = mul(%a3, %a3)
              return %v4
            }
          }
          return %v2
        }
        """,
    )


def test_a_loop():
    lists(
        lambda a: nb.while_loop(lambda v: v < 10, lambda v: v * 2, a),
        nb.constant(1.0),
        text="""
        fn(
          %a1: f32[],
        ) {
          %v1: f32[] = while_loop(%a1, kept=(0,), states=(1,)) {
            body(%a2: f32[]) {
              %v2: f32[] = mul(%a2, 2.0:f32)
              %v3: bool[] = less(%a2, 10.0:f32)
              return (%v2, %v3)
            }
          }
          return %v1
        }
        """,
    )


def test_a_trace_pushes_tangents():
    t = nb.trace(lambda x, y: (x * y, y), nb.constant(2.0), nb.constant(3.0))
    moved = nb.forward(t, {t.inputs[0]: nb.constant(1.0)})
    assert moved[t.outputs[0]].item() == 3.0 and len(moved) == 1
    assert nb.core.forward_on_trace is nb.forward
    with pytest.raises(ValueError, match="no input"):
        nb.forward(t, {nb.constant(1.0): nb.constant(1.0)})


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_colours_on_a_terminal_alone(monkeypatch):
    trace = nb.trace(nb.vmap(nb.sin), nb.ones((2, 3)))
    plain, terminal = io.StringIO(), Terminal()
    monkeypatch.delenv("NO_COLOR", raising=False)
    trace.print(file=plain)
    assert plain.getvalue() == str(trace) + "\n"
    trace.print(file=terminal)
    said = terminal.getvalue()
    assert said.startswith("\033[1mfn\033[0m(\n  \033[36m%a1\033[0m: f32[2,3]")
    assert "f32[\033[90m2 |\033[0m 3]" in said
    assert "\033[1mreturn\033[0m" in said
    monkeypatch.setattr("sys.stdout", Terminal())
    assert "\033" not in str(trace) and "\033" not in nb.xpr(nb.sin)(nb.ones(2))
    monkeypatch.setenv("NO_COLOR", "1")
    terminal = Terminal()
    trace.print(file=terminal)
    assert "\033" not in terminal.getvalue()


def test_nothing_is_left_of_a_trace():
    def once():
        trace = nb.trace(
            lambda c, xs: nb.scan(lambda c, x: (c * x, c), c, xs)[0],
            nb.constant(1.0),
            nb.ones(5),
        )
        assert trace.nodes and str(trace)

    seen = []
    for _ in range(3):
        once()
        gc.collect()
        seen.append(_nabla.stats()["nodes_live"])
    assert seen[0] == seen[1] == seen[2]


# Places.


def test_nodes_know_their_line():
    def f(a):
        b, first = nb.sin(a), here()
        c, second = b * 2, here()
        where.extend([first, second])
        return nb.sum(c)

    where = []
    trace = nb.trace(f, nb.ones(3))
    assert [node.source for node in trace.nodes][:2] == where
    said = io.StringIO()
    trace.print(sources=True, file=said)
    assert f"sin(%a1)  # {where[0]}\n" in said.getvalue()


def test_derivatives_are_where_the_function_is():
    def f(a):
        where.append(here())
        return nb.sum(nb.sin(a))

    where = []
    trace = nb.trace(nb.vmap(nb.grad(f)), nb.ones((2, 3)))
    file, line = where[0].rsplit(":", 1)
    after = f"{file}:{int(line) + 1}"
    places = {node.op: node.source for node in trace.nodes}
    assert places["cos"] == places["mul"] == places["broadcast_to"] == after
    assert places["hide"] == places["show"] != after


def test_bodies_know_their_lines():
    def body(c, x):
        where.append(here())
        return c * x, c

    def f(c, xs):
        y, line = nb.scan(body, c, xs), here()
        where.append(line)
        return y

    where = []
    (scan,) = nb.trace(f, nb.constant(1.0), nb.ones(5)).nodes
    file, line = where[0].rsplit(":", 1)
    inside = scan.regions["body"].nodes[0]
    assert inside.source == f"{file}:{int(line) + 1}"
    assert scan.source == where[-1]


def user_lines(error):
    """Names of the functions of this file that an error came through."""
    return [
        frame.name
        for frame in traceback.extract_tb(error.__traceback__)
        if frame.filename == __file__
    ]


def wrong(x):
    return nb.matmul(x, nb.ones((7, 7)))


def nests():
    x = nb.ones((2, 2, 2))
    scan = nb.scan

    def scanned(x):
        return scan(lambda c, _: (wrong(c), None), x, None, length=2)[0]

    return {
        "grad": (nb.grad(wrong), x, ["grad of wrong"]),
        "vmap": (nb.vmap(wrong), x, ["vmap of wrong"]),
        "jacrev": (nb.jacrev(wrong), x, ["jacrev of wrong"]),
        "vmap of grad": (
            nb.vmap(nb.grad(wrong)),
            x,
            ["grad of wrong", "vmap of"],
        ),
        "grad of vmap of jacrev": (
            nb.grad(nb.vmap(nb.jacrev(wrong))),
            x,
            ["jacrev of wrong", "vmap of", "grad of"],
        ),
        "scan in vmap of jacrev": (
            nb.vmap(nb.jacrev(scanned)),
            x,
            ["scan of", "jacrev of", "vmap of"],
        ),
    }


@pytest.mark.parametrize("name", nests())
def test_errors_name_the_line_and_the_transforms(name):
    fn, x, order = nests()[name]
    with pytest.raises(ValueError, match="^matmul: ") as raised:
        fn(x)
    assert user_lines(raised.value)[-1] == "wrong"
    notes = "\n".join(raised.value.__notes__)
    places = [notes.index(text) for text in order]
    assert places == sorted(places)


# Hidden axes by hand.


def test_hidden_axes_by_hand_read_as_they_are_stored():
    a = np.arange(24.0).reshape(2, 3, 4)
    x = nb.constant(a)
    inner = nb.incr_batch_dims(x)
    assert inner.shape == (3, 4) and inner.global_shape == (2, 3, 4)
    np.testing.assert_array_equal(inner.numpy(), a)
    np.testing.assert_array_equal(np.asarray(inner), a)
    assert inner.tolist() == a.tolist()
    moved = nb.move_axis_to_batch_dims(inner, 1)
    assert moved.global_shape == (4, 2, 3) and moved.batch_dims == 2
    np.testing.assert_array_equal(moved.numpy(), np.moveaxis(a, 2, 0))
    assert str(moved).endswith(": f64[4,2 | 3]\n)")
    shown = str(nb.constant(np.moveaxis(a, 2, 0))).replace("[4,2,3]", "")
    assert str(moved).replace("[4,2 | 3]", "") == shown


def test_physical_functions_agree_with_the_stored_array():
    a = np.arange(24.0).reshape(2, 3, 4)
    x = nb.move_axis_to_batch_dims(nb.constant(a), 1)
    stored = np.moveaxis(a, 1, 0)
    np.testing.assert_array_equal(x.numpy(), stored)
    for axis in (0, 1, -1, -2, -3):
        at = axis + 1 if axis >= 0 else axis
        np.testing.assert_array_equal(
            nb.reduce_sum_physical(x, axis).numpy(), stored.sum(at)
        )
        np.testing.assert_array_equal(
            nb.mean_physical(x, axis, keepdims=True).numpy(),
            stored.mean(at, keepdims=True),
        )
    wide = nb.unsqueeze_physical(x, -1)
    np.testing.assert_array_equal(wide.numpy(), stored[..., None])
    np.testing.assert_array_equal(nb.squeeze_physical(wide, -1).numpy(), stored)
    np.testing.assert_array_equal(
        nb.ops.view.moveaxis_physical(x, 2, 1).numpy(),
        np.moveaxis(stored, 2, 1),
    )
    np.testing.assert_array_equal(
        nb.broadcast_to_physical(x, (5, 3, 2, 4)).numpy(),
        np.broadcast_to(stored, (5, 3, 2, 4)),
    )


def test_what_a_vmap_hides_cannot_be_read():
    def f(x):
        return x * float(x.numpy().sum())

    with pytest.raises(ValueError, match="from lane to lane"):
        nb.vmap(f)(nb.ones((2, 3)))
