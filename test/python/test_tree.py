"""Pytrees: what is a node, what is a leaf, and what the two make together."""

import collections
import contextlib
import copy
import dataclasses
import doctest
import gc
import inspect
import pickle
import random
import sys
import weakref

import pytest
from nabla.core.common import tree_flatten_full, tree_unflatten_full

import nabla as nb

Point = collections.namedtuple("Point", "x y")
Range = collections.namedtuple("Range", "low high")


@dataclasses.dataclass
class Layer:
    weight: object
    bias: object
    name: str = "layer"


class Wide(Layer):
    """A subclass of a registered type, not registered itself."""


class Bag:
    """A node whose aux data are whatever a test wants."""

    def __init__(self, children, aux=None):
        self.children, self.aux = children, aux


class Raises:
    """A node whose functions raise."""


class Boom(Exception):
    pass


def boom(*args):
    raise Boom


def bag_flatten(bag):
    return bag.children, bag.aux


def bag_unflatten(aux, children):
    return Bag(children, aux)


nb.register_pytree_node(
    Layer,
    lambda layer: ((layer.weight, layer.bias), layer.name),
    lambda name, children: Layer(*children, name),
)
nb.register_pytree_node(Bag, bag_flatten, bag_unflatten)
nb.register_pytree_node(Raises, boom, boom)


def random_tree(rng, depth=4):
    """A tree with distinct ints for leaves, of the nodes all libraries know."""
    kind = rng.choice(["leaf", "none", "list", "tuple", "dict", "point"])
    if depth == 0 or kind == "leaf":
        return rng.getrandbits(60)
    if kind == "none":
        return None
    if kind == "point":
        return Point(random_tree(rng, depth - 1), random_tree(rng, depth - 1))
    items = [random_tree(rng, depth - 1) for _ in range(rng.randrange(4))]
    if kind == "dict":
        keys = rng.sample("abcdefgh", len(items))
        return dict(zip(keys, items, strict=True))
    return items if kind == "list" else tuple(items)


def test_leaves_come_in_order_and_dicts_are_sorted():
    tree = {"b": [1, (2, 3)], "a": 4, "c": {"z": 5, "y": 6}}
    assert nb.tree_leaves(tree) == [4, 1, 2, 3, 6, 5]
    leaves, structure = nb.tree_flatten(tree)
    assert leaves == [4, 1, 2, 3, 6, 5]
    assert structure == nb.tree_structure(tree)
    assert structure.num_leaves == 6
    assert nb.tree_unflatten(structure, leaves) == tree
    assert structure.unflatten(iter(leaves)) == tree
    assert structure.unflatten(leaves=leaves) == tree


def test_a_sorted_and_an_unsorted_dict_have_the_same_values():
    keys = [f"{i:03}" for i in range(100)]
    tree = {k: int(k) for k in keys}
    mixed = {k: int(k) for k in random.Random(1).sample(keys, 100)}
    late = {k: int(k) for k in keys[:98] + keys[99:] + keys[98:99]}
    assert nb.tree_leaves(tree) == list(range(100))
    assert nb.tree_leaves(mixed) == list(range(100))
    assert nb.tree_leaves(late) == list(range(100))
    assert nb.tree_structure(tree) == nb.tree_structure(mixed)


@pytest.mark.parametrize("leaf", [1, 2.5, "text", b"", {1, 2}, object(), len])
def test_anything_else_is_a_leaf(leaf):
    leaves, structure = nb.tree_flatten(leaf)
    assert len(leaves) == 1 and leaves[0] is leaf
    assert repr(structure) == "*"
    assert structure.unflatten([3]) == 3


def test_an_object_of_a_type_without_a_hash_is_a_leaf():
    class Meta(type):
        __hash__ = None

    class Thing(metaclass=Meta):
        pass

    thing = Thing()
    assert nb.tree_leaves([thing])[0] is thing
    with pytest.raises(TypeError, match="unhashable"):
        nb.register_pytree_node(Thing, boom, boom)


def test_subclasses_of_containers_are_leaves():
    class Row(list):
        pass

    class Pair(tuple):
        pass

    tree = [Row([1]), Pair((1, 2)), collections.OrderedDict(a=1)]
    assert nb.tree_leaves(tree) == tree


def test_none_has_no_leaves():
    leaves, structure = nb.tree_flatten([None, 1, None])
    assert leaves == [1]
    assert structure.unflatten([2]) == [None, 2, None]
    assert nb.tree_flatten(None)[0] == []
    assert nb.tree_structure(None) != nb.tree_structure([])


def test_none_is_a_leaf_in_a_full_flatten():
    tree = {"a": None, "b": [1, None]}
    leaves, structure = tree_flatten_full(tree)
    assert leaves == [None, 1, None]
    assert structure.num_leaves == 3
    assert tree_unflatten_full(structure, leaves) == tree
    assert tree_unflatten_full(structure, [1, 2, 3]) == {"a": 1, "b": [2, 3]}


def test_a_tensor_is_a_leaf():
    x, y = nb.zeros((2,)), nb.zeros((3,))
    assert nb.tree_leaves([x, {"y": y}])[1] is y
    got = nb.tensor_leaves({"b": x, "a": 3, "c": [None, (y,)]})
    assert len(got) == 2 and got[0] is x and got[1] is y
    assert nb.tensor_leaves(x)[0] is x
    assert nb.tensor_leaves([1, "a", None]) == []


def test_a_namedtuple_is_rebuilt_by_its_class():
    tree = Point([1, 2], 3)
    leaves, structure = nb.tree_flatten(tree)
    assert leaves == [1, 2, 3]
    made = structure.unflatten([4, 5, 6])
    assert made == Point([4, 5], 6) and type(made) is Point
    assert type(nb.tree_map(str, tree)) is Point
    assert structure != nb.tree_structure(([1, 2], 3))


def test_a_registered_type_is_a_node_and_its_subclass_a_leaf():
    layer = Layer([1, 2], 3, "dense")
    assert nb.tree_leaves([layer]) == [1, 2, 3]
    assert nb.tree_map(lambda x: -x, layer) == Layer([-1, -2], -3, "dense")
    wide = Wide(1, 2)
    assert nb.tree_leaves([wide])[0] is wide


def test_children_may_be_any_iterable_and_come_back_as_a_tuple():
    seen = []

    class Stream:
        pass

    nb.register_pytree_node(
        Stream,
        lambda s: (iter([1, 2, 3]), "aux"),
        lambda aux, children: seen.append((aux, children)),
    )
    leaves, structure = nb.tree_flatten(Stream())
    assert leaves == [1, 2, 3]
    structure.unflatten(leaves)
    assert seen == [("aux", (1, 2, 3))]


def test_registering_again_replaces():
    class Thing:
        pass

    nb.register_pytree_node(Thing, lambda t: ((1,), None), boom)
    structure = nb.tree_structure(Thing())
    nb.register_pytree_node(
        cls=Thing,
        flatten_fn=lambda t: ((1, 2), None),
        unflatten_fn=lambda aux, children: children,
    )
    assert nb.tree_leaves(Thing()) == [1, 2]
    assert structure.unflatten([5]) == (5,)


def test_a_registered_namedtuple_follows_its_registration():
    Flagged = collections.namedtuple("Flagged", "value flag")
    nb.register_pytree_node(
        Flagged, lambda f: ((f.value,), f.flag), lambda g, c: Flagged(*c, g)
    )
    assert nb.tree_leaves(Flagged(1, True)) == [1]
    assert nb.tree_map(str, Flagged(1, True)) == Flagged("1", True)


@pytest.mark.parametrize("cls", [1, "Layer", Layer(1, 2), None])
def test_only_types_can_be_registered(cls):
    with pytest.raises(TypeError, match="is not a type"):
        nb.register_pytree_node(cls, len, len)


def test_registration_refuses_what_it_cannot_mean():
    class Thing:
        pass

    with pytest.raises(TypeError, match="callable"):
        nb.register_pytree_node(Thing, 1, len)
    with pytest.raises(TypeError, match="callable"):
        nb.register_pytree_node(Thing, len, None)
    for cls in (list, tuple, dict, type(None), nb.Tensor):
        with pytest.raises(ValueError, match="register_pytree_node"):
            nb.register_pytree_node(cls, len, len)


@pytest.mark.parametrize("bad", [None, 3, (1,), (1, 2, 3), [(), None]])
def test_a_flatten_function_must_return_a_pair(bad):
    class Bad:
        pass

    nb.register_pytree_node(Bad, lambda b: bad, boom)
    with pytest.raises(TypeError, match=r"Bad.*\(children, aux\)"):
        nb.tree_leaves([Bad()])


def test_is_leaf_stops_the_walk():
    tree = {"a": [1, 2], "b": (3, None)}
    assert nb.tree_leaves(tree, lambda x: isinstance(x, list)) == [[1, 2], 3]
    assert nb.tree_leaves(tree, is_leaf=lambda x: x is None) == [1, 2, 3, None]
    assert nb.tree_leaves(tree, is_leaf=lambda x: True) == [tree]
    assert nb.tree_leaves(tree, is_leaf=None) == [1, 2, 3]
    leaves, structure = nb.tree_flatten(tree, lambda x: isinstance(x, tuple))
    assert leaves == [1, 2, (3, None)]
    assert structure == nb.tree_structure({"a": [0, 0], "b": 0})


def test_is_leaf_is_asked_about_nodes_from_the_root_down():
    seen = []
    tree = [1, (2, None), {"a": Point(3, 4)}]
    nb.tree_leaves(tree, is_leaf=lambda x: seen.append(x))
    assert seen == [tree, tree[1], None, tree[2], Point(3, 4)]


def test_map_takes_several_trees():
    x, y = {"a": [1, 2], "b": (3,)}, {"b": (30,), "a": [10, 20]}
    assert nb.tree_map(lambda u: 2 * u, x) == {"a": [2, 4], "b": (6,)}
    assert nb.tree_map(lambda *u: u, x, y, x) == {
        "a": [(1, 10, 1), (2, 20, 2)],
        "b": ((3, 30, 3),),
    }
    assert nb.tree_map(fn=str, tree=x) == {"a": ["1", "2"], "b": ("3",)}


def test_map_keeps_the_order_of_dicts_and_calls_in_the_order_of_leaves():
    tree = {"c": 1, "a": {"z": 2, "y": 3}, "b": 4}
    calls = []
    made = nb.tree_map(lambda x: calls.append(x) or -x, tree)
    assert list(made) == ["c", "a", "b"]
    assert list(made["a"]) == ["z", "y"]
    assert made == {"c": -1, "a": {"z": -2, "y": -3}, "b": -4}
    assert calls == nb.tree_leaves(tree)
    assert tree == {"c": 1, "a": {"z": 2, "y": 3}, "b": 4}
    structure = nb.tree_structure(tree)
    assert list(structure.unflatten([1, 2, 3, 4])) == ["a", "b", "c"]


def test_map_passes_whole_subtrees_at_the_leaves_of_the_first_tree():
    got = nb.tree_map(lambda x, y: y, [1, 2], [{"a": 1}, None])
    assert got == [{"a": 1}, None]
    got = nb.tree_map(lambda x, y: (x, y), [None, 1], [None, 2])
    assert got == [None, (1, 2)]
    got = nb.tree_map(
        lambda x, y: [x, y], [None, 1], [(1, 2), 2], is_leaf=lambda x: x is None
    )
    assert got == [[None, (1, 2)], [1, 2]]


def test_map_with_is_leaf_gives_whole_nodes():
    got = nb.tree_map(sum, [[1, 2], [3]], is_leaf=lambda x: x != [[1, 2], [3]])
    assert got == [3, 3]


MISMATCHES = [
    ([1, 2], (1, 2), r"at the root: list\[2\] against tuple\[2\]"),
    ([1, 2], [1, 2, 3], r"at the root: list\[2\] against list\[3\]"),
    ((1,), (), r"at the root: tuple\[1\] against tuple\[0\]"),
    ([1], 1.5, r"at the root: list\[1\] against \* \(float\)"),
    (None, 1, r"at the root: None against \* \(int\)"),
    ([None], [[]], r"at \[0\]: None against list\[0\]"),
    ([[1]], [None], r"at \[0\]: list\[1\] against None"),
    (
        {"w": [[1, 2]]},
        {"w": [(1, 2)]},
        r"at \['w'\]\[0\]: list\[2\] against tuple\[2\]",
    ),
    ({"a": 1}, {"b": 1}, r"dict\['a'\] against dict\['b'\], which has no 'a'"),
    ({"a": 1}, {"a": 1, 3: 1}, r"dict\['a', 3\], which has 3 too"),
    ({}, {"a": 1}, r"dict\[\] against dict\['a'\]"),
    (Point(1, 2), (1, 2), r"tuple\[Point\] against tuple\[2\]"),
    (Point(1, [2]), Point(1, 2), r"at \.y: list\[1\] against \* \(int\)"),
    (Layer(1, [2]), Layer(1, 2), r"at <Layer>\[1\]: list\[1\]"),
    (Layer(1, 2), Bag([1, 2]), r"custom\[Layer\] against custom\[Bag\]"),
    (Layer(1, 2), [1, 2], r"custom\[Layer\] against list\[2\]"),
    (Layer(1, 2, "a"), Layer(1, 2, "b"), r"\[Layer\] with other aux data"),
    (Bag([1]), Bag([1, 2]), r"custom\[Bag\] with another number of children"),
]


@pytest.mark.parametrize("first, other, message", MISMATCHES)
def test_map_names_the_place_where_structures_differ(first, other, message):
    with pytest.raises(ValueError, match=message) as e:
        nb.tree_map(lambda *x: x, first, other)
    assert str(e.value).startswith("tree_map: Tree structure mismatch at ")
    with pytest.raises(ValueError, match=r"tree 1 against tree 3"):
        nb.tree_map(lambda *x: x, first, first, other)


def test_a_long_dict_is_not_printed_in_full():
    tree = {i: i for i in range(100)}
    other = {i: i for i in range(100) if i != 77} | {200: 1}
    with pytest.raises(ValueError, match=r"7, \.\.\. 92 more\].* no 77 ") as e:
        nb.tree_map(lambda x, y: x, tree, other)
    assert len(str(e.value)) < 300


@pytest.mark.parametrize("keys", [(1, "a"), (None, 2), ((1, 2), (1, "b"))])
def test_keys_that_do_not_sort_are_named(keys):
    tree = [dict.fromkeys(keys, 0)]
    for call in (nb.tree_flatten, nb.tree_leaves, nb.tensor_leaves):
        with pytest.raises(TypeError, match="sort") as e:
            call(tree)
        assert all(repr(k) in str(e.value) for k in keys)
    with pytest.raises(TypeError, match="sort"):
        nb.tree_map(lambda x: x, tree)
    assert nb.tree_leaves({None: 1}) == [1]


def test_unflatten_counts_the_leaves():
    structure = nb.tree_structure([0, {"a": 0}])
    for leaves in ([], [1], [1, 2, 3]):
        with pytest.raises(ValueError, match=f"{len(leaves)} leaves .* of 2"):
            nb.tree_unflatten(structure, leaves)
        with pytest.raises(ValueError):
            structure.unflatten(leaves)
    with pytest.raises(TypeError, match="PyTreeDef"):
        nb.tree_unflatten([0], [1])
    with pytest.raises(TypeError):
        nb.tree_unflatten(structure, 5)
    assert nb.tree_unflatten(treedef=structure, leaves=(1, 2)) == [1, {"a": 2}]


def test_structures_compare_and_hash_by_value():
    trees = [
        1, None, [], (), {}, [1], (1,), [[1]], [1, 2], [None], {"a": 1},
        {"b": 1}, {1: 1}, Point(1, 2), Layer(1, 2), Layer(1, 2, "x"), Bag([1]),
        Bag([1], "a"), Bag([1, 2]), Bag([1, 2], "x"), Range(1, 2), [[1], 2],
        [1, [2]],
    ]  # fmt: skip
    defs = [nb.tree_structure(t) for t in trees]
    for i, a in enumerate(defs):
        for j, b in enumerate(defs):
            assert (a == b) == (i == j) and (a != b) == (i != j)
    again = [nb.tree_structure(copy.deepcopy(t)) for t in trees]
    assert again == defs
    assert [hash(t) for t in again] == [hash(t) for t in defs]
    assert len(set(defs + again)) == len(trees)
    assert len({hash(t) for t in defs}) == len(trees)


def test_a_structure_equals_only_structures_and_has_no_order():
    a = nb.tree_structure([1])
    assert a != "list[1]" and a != [1]
    with pytest.raises(TypeError):
        assert a < a
    with pytest.raises(TypeError):
        nb.PyTreeDef()


def test_aux_data_without_a_hash_leave_the_structure_hashable():
    a = nb.tree_structure(Bag([1], {"k": []}))
    b = nb.tree_structure(Bag([1], {"k": []}))
    c = nb.tree_structure(Bag([1], {"k": [1]}))
    assert a == b and hash(a) == hash(b) and a != c
    assert len({a, b, c}) == 2


def test_errors_of_aux_data_come_through():
    class Odd:
        __hash__ = None

        def __eq__(self, other):
            raise Boom

    x, y = Bag([1], Odd()), Bag([1], Odd())
    with pytest.raises(Boom):
        assert nb.tree_structure(x) == nb.tree_structure(y)
    with pytest.raises(Boom):
        nb.tree_map(lambda *a: a, x, y)

    class Hash:
        def __hash__(self):
            raise Boom

    with pytest.raises(Boom):
        hash(nb.tree_structure(Bag([], Hash())))


def test_how_structures_print():
    def shown(tree):
        return repr(nb.tree_structure(tree))

    assert shown(1) == "*"
    assert shown(None) == "None"
    assert shown([]) == "list[0]"
    assert shown([1, 2]) == "list[2]"
    assert shown((1, 2, 3)) == "tuple[3]"
    assert shown({}) == "dict[]"
    assert shown({"b": 1, "a": None}) == "dict['a': None, 'b': *]"
    assert shown({2: [1, 1]}) == "dict[2: list[2]]"
    assert shown(Layer(1, 2)) == "custom[Layer]"
    assert shown(Point(1, 2)) == "tuple[Point]"
    assert shown([1, (2, None), [3]]) == (
        "list[3](*, tuple[2](*, None), list[1])"
    )
    assert shown([Layer(1, {"a": 2}), 3]) == (
        "list[2](custom[Layer](*, dict['a': *]), *)"
    )
    assert str(nb.tree_structure([1])) == "list[1]"


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_structures_pickle(protocol):
    tree = {"a": [1, None, Point(2, 3)], "b": (Layer(4, 5, "n"), Bag([], [1]))}
    structure = nb.tree_structure(tree)
    back = pickle.loads(pickle.dumps(structure, protocol))
    assert back == structure and hash(back) == hash(structure)
    assert repr(back) == repr(structure)
    assert back.unflatten(range(5))["b"][0] == Layer(3, 4, "n")
    assert copy.copy(structure) == structure
    assert copy.deepcopy(structure) == structure


LEAF = (0, 0, None, None)
BAD_PICKLES = [
    None, 5, [], (), (5,), ((),), ((0, 0, None),), (LEAF, LEAF),
    ((2, 1, None, None),), ((0, 1, None, None), LEAF),
    ((1, 1, None, None), LEAF), ((2, -1, None, None),), ((7, 0, None, None),),
    ((-1, 0, None, None),), ((2, 2**40, None, None),),
    ((2, 2**80, None, None),), ((4, 0, 3, None),), ((4, 0, int, None),),
    ((5, 1, [], None), LEAF), ((5, 1, None, None), LEAF),
    ((6, 0, None, None),), (("a", 0, None, None),), ((2, 0, None, None), LEAF),
]  # fmt: skip


@pytest.mark.parametrize("nodes", BAD_PICKLES)
def test_a_bad_pickle_is_refused(nodes):
    load, _ = nb.tree_structure(1).__reduce__()
    with pytest.raises(ValueError, match="form no tree"):
        load(nodes)


def test_a_structure_of_an_unregistered_type_does_not_unflatten():
    load, _ = nb.tree_structure(1).__reduce__()
    structure = load(((6, 0, int, None),))
    with pytest.raises(ValueError, match="not registered"):
        structure.unflatten([])


def test_exceptions_of_callbacks_come_through():
    tree = {"a": [1, 2], "b": Layer(3, Raises())}
    for call in (nb.tree_flatten, nb.tree_leaves, nb.tree_structure):
        with pytest.raises(Boom):
            call(tree)
        with pytest.raises(Boom):
            call([1, [2]], boom)
    two = [1, tree]
    for trees in ([tree], [[1, [2, 3]]], [[1, 2], [3, 4]], [two, two]):
        with pytest.raises(Boom):
            nb.tree_map(boom, *trees)
    with pytest.raises(Boom):
        nb.tree_map(lambda *x: x, [1, Layer(1, 2)], is_leaf=boom)
    load, _ = nb.tree_structure(1).__reduce__()
    structure = load(((2, 2, None, None), LEAF, (6, 0, Raises, None)))
    with pytest.raises(Boom):
        structure.unflatten([1])
    with pytest.raises(TypeError):
        nb.tree_leaves([1, [2]], is_leaf=3)


def test_wrong_arguments_are_type_errors():
    for call in (nb.tree_flatten, nb.tree_leaves, nb.tree_structure):
        with pytest.raises(TypeError):
            call()
    with pytest.raises(TypeError):
        nb.tree_map()
    with pytest.raises(TypeError):
        nb.tree_map(len)
    with pytest.raises(TypeError):
        nb.tree_map(len, [1], leaf=None)
    with pytest.raises(TypeError):
        nb.tree_flatten([1], None, None)


@pytest.mark.parametrize(
    "wrap",
    [
        lambda x: [x],
        lambda x: (x,),
        lambda x: {"a": x},
        lambda x: Point(1, x),
        lambda x: Bag([x]),
    ],
)
def test_a_tree_too_deep_raises(wrap):
    tree = 1
    for _ in range(50_000):
        tree = wrap(tree)
    for call in (nb.tree_leaves, nb.tree_structure, nb.tensor_leaves):
        with pytest.raises(RecursionError):
            call(tree)
    with pytest.raises(RecursionError):
        nb.tree_map(lambda x: x, tree)
    with pytest.raises(RecursionError):
        nb.tree_map(lambda x, y: x, tree, tree)


def test_a_tree_that_holds_itself_raises():
    tree = [1]
    tree.append(tree)
    with pytest.raises(RecursionError):
        nb.tree_flatten(tree)


def test_a_structure_too_deep_raises():
    load, _ = nb.tree_structure(1).__reduce__()
    structure = load(((2, 1, None, None),) * 50_000 + (LEAF,))
    assert structure == pickle.loads(pickle.dumps(structure))
    assert hash(structure) == hash(structure)
    with pytest.raises(RecursionError):
        structure.unflatten([1])
    with pytest.raises(RecursionError):
        repr(structure)


def test_callbacks_may_change_the_tree_while_it_is_walked():
    tree = [[1], [2], [3]]
    with pytest.raises(RuntimeError, match="shorter"):
        nb.tree_leaves(tree, is_leaf=lambda x: x is not tree and tree.clear())
    tree = [1, 2]
    assert nb.tree_map(lambda x: tree.append(x) or x, tree) == [1, 2]
    tree = {"a": 1, "b": [2], "c": 3}
    got = nb.tree_leaves(tree, lambda x: x is not tree and tree.clear())
    assert got == [1, 2, 3]
    tree, other = {"b": 1, "a": 2}, {"a": 3, "b": 4}

    def clear(x, y):
        tree.clear()
        other.clear()
        return x, y

    assert nb.tree_map(clear, tree, other) == {"b": (1, 4), "a": (2, 3)}

    class Key(str):
        __hash__ = str.__hash__

        def __lt__(self, other):
            keyed.clear()
            return str.__lt__(self, other)

    keyed = {Key("b"): 1, Key("a"): 2}
    with pytest.raises(RuntimeError, match="changed"):
        nb.tree_leaves(keyed)


def test_a_structure_in_a_cycle_is_collected():
    class Aux:
        pass

    aux = Aux()
    aux.structure = nb.tree_structure(Bag([1], aux))
    ref = weakref.ref(aux)
    assert gc.is_tracked(aux.structure)
    del aux
    gc.collect()
    assert ref() is None


def everything(tree, rest, key):
    """Every function once, in success and in failure."""
    leaves, structure = nb.tree_flatten(tree, is_leaf=lambda x: x == (None,))
    structure.unflatten(leaves)
    nb.tree_map(lambda *x: x, tree, tree, tree)
    tree_unflatten_full(*reversed(tree_flatten_full(tree)))
    pickle.loads(pickle.dumps(structure))
    nb.tensor_leaves(tree)
    repr(structure), hash(structure), structure == nb.tree_structure(tree)
    for call in (
        lambda: nb.tree_map(boom, tree),
        lambda: nb.tree_map(boom, tree, rest),
        lambda: nb.tree_map(lambda *x: x, tree, rest),
        lambda: nb.tree_map(lambda *x: x, tree, {**tree, 1: 1}),
        lambda: nb.tree_map(lambda *x: x, tree, {"b": 1, "c": 1}),
        lambda: nb.tree_map(lambda *x: x, tree["b"], Bag([1, 2], 1)),
        lambda: nb.tree_map(lambda *x: x, tree["b"], Bag([1], rest["b"].aux)),
        lambda: nb.tree_leaves(tree, boom),
        lambda: nb.tree_leaves([tree, {key: 1, 2: 2}]),
        lambda: nb.tree_map(len, [tree, Raises()]),
        lambda: nb.tree_map(len, [tree, [1]], [tree, Raises()]),
        lambda: structure.unflatten([1]),
        lambda: nb.register_pytree_node(key, len, len),
        lambda: structure.__reduce__()[0](((4, 0, str, None),)),
    ):
        with contextlib.suppress(Boom, ValueError, TypeError):
            call()


def test_nothing_leaks():
    leaf, aux, key = object(), ["aux"], "a key that nobody has"
    tree = {key: [leaf, (leaf, None)], "b": Bag([leaf, Point(leaf, 1)], aux)}
    rest = {key: [leaf, (leaf, None)], "b": Bag([leaf, (leaf, 1)], aux)}
    things = [leaf, aux, key, Bag, Point, Raises, boom, tree, nb.PyTreeDef]
    things += [bag_flatten, bag_unflatten]

    def growth():
        gc.collect()
        blocks = sys.getallocatedblocks()
        for _ in range(200):
            everything(tree, rest, key)
        gc.collect()
        return sys.getallocatedblocks() - blocks

    growth()
    counts = [sys.getrefcount(x) for x in things]
    # caches of the interpreter grow at times, a leak grows each time
    assert min(growth() for _ in range(4)) < 100
    assert [sys.getrefcount(x) for x in things] == counts


def test_memory_may_run_out_anywhere():
    testcapi = pytest.importorskip("_testcapi")
    x, y = 10**20, 10**21
    tree = {"b": [x, (y, None)], "a": Bag([x, Point(y, x)]), "c": [y] * 40}
    other = {**tree, "c": 0}
    leaves, structure = nb.tree_flatten(tree)
    nodes = structure.__reduce__()
    calls = [
        lambda: nb.tree_flatten(tree),
        lambda: nb.tree_map(max, tree, tree),
        lambda: nb.tree_map(max, tree, other),
        lambda: structure.unflatten(leaves),
        lambda: repr(structure),
        lambda: structure.__reduce__(),
        lambda: nodes[0](*nodes[1]),
        lambda: nb.tensor_leaves(tree),
        lambda: nb.tree_leaves({1: 1, "a": 2}),
    ]
    things = [tree["a"], tree["b"], Bag, Point, leaves, nodes, x, y]
    gc.collect()
    counts = [sys.getrefcount(x) for x in things]
    for call in calls:
        failed = 0
        for n in range(120):
            testcapi.set_nomemory(n, n + 1)
            try:
                call()
            except MemoryError:
                failed += 1
            except (ValueError, TypeError):
                pass
            finally:
                testcapi.remove_mem_hooks()
        assert failed > 0
    gc.collect()
    assert [sys.getrefcount(x) for x in things] == counts


@pytest.mark.parametrize("seed", range(40))
def test_random_trees_come_back(seed):
    tree = random_tree(random.Random(seed))
    leaves, structure = nb.tree_flatten(tree)
    assert structure.num_leaves == len(leaves) == len(nb.tree_leaves(tree))
    assert structure.unflatten(leaves) == tree
    assert nb.tree_structure(structure.unflatten(leaves)) == structure
    assert pickle.loads(pickle.dumps(structure)) == structure
    assert nb.tree_map(lambda x: x, tree) == tree
    each = iter(leaves)
    assert nb.tree_map(lambda x: next(each), tree) == tree
    full, shape = tree_flatten_full(tree)
    assert [x for x in full if x is not None] == leaves
    assert tree_unflatten_full(shape, full) == tree


def test_leaves_and_maps_are_those_of_jax():
    jax = pytest.importorskip("jax")
    for seed in range(200):
        tree = random_tree(random.Random(seed))
        assert nb.tree_leaves(tree) == jax.tree.leaves(tree)
        got = nb.tree_map(lambda x, y: x - y // 2, tree, tree)
        assert got == jax.tree.map(lambda x, y: x - y // 2, tree, tree)


FUNCTIONS = [
    nb.tree_flatten, nb.tree_leaves, nb.tree_structure, nb.tree_unflatten,
    nb.tree_map, nb.register_pytree_node, nb.tensor_leaves, nb.PyTreeDef,
    tree_flatten_full, tree_unflatten_full,
]  # fmt: skip


@pytest.mark.parametrize("thing", FUNCTIONS, ids=lambda f: f.__name__)
def test_the_examples_in_the_docs_hold(thing):
    (test,) = doctest.DocTestFinder(recurse=False).find(
        thing, thing.__name__, module=False, globs={"nabla": nb}
    )
    assert test.examples
    assert doctest.DocTestRunner().run(test).failed == 0


def test_signatures_are_those_of_the_manual():
    shown = {f.__name__: str(inspect.signature(f)) for f in FUNCTIONS[:7]}
    assert shown == {
        "tree_flatten": "(tree, is_leaf=None)",
        "tree_leaves": "(tree, is_leaf=None)",
        "tree_structure": "(tree, is_leaf=None)",
        "tree_unflatten": "(treedef, leaves)",
        "tree_map": "(fn, tree, *rest, is_leaf=None)",
        "register_pytree_node": "(cls, flatten_fn, unflatten_fn)",
        "tensor_leaves": "(tree)",
    }
