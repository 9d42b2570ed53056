"""What processes of one program see of each other, and what is the same in all
of them.  Part "mpi" of tools/test.py runs it in two and in four."""

import os
import re
from pathlib import Path

import numpy as np
import pytest

import nabla as nb
from nabla import DeviceMesh, P, ShardingSpec

RANK, SIZE = nb.distributed.rank(), nb.distributed.size()


@pytest.fixture
def everywhere(request, tmp_path):
    """What each process says, by rank: through files."""
    folder = Path(os.environ.get("NABLA_MEETING", tmp_path))

    def meet(text):
        name = re.sub(r"\W+", "-", request.node.name)
        (folder / f"{name}.{RANK}").write_text(text)
        nb.distributed.barrier()
        return [(folder / f"{name}.{r}").read_text() for r in range(SIZE)]

    return meet


def grid():
    return DeviceMesh("grid", (2, 4), ("dp", "tp"))


def laid(mesh, shape, *spec):
    values = np.random.default_rng(0).standard_normal(shape)
    return nb.shard(nb.constant(values.astype("float32")), mesh, P(*spec))


def identity(x):
    return x


def hidden(x, w):
    return nb.relu(x @ w)


def arguments():
    m = grid()
    return laid(m, (32, 128), "dp", "tp"), laid(m, (128, 256), None, "tp")


def test_all_explain_the_same_and_none_waits_for_another(everywhere):
    x, w = arguments()
    for turn in range(SIZE):
        if turn == RANK:
            said = nb.explain(hidden)(x, w)
        nb.distributed.barrier()
    [text] = {*everywhere(str(said))}
    assert "all_gather" in text and said.total_bytes == 6144


def test_a_gradient_too(everywhere):
    x, w = arguments()
    said = nb.explain(nb.grad(lambda w, x: nb.mean(hidden(x, w) ** 2)))(w, x)
    assert len({*everywhere(str(said))}) == 1 and said.collectives


def test_what_is_right_all_find_right(everywhere):
    said = nb.verify(hidden)(*arguments())
    assert said.compared > 2 and said.error < 1e-4
    assert len({*everywhere(repr((said.compared, said.error)))}) == 1


def test_all_name_the_first_op_that_differs(everywhere):
    m = grid()
    x = laid(m, (64, 4096), "dp", "tp")
    w = laid(m, (4096, 8), "tp", None)

    def loss(x, w):
        return nb.sum(nb.sin(x @ w))

    with pytest.raises(RuntimeError) as found:
        nb.verify(loss, tolerance=1e-12)(x, w)
    [text] = {*everywhere(str(found.value))}
    assert re.match(r"verify: matmul at .*test_ranks.py:\d+ has ", text)


def test_a_budget_is_kept_by_all(everywhere):
    with pytest.raises(ValueError) as found:
        nb.compile(hidden, max_collective_bytes=6143)(*arguments())
    assert len({*everywhere(str(found.value))}) == 1


def test_random_numbers_are_those_of_one_process(everywhere):
    def drawn(place):
        nb.manual_seed(7)
        return (place(nb.gaussian((6, 5))) * nb.uniform((6, 5))).tolist()

    y = drawn(lambda x: nb.shard(x, grid(), P("dp", "tp")))
    assert y == drawn(identity) and len({*everywhere(repr(y))}) == 1


# Bad input: the same error everywhere, at the call and before anything is sent:
# each makes the mistake alone.


def mapped(mesh, in_spec, out_spec, x):
    return nb.shard_map(identity, mesh, in_spec, out_spec, axis_names="dp")(x)


def at(first, mesh_name):
    return DeviceMesh(mesh_name, (4,), ("x",), devices=range(first, first + 4))


BAD = [
    ("has no axis 'nope'", lambda m, x: x.shard(m, P("nope"))),
    ("'dp'", lambda m, x: x.shard(m, P("dp", "dp"))),
    ("'dp'", lambda m, x: ShardingSpec(m, ["dp", None], {"dp"})),
    ("3 dims", lambda m, x: x.shard(m, P("dp", None, None))),
    ("3 dims", lambda m, x: x.shard(m, ShardingSpec(m, [None] * 3))),
    (
        "4 devices for 8 places",
        lambda m, x: DeviceMesh((8,), ("x",), devices=range(4)),
    ),
    ("1 is a target twice", lambda m, x: nb.ppermute(x, [(0, 1), (2, 1)])),
    (r"pair \(0, 9\) of 8 devices", lambda m, x: nb.ppermute(x, [(0, 9)])),
    (
        "size 3 is not divisible",
        lambda m, x: mapped(m, P("dp"), P("dp"), nb.ones((3, 4))),
    ),
    (
        "operands lie on two meshes",
        lambda m, x: (
            nb.ones(8).shard(at(0, "a"), P("x"))
            + nb.ones(8).shard(at(4, "b"), P("x"))
        ),
    ),
    (
        "different devices",
        lambda m, x: (
            nb.ones(8).shard(at(0, "a"), P("x")).shard(at(4, "b"), P())
        ),
    ),
    ("omits an axis .* varies", lambda m, x: mapped(m, P("dp"), P(), x)),
    (
        "divisible",
        lambda m, x: nb.all_to_all(nb.ones(3).shard(m, P("tp")), 0, 0),
    ),
    ("no axis 'nope'", lambda m, x: nb.all_reduce(x, reduce_axes="nope")),
]


@pytest.mark.parametrize(("match", "call"), BAD, ids=range(len(BAD)))
def test_bad_input_is_refused_at_the_call_by_each(match, call, everywhere):
    m = grid()
    x = nb.shard(nb.ones((8, 6)), m, P("dp", "tp"))
    nb.realize_all(x)
    for turn in range(SIZE):
        if turn == RANK:
            with pytest.raises(ValueError, match=match) as found:
                call(m, x)
        nb.distributed.barrier()
    assert len({*everywhere(str(found.value))}) == 1


@pytest.mark.skipif(SIZE == 1, reason="one process has any mesh")
def test_a_mesh_that_cannot_be_dealt_out_is_refused_at_the_call(everywhere):
    m = DeviceMesh("odd", (SIZE + 1,), ("x",))
    for turn in range(SIZE):
        if turn == RANK:
            with pytest.raises(ValueError) as found:
                nb.shard(nb.ones(8), m, P("x"))
        nb.distributed.barrier()
    [text] = {*everywhere(str(found.value))}
    assert text == (
        f"mesh @odd: {SIZE + 1} devices cannot be dealt out evenly to {SIZE} "
        "processes"
    )


# Faults, seen from Python.


@pytest.mark.skipif(SIZE == 1, reason="there is no other process")
def test_one_that_does_something_else_is_named(everywhere):
    m = DeviceMesh("line", (SIZE,), ("x",))
    x = nb.shard(nb.arange(8.0), m, P("x"))
    nb.realize_all(x)
    with pytest.raises(RuntimeError) as found:
        nb.sum(x).item() if RANK else nb.max(x).item()
    text = str(found.value)
    assert "differ" in text and "test_ranks.py" in text
    assert nb.sum(x).item() == 28
    assert len(everywhere(text)) == SIZE
