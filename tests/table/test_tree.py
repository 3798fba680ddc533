"""Trees: every container comes back as it was, and what is no tree is refused by name."""

import sys
from collections import Counter, OrderedDict, defaultdict, namedtuple
from dataclasses import InitVar, dataclass, field

import numpy as np
import pytest

import odyssey as od
from odyssey import Variable
from odyssey.errors import DTypeError, OdysseyError, ShapeError
from odyssey.tree import flatten, leaves, map_tree, paths, same_tree, unflatten


class Twin:
    """One that looks like every other one."""

    def __repr__(self):
        return "twin"


class Plain(namedtuple("Plain", "x y")):
    """A named tuple that refuses what is not a number."""

    def __new__(cls, x, y):
        if not isinstance(x, (int, float)):
            raise TypeError("x is not a number")
        return super().__new__(cls, x, y)


class Registry(dict):
    def __init__(self, owner, entries):
        super().__init__(entries)
        self.owner = owner


class Layers(list):
    def __init__(self, owner, entries):
        super().__init__(entries)
        self.owner = owner


class Pair(tuple):
    def __new__(cls, first, second):
        return super().__new__(cls, (first, second))


@dataclass
class Computed:
    w: object
    twice: object = field(init=False, default=None)
    count: int = field(init=False, default=3)


@dataclass(frozen=True)
class Frozen:
    w: object
    start: InitVar[int]
    b: object = 1

    def __post_init__(self, start):
        assert start == 7


CONTAINERS = {
    "dict": {"b": 1, "a": 2},
    "ordered": OrderedDict(b=1, a=2),
    "defaultdict": defaultdict(list, b=1, a=2),
    "counter": Counter(b=1, a=2),
    "registry": Registry("me", {"b": 1, "a": 2}),
    "list": [1, 2],
    "layers": Layers("me", [1, 2]),
    "tuple": (1, 2),
    "pair": Pair(1, 2),
    "named": Plain(1, 2),
    "frozen": Frozen(1, 7, 2),
    "nested": {"w": [Plain(1, 2), defaultdict(dict, b=Pair(3, 4))], "e": [], "n": None},
}


@pytest.mark.parametrize("tree", CONTAINERS.values(), ids=list(CONTAINERS))
def test_a_container_comes_back_as_it_was_with_other_leaves(tree):
    values, rebuild = flatten(tree)
    before, shown = list(values), repr(tree)
    new = rebuild([Twin() for _ in values])
    assert type(new) is type(tree)
    assert all(isinstance(leaf, Twin) for leaf in leaves(new))
    same = rebuild(values)
    assert same == tree
    assert (leaves(tree), repr(tree)) == (before, shown)
    assert vars(same) == vars(tree) if hasattr(tree, "__dict__") else True
    assert [path for path, _ in paths(tree)] == [path for path, _ in paths(same)]


def test_a_defaultdict_keeps_its_factory():
    tree = defaultdict(list, w=1.0)
    made = map_tree(lambda leaf: leaf + 1.0, tree)
    assert made == {"w": 2.0}
    assert made["missing"] == []
    assert "missing" not in tree


def test_a_dataclass_whose_constructor_computes_fields_is_a_tree():
    made = map_tree(lambda leaf: (leaf, "new"), Computed(1.0))
    assert (made.w, made.twice, made.count) == ((1.0, "new"), (None, "new"), (3, "new"))


def test_parameters_in_containers_of_their_own_are_differentiated():
    params = defaultdict(list, w=np.array([1.0, 2.0]), b=Pair(2.0, 3.0))

    def loss(p):
        return (p["w"] * p["w"]).sum() * p["b"][0] + p["b"][1]

    gradient = od.grad(loss)(params)
    assert gradient.default_factory is list
    assert type(gradient["b"]) is Pair
    np.testing.assert_array_equal(gradient["w"], [4.0, 8.0])
    assert [float(g) for g in gradient["b"]] == [5.0, 1.0]


def test_keys_that_look_alike_are_not_mixed_up():
    one, other = Twin(), Twin()
    tree = {one: 1, other: 2}
    assert same_tree("who", "leaves", tree, {other: 20, one: 10}) == [10, 20]
    with pytest.raises(ShapeError, match=r"differ at \[twin\]"):
        same_tree("who", "leaves", tree, {one: 1, Twin(): 2})


def test_a_named_tuple_is_not_matched_by_a_dictionary_of_its_names():
    with pytest.raises(ShapeError, match=r"the trees differ at \.x"):
        same_tree("who", "leaves", Plain(1, 2), {"x": 1, "y": 2})


def test_where_trees_differ_is_said_by_path():
    with pytest.raises(ShapeError, match=r"differ at \['w'\]\[1\]\.y"):
        same_tree("who", "leaves", {"w": [0, Plain(1, 2)]}, {"w": [0, Plain(1, {"z": 2})]})


# ------------------------------------------------------------------ what ends nowhere


def holds_itself():
    nest = [1.0, [2.0]]
    nest.append({"me": nest})
    return nest


def deep():
    nest = 1.0
    for _ in range(5000):
        nest = [nest]
    return nest


def watched(tree):
    with od.GradientTape() as tape:
        return tape.watch(tree)


WALKS = {
    "leaves": leaves,
    "paths": paths,
    "unflatten": lambda tree: unflatten(tree, [1.0] * 9999),
    "same_tree": lambda tree: same_tree("who", "leaves", tree, tree),
    "map_tree": lambda tree: map_tree(abs, tree),
    "grad": lambda tree: od.grad(lambda x: 1.0)(tree),
    "optimizer": lambda tree: od.optim.SGD(tree, 0.1),
    "clip": lambda tree: od.optim.clip_grad_norm(tree, 1.0),
    "stop_gradient": od.stop_gradient,
    "watch": watched,
}


@pytest.mark.parametrize("walk", WALKS.values(), ids=list(WALKS))
@pytest.mark.parametrize(
    ("make", "words"),
    [(holds_itself, "holds itself"), (deep, "deeper than 200 containers")],
    ids=["cycle", "deep"],
)
def test_a_tree_without_an_end_is_refused_by_name(walk, make, words):
    with pytest.raises(OdysseyError, match=words):
        walk(make())


def test_a_container_that_cannot_be_made_again_is_refused_by_name():
    import time

    with pytest.raises(DTypeError, match="struct_time cannot be made again"):
        map_tree(lambda leaf: leaf, time.gmtime(0))


def test_shared_branches_are_no_cycle():
    branch = [Variable(1.0, True)]
    assert len(leaves([branch, {"again": branch}])) == 2


def test_a_full_stack_is_not_blamed_on_the_tree():
    def fall(n):
        return leaves([[[1.0]]]) if n == 0 else fall(n - 1)

    met = {raises(fall, n) for n in range(sys.getrecursionlimit() - 150, sys.getrecursionlimit())}
    assert met == {None, RecursionError}


def raises(call, *args):
    try:
        call(*args)
    except Exception as error:
        return type(error)


def test_a_tree_as_deep_as_is_allowed_is_walked():
    nest = 1.0
    for _ in range(200):
        nest = [nest]
    assert leaves(map_tree(lambda leaf: leaf + 1, nest)) == [2.0]
    with pytest.raises(OdysseyError, match="deeper than 200"):
        leaves([nest])
