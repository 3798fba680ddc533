"""Each pass over nodes means what it found: values by NumPy before and after, at random graphs."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import odyssey as od
from odyssey import Variable
from odyssey.compiler.ir.nodes import (
    IRBuilder,
    rewrite,
    scalar_program,
    substitute,
    topological_order,
)
from odyssey.compiler.lowering import Lowered
from odyssey.compiler.passes.layout_assignment import (
    Roots,
    assign_layouts,
    isolate_join_members,
    legalize_products,
)
from odyssey.compiler.passes.pass_manager import PASSES, format_ir
from odyssey.compiler.passes.rewriting import apply_rewrite
from odyssey.compiler.passes.simplify import REWRITES, gemm_accumulate
from odyssey.compiler.pipeline import plan
from odyssey.compiler.ways.choices import Choices
from support.node_graphs import CALM, TWO, alike, arrays, graphs, nodes_of, same
from support.node_values import evaluated

# Ordinary runs take one case in fourteen, and soaks the others.
pytestmark = pytest.mark.share(14)

ADD, TIMES = (scalar_program(TWO[name][0], 2, (), "f8") for name in ("sum", "product"))


TWICE = scalar_program(TWO["product"][0], 2, (), "f4")
ROWS = {row.name: row for row in REWRITES}


def rewritten(name, builder, roots):
    """Roots of a graph after one row of the rewrite table."""
    return apply_rewrite(ROWS[name], builder, roots)


# ------------------------------------------------------------------ making nodes


@pytest.mark.slow
@settings(max_examples=150, **CALM)
@given(graphs(whole=False))
def test_nodes_mean_what_they_were_asked_for_with_nan_infinities_and_signs_of_zeros(found):
    graph, roots, _ = found
    same(evaluated(nodes_of(roots), graph.leaves), arrays(roots))


@pytest.mark.slow
@settings(max_examples=100, **CALM)
@given(graphs())
def test_nodes_of_sums_and_products_mean_what_they_were_asked_for(found):
    graph, roots, _ = found
    alike(evaluated(nodes_of(roots), graph.leaves), arrays(roots))


@pytest.mark.slow
@settings(max_examples=60, **CALM)
@given(graphs())
def test_equal_nodes_are_made_once(found):
    graph, _, _ = found
    for node in list(graph.nodes.nodes):
        again = graph.nodes.make_node(
            node.kind, node.inputs, node.shape, node.type, node.detail, node.payload
        )
        assert again is node
    keys = {(n.kind, n.inputs, n.shape, n.type, str(n.detail)) for n in graph.nodes.nodes}
    assert len(keys) == len(graph.nodes.nodes)


@pytest.mark.slow
@settings(max_examples=60, **CALM)
@given(graphs())
def test_what_is_live_is_what_roots_are_made_of_inputs_first(found):
    _, roots, _ = found
    order = topological_order(nodes_of(roots))
    seen = set()
    for node in order:
        assert {i.id for i in node.inputs} <= seen
        seen.add(node.id)
    needed, stack = set(), nodes_of(roots)
    while stack:
        node = stack.pop()
        needed.add(node.id)
        stack += [i for i in node.inputs if i.id not in needed]
    assert seen == needed


# ------------------------------------------------------------------ rewriting


@pytest.mark.slow
@settings(max_examples=60, **CALM)
@given(graphs(whole=False))
def test_graphs_that_are_rebuilt_of_copies_mean_the_same(found):
    graph, roots, _ = found

    def rule(node, inputs):
        if node.kind not in ("map", "fold"):
            return None
        return graph.nodes.copy(graph.nodes.with_inputs(node, inputs), "here")

    made = rewrite(graph.nodes, nodes_of(roots), rule)
    same(evaluated(made, graph.leaves), arrays(roots))
    assert len(topological_order(made)) >= len(topological_order(nodes_of(roots)))


@pytest.mark.slow
@settings(max_examples=60, **CALM)
@given(graphs(whole=False), st.data())
def test_nodes_that_give_way_to_others_of_their_value_leave_all_values(found, data):
    graph, roots, _ = found
    order = [n for n in topological_order(nodes_of(roots)) if n.kind != "number"]
    chosen = data.draw(st.lists(st.sampled_from(order), max_size=4, unique_by=id))
    # Two negations of what a node is computed of: another node of the same value, bit for bit.
    nodes, means = graph.nodes, scalar_program(lambda x: -x, 1, (), "f8")
    new = {}
    for node in chosen:
        if node.kind == "map" and node.type == "f8":
            twin = nodes.make_node("map", node.inputs, node.shape, "f8", "a twin", node.payload)
            turned = nodes.map(means, [twin], node.shape, "f8")
            new[node.id] = nodes.map(means, [turned], node.shape, "f8")
    made = substitute(nodes, nodes_of(roots), new)
    same(evaluated([made[n.id] for n in nodes_of(roots)], graph.leaves), arrays(roots))
    assert not set(new) & {n.id for n in topological_order(made[n.id] for n in nodes_of(roots))}


@pytest.mark.slow
@settings(max_examples=80, **CALM)
@given(graphs())
def test_wholes_of_parts_that_are_summed_become_wholes(found):
    graph, roots, _ = found
    made = rewritten("merge_joins", graph.nodes, nodes_of(roots))
    alike(evaluated(made, graph.leaves), arrays(roots))


@pytest.mark.parametrize("x", [-0.0, 0.0, np.nan, np.inf])
def test_wholes_of_parts_keep_the_signs_of_zeros_that_their_sum_has(x):
    nodes = IRBuilder()
    a, b = (nodes.leaf("input", k, (2,), "f8") for k in range(2))
    first = nodes.join([(a, (slice(0, 2),))], (4,), "f8")
    second = nodes.join([(b, (slice(2, 4),))], (4,), "f8")
    root = nodes.map(ADD, [first, second], (4,), "f8")
    leaves = {("input", 0): np.full(2, x), ("input", 1): np.full(2, -x)}
    wanted = np.concatenate([np.full(2, x) + 0.0, 0.0 + np.full(2, -x)])
    same(evaluated([root], leaves), [wanted])
    made = rewritten("merge_joins", nodes, [root])
    assert made[0].kind == "join"
    same(evaluated(made, leaves), [wanted])


@pytest.mark.parametrize("x", [-0.0, 0.0, np.nan, np.inf])
@pytest.mark.parametrize("turned", [False, True], ids=["behind", "before"])
def test_a_part_at_just_the_place_of_another_is_added_to_it(x, turned):
    nodes = IRBuilder()
    a, b, c = (nodes.leaf("input", k, (2,), "f8") for k in range(3))
    many = nodes.join([(a, (slice(0, 2),)), (b, (slice(2, 4),))], (5,), "f8")
    one = nodes.join([(c, (slice(2, 4),))], (5,), "f8")
    root = nodes.map(ADD, [one, many] if turned else [many, one], (5,), "f8")
    leaves = {("input", k): np.array([x, k]) for k in range(3)}
    wanted = np.array([x + 0.0, 0.0, x + x, 3.0, 0.0])
    same(evaluated([root], leaves), [wanted])
    made = rewritten("merge_joins", nodes, [root])
    assert made[0].kind == "join"
    assert len(made[0].inputs) == 2
    same(evaluated(made, leaves), [wanted])


def test_parts_that_share_a_place_are_summed_and_not_joined():
    nodes = IRBuilder()
    a, b = (nodes.leaf("input", k, (3,), "f8") for k in range(2))
    first = nodes.join([(a, (slice(0, 3),))], (4,), "f8")
    second = nodes.join([(b, (slice(1, 4),))], (4,), "f8")
    root = nodes.map(ADD, [first, second], (4,), "f8")
    assert rewritten("merge_joins", nodes, [root]) == [root]


@pytest.mark.slow
@settings(max_examples=80, **CALM)
@given(graphs())
def test_products_that_are_summed_over_a_batch_become_one_product(found):
    graph, roots, _ = found
    made = rewritten("batch_matmul_sum", graph.nodes, nodes_of(roots))
    alike(evaluated(made, graph.leaves), arrays(roots))


def test_a_batch_that_is_summed_is_one_product_unless_somebody_else_reads_it():
    nodes = IRBuilder()
    a, b = nodes.leaf("input", 0, (5, 3, 2), "f8"), nodes.leaf("input", 1, (5, 2, 4), "f8")
    batch = nodes.matmul(a, b)
    total = nodes.reduce("sum", batch, (0,))
    (made,) = rewritten("batch_matmul_sum", nodes, [total])
    assert made.owner.kind == "product"
    assert made.owner.shape == (3, 4)
    rng = np.random.default_rng(0)
    leaves = {
        ("input", 0): rng.integers(-3, 4, (5, 3, 2)).astype(float),
        ("input", 1): rng.integers(-3, 4, (5, 2, 4)).astype(float),
    }
    wanted = sum(x @ y for x, y in zip(*leaves.values(), strict=True))
    alike(evaluated([made], leaves), [wanted[None]])
    assert rewritten("batch_matmul_sum", nodes, [total, batch]) == [total, batch]


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("turned", [False, True])
def test_products_with_windows_as_columns_are_products_with_windows(stride, turned):
    nodes, rng = IRBuilder(), np.random.default_rng(0)
    x = nodes.leaf("input", 0, (2, 3, 8, 9), "f8")
    windows = nodes.windows(x, (3, 2), (stride, 1), (1, 1))
    high, wide = windows.shape[-2:]
    columns = nodes.reshape(windows, (2, 18, high * wide))
    if turned:
        columns = nodes.transpose(columns, (0, 2, 1))
    w = nodes.leaf("input", 1, (2, 5, columns.shape[1]), "f8")
    root = nodes.matmul(w, columns)
    leaves = {leaf.detail: rng.integers(-3, 4, leaf.shape).astype(float) for leaf in (x, w)}
    (made,) = rewritten("window_product", nodes, [root])
    assert len(made.detail) == 4
    alike(evaluated([made], leaves), evaluated([root], leaves))


# ------------------------------------------------------------------ casts of half precision


@pytest.mark.parametrize("half", ["f2", "f2b"])
def test_only_a_reader_many_products_later_casts_half_precision_again(half):
    nodes = IRBuilder()
    x, w = nodes.leaf("input", 0, (4, 4), half), nodes.leaf("input", 1, (4, 4), "f4")
    cast = nodes.convert(x, "f4")
    chain = [nodes.matmul(cast, w), nodes.matmul(nodes.transpose(cast, (1, 0)), w)]
    for _ in range(4):
        chain.append(nodes.matmul(chain[-1], w))
    late = nodes.matmul(nodes.transpose(cast, (1, 0)), chain[-1])
    slope = nodes.map(TWICE, [cast, cast], (4, 4), "f4")
    roots = [chain[0], chain[1], nodes.map(TWICE, [late, slope], (4, 4), "f4")]
    first, second, total = rewritten("cast_again", nodes, roots)
    assert first.inputs[0] is second.inputs[0].owner is cast
    made, waiting = total.inputs
    again = made.inputs[0]
    assert again.shape == (4, 4)
    assert again.detail == ("transpose", (1, 0))
    for other in (again.owner, waiting.inputs[0]):
        assert other is not cast
        assert (other.inputs, other.payload, other.is_rematerialized) == ((x,), cast.payload, True)
    assert waiting.is_rematerialized
    assert not made.is_rematerialized


def test_a_cast_of_other_dtypes_is_shared_by_all_readers():
    nodes = IRBuilder()
    x, w = nodes.leaf("input", 0, (4, 4), "i4"), nodes.leaf("input", 1, (4, 4), "f4")
    cast = nodes.convert(x, "f4")
    last = nodes.matmul(cast, w)
    for _ in range(5):
        last = nodes.matmul(last, w)
    root = nodes.matmul(cast, last)
    assert rewritten("cast_again", nodes, [root]) == [root]


# ------------------------------------------------------------------ products that are added


def momentum(number, shape=(9, 9), reads_again=False):
    """``v = number * v + a @ b``, its roots and leaves."""
    nodes = IRBuilder()
    a, b = nodes.leaf("input", 0, (9, 4), "f8"), nodes.leaf("input", 1, (4, 9), "f8")
    v = nodes.leaf("state", 0, shape, "f8")
    scaled = nodes.map(TIMES, [v, nodes.literal(number, "f8")], shape, "f8")
    update = nodes.map(ADD, [scaled, nodes.matmul(a, b)], shape, "f8")
    roots = [update, nodes.reduce("sum", v, (0, 1))] if reads_again else [update]
    rng = np.random.default_rng(0)
    leaves = {leaf.detail: rng.integers(-3, 4, leaf.shape).astype(float) for leaf in (a, b, v)}
    return nodes, roots, v, leaves


@pytest.mark.parametrize("number", [0.5, -2.0, 1.0])
def test_a_product_is_added_where_it_is_kept(number):
    nodes, roots, v, leaves = momentum(number)
    made = gemm_accumulate(nodes, roots, {0: v})
    assert (made[0].owner.kind, made[0].owner.detail) == ("product", ("=", number))
    alike(evaluated(made, leaves), evaluated(roots, leaves))


def test_a_product_is_added_to_a_state_that_is_multiplied_by_nothing():
    nodes, _, v, leaves = momentum(1.0)
    product = nodes.matmul(*(n for n in nodes.nodes if n.kind == "leaf" and n is not v))
    for inputs in ([v, product], [product, v]):
        root = nodes.map(ADD, inputs, (9, 9), "f8")
        made = gemm_accumulate(nodes, [root], {0: v})
        assert made[0].detail == ("=", 1.0)
        alike(evaluated(made, leaves), evaluated([root], leaves))


def test_a_product_is_not_added_where_the_state_is_read_again():
    nodes, roots, v, _ = momentum(0.5, reads_again=True)
    assert gemm_accumulate(nodes, roots, {0: v}) == roots


def test_momentum_of_0_keeps_the_nan_of_a_state_that_is_compiled():
    def step(v):
        def add(a, b):
            v.assign(0.0 * v + a @ b)

        return add

    a, b = np.ones((9, 9)), np.ones((9, 9))
    found = []
    for wrap in (lambda fn: fn, od.compile):
        v = Variable(np.full((9, 9), np.nan))
        run = wrap(step(v))
        for _ in range(3):
            run(a, b)
        found.append(v.numpy().copy())
    assert np.isnan(found[0]).all()
    same(found[1:], found[:1])


@pytest.mark.parametrize("number", [0.0, -0.0])
def test_nothing_is_added_to_0_times_a_state_since_that_keeps_nan(number):
    # BLAS does not read what it is to multiply by 0, and so would lose the NaN of 0 * NaN.
    nodes, roots, v, _ = momentum(number)
    assert gemm_accumulate(nodes, roots, {0: v}) == roots


# ------------------------------------------------------------------ arranging


@pytest.mark.slow
@settings(max_examples=80, **CALM)
@given(graphs())
def test_values_that_are_arranged_for_kernels_are_the_same(found):
    graph, roots, updates = found
    low = graph.lowered(nodes_of(roots), updates)
    made = Roots(low, {})
    wanted = evaluated(made.nodes, graph.leaves)
    made.unalias()
    alike(_flat(evaluated(made.nodes, graph.leaves)), _flat(wanted))
    isolate_join_members(made)
    made.unalias()
    assign_layouts(made)
    made.unalias()
    legalize_products(made)
    alike(_flat(evaluated(made.nodes, graph.leaves)), _flat(wanted))
    owners = [n.owner.id for n in made.nodes]
    assert len(set(owners)) == len(owners)  # nobody shares memory


def _flat(found):
    """An update may be kept in another shape, which its state then gives it."""
    return [array.reshape(-1) for array in found]


def test_transposes_are_read_by_products_where_they_lie():
    nodes = IRBuilder()
    x, w = nodes.leaf("input", 0, (8, 5), "f8"), nodes.leaf("input", 1, (7, 8), "f8")
    product = nodes.matmul(nodes.transpose(x, (1, 0)), nodes.transpose(w, (1, 0)))
    batch = nodes.leaf("input", 2, (6, 3, 4), "f8")
    heads = nodes.matmul(batch, nodes.transpose(batch, (0, 2, 1)))
    made = plan(_lowered(nodes, [product, heads]), {})
    assert [kernel.kind for kernel in made.fused.kernels] == ["product", "product"]
    assert made.arena == 0


def test_ones_and_negations_of_numbers_are_nothing_to_compute():
    nodes = IRBuilder()
    x = nodes.leaf("input", 0, (3,), "f8")
    assert nodes.map(TIMES, [x, nodes.literal(1.0, "f8")], (3,), "f8") is x
    assert nodes.map(TIMES, [nodes.literal(1.0, "f8"), x], (3,), "f8") is x
    # It was so only for the first product of a process, since to look at a program changed it.
    other = scalar_program(lambda x, y: x * y, 2, (), "f8")
    assert nodes.map(other, [x, nodes.literal(1.0, "f8")], (3,), "f8") is x
    assert len(other.body.steps) == 1
    first = scalar_program(lambda x, y: x * x, 2, (), "f8")
    assert nodes.map(first, [x, nodes.literal(1.0, "f8")], (3,), "f8") is not x
    # These two are something: -0.0 + 0 is 0, and NaN * 0 is NaN.
    assert nodes.map(ADD, [x, nodes.literal(0.0, "f8")], (3,), "f8") is not x
    assert nodes.map(TIMES, [x, nodes.literal(0.0, "f8")], (3,), "f8").inputs[0] is x


def _lowered(nodes, outputs):
    return Lowered(nodes, outputs, {}, [], [], {}, {}, [], Choices())


# ------------------------------------------------------------------ the tables


def test_passes_and_rewrites_have_names_and_summaries_and_each_rewrite_is_a_pass():
    names = [each.name for each in PASSES]
    assert all(each.name.isidentifier() and each.summary for each in PASSES)
    assert [row.name for row in REWRITES] == names[: len(REWRITES)]
    assert len({row.name for row in REWRITES}) == len(REWRITES)


def _product_and_update():
    nodes, roots, _, _ = momentum(0.5)
    return Lowered(nodes, [], {0: roots[0]}, [], [], {}, {}, [], Choices())


@pytest.mark.parametrize("printed", ["1", "assign_layouts", ""])
def test_the_graph_is_printed_after_each_pass_that_the_environment_asks_for(
    printed, monkeypatch, capsys
):
    monkeypatch.setenv("ODYSSEY_PRINT_IR", printed)
    plan(_product_and_update(), {})
    lines = capsys.readouterr().err.splitlines()
    headings = [line for line in lines if line.startswith("after ")]
    wanted = [each.name for each in PASSES if printed in ("1", each.name)]
    assert headings == [f"after {name}:" for name in wanted]
    assert len(lines) > len(headings) or not printed


def test_a_printed_graph_has_a_line_for_each_node_with_its_details():
    _, (update,), _, _ = momentum(0.5)
    lines = format_ir([update]).splitlines()
    assert len(lines) == len(topological_order([update]))
    assert "product(n0, n1) ('=', 0.0)" in "\n".join(lines)
