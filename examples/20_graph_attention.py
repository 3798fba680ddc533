"""Graph attention network (GAT) for nodes of a graph
===================================================

Each node of a graph has noisy features and mostly neighbours of its own class. A graph attention
layer averages the features of the neighbours, by weights that it computes from both ends of each
edge (P. Veličković et al., ICLR 2018). Nodes have different numbers of neighbours: the softmax and
the sum go over the segments of one list of edges.

To be seen: 600 nodes of four classes, of which 80 have known labels; the graph network classifies
90 % of the others, a network that sees the features alone 56 %. Runs in about 5 seconds, with the
training step compiled.
"""

import numpy as np

import odyssey as od
from odyssey import GradientTape, Variable, ops

NODES, CLASSES, FEATURES, WIDTH, HEADS, KNOWN, STEPS = 600, 4, 16, 8, 4, 80, 120

# %%
# Graph
# -----
# Edges within a class are 16 times as likely as others. Each edge is listed in both directions, and
# each node is a neighbour of itself. The list is ordered by target.

rng = np.random.default_rng(0)
labels = rng.integers(0, CLASSES, NODES)
features = rng.normal(0.0, 1.0, (CLASSES, FEATURES))[labels] * 0.5
features = features + rng.normal(0.0, 1.2, (NODES, FEATURES))
likely = np.where(labels[:, None] == labels, 0.032, 0.002)
linked = np.triu(rng.random((NODES, NODES)) < likely, 1)
TARGETS, SOURCES = np.nonzero(linked | linked.T | np.eye(NODES, dtype=bool))
known = rng.permutation(NODES)[:KNOWN]
hidden = np.setdiff1d(np.arange(NODES), known)

# %%
# Layers
# ------


def parameter(values):
    return Variable(np.asarray(values, np.float64), requires_grad=True)


def gat_params(rng, inputs, width):
    return {
        "w": parameter(od.init.glorot_uniform(rng, (HEADS * width, inputs))),
        "source": parameter(od.init.glorot_uniform(rng, (HEADS, width))),
        "target": parameter(od.init.glorot_uniform(rng, (HEADS, width))),
    }


def attention_layer(params, x):
    """Return new features (nodes, heads, width), and the weight of each edge, (edges, heads)."""
    h = ops.reshape(ops.linear(x, params["w"]), (NODES, HEADS, -1))
    from_source, at_target = ((h * params[name]).sum(axis=2) for name in ("source", "target"))
    scores = ops.leaky_relu(from_source[SOURCES] + at_target[TARGETS], negative_slope=0.2)
    weights = ops.segment_softmax(scores, TARGETS, num_segments=NODES)
    return ops.segment_sum(weights[:, :, None] * h[SOURCES], TARGETS, num_segments=NODES), weights


def graph_network(params, x):
    h, _ = attention_layer(params[0], x)
    h, _ = attention_layer(params[1], ops.elu(ops.reshape(h, (NODES, -1))))
    return h.mean(axis=1)


def plain_network(params, x):
    return ops.linear(ops.elu(ops.linear(x, params[0])), params[1])


# %%
# Training
# --------


def train(network, params):
    """Return the scores of all nodes, after training on the labels of the known ones."""
    optimizer = od.optim.AdamW(params, learning_rate=0.01, weight_decay=0.05)

    @od.compile(fullgraph=True)
    def training_step():
        with GradientTape() as tape:
            loss = od.losses.cross_entropy(network(params, features)[known], labels[known])
        tape.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        return loss

    losses = [float(training_step()) for _ in range(STEPS)]
    with od.no_grad():
        return network(params, features).numpy(), losses


init = od.Generator(0)
graph_params = [gat_params(init, FEATURES, WIDTH), gat_params(init, HEADS * WIDTH, CLASSES)]
plain_params = [
    parameter(od.init.glorot_uniform(init, (HEADS * WIDTH, FEATURES))),
    parameter(od.init.glorot_uniform(init, (CLASSES, HEADS * WIDTH))),
]
results = {
    "graph attention": train(graph_network, graph_params),
    "features alone": train(plain_network, plain_params),
}
accuracy = {}
for name, (scores, losses) in results.items():
    accuracy[name] = np.mean(scores.argmax(axis=1)[hidden] == labels[hidden])
    print(f"{name:15}: loss {losses[-1]:.3f}, {accuracy[name]:.1%} of the unknown labels are right")
assert accuracy["graph attention"] > 0.85
assert accuracy["graph attention"] > accuracy["features alone"] + 0.1

# %%
# Picture
# -------
# The scores of the classes, in two principal components; colours are true classes.


def draw():
    """Draw the scores of both networks; without matplotlib nothing is drawn."""
    try:
        import matplotlib.pyplot as plt
    except ImportError:
        return
    _, axes = plt.subplots(1, 2, figsize=(9, 4), layout="constrained")
    for axis, (name, (scores, _losses)) in zip(axes, results.items(), strict=True):
        centered = scores - scores.mean(axis=0)
        _, _, directions = np.linalg.svd(centered, full_matrices=False)
        axis.scatter(*(centered @ directions[:2].T).T, c=labels, cmap="tab10", vmax=9, s=8)
        axis.set(title=f"Scores by {name}, {accuracy[name]:.0%} right", xticks=[], yticks=[])
    plt.show()


draw()
