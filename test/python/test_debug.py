"""nabla.debug, nabla.profile and config.check."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nabla as nb

HERE = Path(__file__).name


@pytest.fixture
def printed(capsys: pytest.CaptureFixture[str]) -> Any:
    return lambda: capsys.readouterr().out.splitlines()


# NaNs


def test_a_nan_is_found_at_its_line() -> None:
    x = nb.constant([-1.0, 1.0]) * 2
    with pytest.raises(FloatingPointError) as caught, nb.debug.check_nans():
        nb.log(x)
    text = str(caught.value)
    assert "log" in text and HERE in text and "forward" in text
    assert np.isnan(nb.log(x).numpy()[0])


def test_a_nan_of_the_way_back_is_said_to_be() -> None:
    def f(x: nb.Tensor) -> nb.Tensor:
        return nb.sum(nb.sqrt(x) * 0)

    for g in (nb.grad(f), nb.compile(nb.grad(f))):
        with pytest.raises(FloatingPointError) as caught, nb.debug.check_nans():
            g(nb.constant([0.0, 1.0]))
        text = str(caught.value)
        assert "backward" in text and HERE in text


def test_a_nan_in_backward_of_a_tape() -> None:
    x = nb.constant([0.0, 1.0])
    x.requires_grad = True
    y = nb.sum(nb.sqrt(x) * 0)
    with pytest.raises(FloatingPointError) as caught, nb.debug.check_nans():
        y.backward()
    assert "backward" in str(caught.value)


def test_compiled_functions_run_op_by_op() -> None:
    @nb.compile
    def f(x: nb.Tensor) -> nb.Tensor:
        return nb.exp(nb.log(x)) + 1

    assert np.isnan(f(nb.constant([-1.0])).numpy()[0])
    with pytest.raises(FloatingPointError, match="log"), nb.debug.check_nans():
        f(nb.constant([-1.0]))
    with nb.debug.check_nans():
        np.testing.assert_allclose(f(nb.constant([1.0])).numpy(), [2.0])
    assert np.isnan(f(nb.constant([-1.0])).numpy()[0])


def test_a_nan_that_is_given_is_nobodys() -> None:
    with nb.debug.check_nans():
        y = nb.constant([float("nan"), 1.0]) * 2 + 1
        assert np.isnan(y.numpy()[0])


def test_a_nan_in_a_loop() -> None:
    def body(c: nb.Tensor, x: nb.Tensor) -> tuple[nb.Tensor, nb.Tensor]:
        c = nb.sqrt(c - x)
        return c, c

    with pytest.raises(FloatingPointError) as caught, nb.debug.check_nans():
        nb.scan(body, nb.constant(1.0), nb.constant([0.0, 3.0]))[0].numpy()
    assert "sqrt" in str(caught.value) and HERE in str(caught.value)


def test_watching_nests_and_ends() -> None:
    x = nb.constant([-1.0])
    with nb.debug.check_nans():
        with nb.debug.check_nans(), nb.debug.check_bounds():
            pass
        with pytest.raises(FloatingPointError):
            nb.log(x)
    nb.log(x).numpy()


def test_other_threads_do_not_watch() -> None:
    found = []
    with nb.debug.check_nans():
        work = lambda: found.append(nb.log(nb.constant([-1.0])).numpy())  # noqa: E731
        t = threading.Thread(target=work)
        t.start()
        t.join()
    assert np.isnan(found[0][0])


# Bounds


@pytest.mark.parametrize("compiled", [False, True])
def test_an_index_out_of_range(compiled: bool) -> None:
    def f(x: nb.Tensor, i: nb.Tensor) -> nb.Tensor:
        return nb.gather(x, i)

    g = nb.compile(f) if compiled else f
    x, i = nb.arange(4), nb.constant([0, 7])
    np.testing.assert_array_equal(g(x, i).numpy(), [0, 3])
    with pytest.raises(IndexError) as caught, nb.debug.check_bounds():
        g(x, i)
    text = str(caught.value)
    assert "index 7" in text and "size 4" in text and HERE in text
    with nb.debug.check_bounds():
        assert g(x, nb.constant([-4, 3])).tolist() == [0, 3]


def test_derivatives_of_writes_are_in_bounds() -> None:
    i = nb.constant([1, 1, 0])

    def f(u: nb.Tensor) -> nb.Tensor:
        return nb.sum(nb.zeros((3,)).at[i].set(u) ** 2)

    want = nb.grad(f)(nb.constant([1.0, 2.0, 3.0])).tolist()
    with nb.debug.check_bounds():
        assert nb.grad(f)(nb.constant([1.0, 2.0, 3.0])).tolist() == want


# Printing


def test_values_are_printed_at_once(printed: Any) -> None:
    x = nb.arange(3)
    assert nb.debug.print("x = {} {{}} {1:.2f}", x, 2.5) is None
    assert printed() == ["x = [0 1 2] {} 2.50"]
    with pytest.raises(ValueError, match="more fields"):
        nb.debug.print("{} {}", x)
    assert printed() == []


def test_compiled_code_prints_each_time(printed: Any) -> None:
    @nb.compile
    def f(x: nb.Tensor) -> nb.Tensor:
        nb.debug.print("in {}", x)
        y = x * 2
        nb.debug.print("out {}", y)
        nb.debug.print("out {}", y)
        return y + 1

    for i in (1, 2):
        f(nb.constant(float(i)))
        out = [f"in {i}.0", f"out {2 * i}.0", f"out {2 * i}.0"]
        assert printed() == out


def test_functions_without_results_print(printed: Any) -> None:
    @nb.compile
    def f(x: nb.Tensor) -> None:
        nb.debug.print("x {}", nb.checkpoint(nb.exp)(x) - 1)

    for _ in range(2):
        f(nb.constant(0.0))
        assert printed() == ["x 0.0"]


def test_loops_print_each_turn(printed: Any) -> None:
    def body(c: nb.Tensor, x: nb.Tensor) -> tuple[nb.Tensor, nb.Tensor]:
        nb.debug.print("c {} x {}", c, x)
        return c + x, c

    def f(xs: nb.Tensor) -> nb.Tensor:
        nb.debug.print("begin")
        c, _ = nb.scan(body, nb.constant(0.0), xs)
        nb.debug.print("end {}", c)
        return c

    want = ["begin", "c 0.0 x 1.0", "c 1.0 x 2.0", "c 3.0 x 3.0", "end 6.0"]
    xs = nb.constant([1.0, 2.0, 3.0])
    for g in (f, nb.compile(f)):
        assert g(xs).item() == 6
        assert printed() == want

    def grows(x: nb.Tensor) -> nb.Tensor:
        nb.debug.print("at {}", x)
        return x * 2

    for loop in (
        lambda x: nb.while_loop(lambda v: v < 8, grows, x),
        nb.compile(lambda x: nb.while_loop(lambda v: v < 8, grows, x)),
    ):
        assert loop(nb.constant(1.0)).item() == 8
        assert printed() == ["at 1.0", "at 2.0", "at 4.0"]

    def counts(i: nb.Tensor) -> nb.Tensor:  # turns that one could count
        nb.debug.print("turn {}", i)
        return i + 1

    for count in (
        lambda: nb.while_loop(lambda i: i < 2, counts, 0),
        nb.compile(lambda: nb.while_loop(lambda i: i < 2, counts, 0)),
    ):
        assert count().item() == 2
        assert printed() == ["turn 0", "turn 1"]


def test_branches_print_where_they_go(printed: Any) -> None:
    def side(name: str) -> Any:
        def f(x: nb.Tensor) -> nb.Tensor:
            nb.debug.print(name + " {}", x)
            return x

        return f

    f = nb.compile(lambda p, x: nb.cond(p, side("yes"), side("no"), x))
    f(nb.constant(True), nb.constant(1.0)).numpy()
    f(nb.constant(False), nb.constant(2.0)).numpy()
    assert printed() == ["yes 1.0", "no 2.0"]


@pytest.mark.parametrize("compiled", [False, True])
def test_each_lane_prints(printed: Any, compiled: bool) -> None:
    def f(x: nb.Tensor) -> nb.Tensor:
        nb.debug.print("lane {}", x)
        return x * x

    g = nb.vmap(nb.vmap(f))
    g = nb.compile(g) if compiled else g
    g(nb.arange(4).reshape((2, 2))).numpy()
    assert printed() == [f"lane {i}" for i in range(4)]


@pytest.mark.parametrize("compiled", [False, True])
def test_gradients_print_once(printed: Any, compiled: bool) -> None:
    def f(x: nb.Tensor) -> nb.Tensor:
        y = x * x
        nb.debug.print("y {}", y)
        return nb.sum(y)

    g = nb.compile(nb.grad(f)) if compiled else nb.grad(f)
    assert g(nb.constant([3.0])).tolist() == [6.0]
    assert printed() == ["y [9.]"]


@pytest.mark.parametrize("compiled", [False, True])
def test_derivatives_of_loops_print_once(printed: Any, compiled: bool) -> None:
    def body(c: nb.Tensor, x: nb.Tensor) -> tuple[nb.Tensor, nb.Tensor]:
        nb.debug.print("x {}", x)
        return nb.sin(c) * x, c

    def f(c: nb.Tensor) -> nb.Tensor:
        return nb.scan(body, c, nb.constant([1.0, 2.0]))[0]

    for g in (
        nb.grad(f),
        nb.value_and_grad(f),
        nb.value_and_grad(nb.checkpoint(f)),
        lambda c: nb.jvp(f, (c,), (c,)),
    ):
        g = nb.compile(g) if compiled else g
        nb.realize_all(*nb.tree_leaves(g(nb.constant(0.5))))
        assert printed() == ["x 1.0", "x 2.0"]


def test_a_rule_of_ones_own_prints(printed: Any) -> None:
    @nb.custom_vjp
    def f(x: nb.Tensor) -> nb.Tensor:
        return x * 1

    def bwd(res: Any, ct: nb.Tensor) -> tuple[nb.Tensor]:
        nb.debug.print("ct {}", ct)
        return (ct,)

    f.defvjp(lambda x: (x * 1, None), bwd)
    for g in (nb.grad(f), nb.compile(nb.grad(f))):
        assert g(nb.constant(3.0)).item() == 1
        assert printed() == ["ct 1.0"]


def test_watched_functions_print_each_time(printed: Any) -> None:
    @nb.compile
    def f(x: nb.Tensor) -> nb.Tensor:
        nb.debug.print("begin")
        nb.debug.print("x {}", x)
        return x + 1

    with nb.debug.check_nans():
        for _ in range(2):
            f(nb.constant(1.0))
            assert printed() == ["begin", "x 1.0"]


def test_many_turns_print(printed: Any) -> None:
    """So many that the body becomes a program of its own."""

    def body(c: nb.Tensor, x: nb.Tensor) -> tuple[nb.Tensor, nb.Tensor]:
        nb.debug.print("{}", x)
        return c + x, c

    nb.scan(body, nb.constant(0), nb.arange(3000))[0].numpy()
    assert printed() == [str(i) for i in range(3000)]


# Comparing


def test_checked_code_is_right() -> None:
    @nb.compile
    def step(w: nb.Tensor, x: nb.Tensor) -> tuple[nb.Tensor, nb.Tensor]:
        def loss(w: nb.Tensor) -> nb.Tensor:
            h = nb.softmax(nb.tanh(x @ w))
            return nb.mean((h - 0.1) ** 2)

        value, g = nb.value_and_grad(loss)(w)
        return value, w - 0.1 * g

    rng = np.random.default_rng(0)
    w = nb.asarray(rng.normal(size=(16, 8)).astype(np.float32))
    x = nb.asarray(rng.normal(size=(32, 16)).astype(np.float32))
    want = step(w, x)
    with nb.config.set(check=True):
        got = step(w, x)
    assert not nb.config.check
    for a, b in zip(got, want, strict=True):
        np.testing.assert_array_equal(a.numpy(), b.numpy())


def test_checked_code_prints_once(printed: Any) -> None:
    @nb.compile
    def f(x: nb.Tensor) -> nb.Tensor:
        nb.debug.print("x {}", x)
        return x + 1

    with nb.config.set(check=True):
        f(nb.constant(1.0))
    assert printed() == ["x 1.0"]


# Times


def test_a_profile_has_events(tmp_path: Path) -> None:
    @nb.compile
    def f(x: nb.Tensor) -> nb.Tensor:
        return nb.sum(nb.exp(x) * 3, axis=1) @ nb.ones((512,))

    path = tmp_path / "trace.json"
    x = nb.ones((512, 512))
    with nb.profile(path):
        for _ in range(3):
            f(x).numpy()
        (nb.ones((4,)) + 1).numpy()
    events = json.loads(path.read_text())
    assert isinstance(events, list)
    for e in events:
        assert e["ph"] in "XC" and e["ts"] >= 0
        assert e["ph"] == "C" or e["dur"] >= 0
    assert all(e["args"]["bytes"] >= 0 for e in events if e["ph"] == "C")
    kinds = {e["cat"] for e in events}
    assert {"compile", "memory"} <= kinds and kinds & {"kernel", "call"}
    names = {e["name"] for e in events if e["cat"] == "compile"}
    assert {"lower", "emit"} <= names
    kernels = [e for e in events if e["cat"] == "kernel"]
    if os.environ.get("NABLA_DISABLE") in ("fuse", "code"):
        return
    assert any("exp" in e["name"] and "mul" in e["name"] for e in kernels)
    assert "LLVM" in names


def test_a_profile_cannot_be_taken_twice(tmp_path: Path) -> None:
    with nb.profile(tmp_path / "a.json"):
        second = nb.profile(tmp_path / "b.json")
        with pytest.raises(RuntimeError, match="already"):
            second.__enter__()
    assert json.loads((tmp_path / "a.json").read_text()) == []
    with pytest.raises(FileNotFoundError):
        nb.profile(tmp_path / "none" / "a.json").__enter__()


def test_names() -> None:
    assert nb.debug.__all__ == ["check_bounds", "check_nans", "print"]
    assert "profile" in nb.__all__ and "debug" in nb.__all__
    import nabla.debug

    assert nabla.debug is nb.debug
