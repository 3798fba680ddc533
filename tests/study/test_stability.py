"""The stability experiment: exact references, distances, and its hypotheses on made-up records."""

import mpmath
import numpy as np
import pytest

from study.experiments import stability
from study.patches import no_fusion
from study.records import Records, judged
from support.study import header, sample


def records_of(errors, apart=0.0, lost=None):
    """Records of chains whose errors are `errors(depth)`, and of a compiled program's distance."""
    lines = []
    sizes = {"chain": [1, 10, 100], "solve": [1.0, 1e4]}
    for problem, numbers in sizes.items():
        for system in ("taped", "compiled"):
            metrics = {}
            for size in numbers:
                for name in ("value", "gradient"):
                    metrics[f"{name}_error_at_{size:g}"] = errors(size)
                for kind in ("fused", "unfused"):
                    metrics[f"{kind}_from_taped_at_{size:g}"] = apart
            config = {"problem": problem, "dtype": "float64", "sizes": numbers}
            lines.append(sample(system, 0, 0.0, config=config, metrics=metrics))
    limits = dict(zip(("overflow", "underflow"), stability.LIMITS["float64"], strict=True))
    metrics = {f"first_{name}": float(limit) for name, limit in (lost or limits).items()}
    config = {"problem": "range", "dtype": "float64", "sizes": [1100]}
    lines.append(sample("taped", 0, 0.0, config=config, metrics=metrics))
    return Records(lines, [header()])


def outcomes(records):
    return {n: v.outcome for n, v in judged(stability.HYPOTHESES, records).items()}


def test_equal_bits_and_errors_of_the_root_of_depth_hold():
    found = outcomes(records_of(lambda size: size**0.5))
    assert found == dict.fromkeys(["bits", "fusion", "depth", "condition", "range"], "held")


def test_a_unit_in_the_last_place_refutes_equal_bits_and_five_refute_fusion():
    assert outcomes(records_of(lambda size: size**0.5, apart=1.0))["bits"] == "refuted"
    assert outcomes(records_of(lambda size: size**0.5, apart=1.0))["fusion"] == "held"
    assert outcomes(records_of(lambda size: size**0.5, apart=5.0))["fusion"] == "refuted"


def test_errors_in_proportion_to_depth_or_beyond_the_condition_number_refute():
    assert outcomes(records_of(lambda size: float(size)))["depth"] == "refuted"
    assert outcomes(records_of(lambda size: 100.0 * size))["condition"] == "refuted"
    only_well_conditioned = records_of(lambda size: 100.0 if size == 1 else 0.1)
    assert outcomes(only_well_conditioned)["condition"] == "refuted"


def test_flushed_subnormals_refute_the_range():
    found = outcomes(records_of(float, lost={"overflow": 1024, "underflow": 1023}))
    assert found["range"] == "refuted"


def test_pictures_say_what_the_records_have():
    titles = [p.title for p in stability.pictures(records_of(lambda size: size**0.5, apart=3.0))]
    assert titles[0].endswith("to the power 0.50 to 0.50")
    assert titles[1].endswith("err by 100 to 100 epsilons")
    assert titles[2] == "Gradients overflow and vanish in all systems where the format ends"
    assert titles[3] == "Compiled differs from taped by up to 3 units in the last place"


def test_nothing_measured_is_undecided():
    assert set(outcomes(Records([], [header()])).values()) == {"undecided"}


def test_the_first_powers_of_two_that_are_lost_are_those_of_the_formats():
    for dtype, (overflow, underflow) in stability.LIMITS.items():
        format = np.finfo(dtype)
        assert overflow == format.maxexp
        assert underflow == 1 - int(np.log2(float(format.smallest_subnormal)))


@pytest.mark.parametrize(("problem", "size"), [("chain", 3), ("functions", 2), ("network", 2)])
def test_exact_gradients_are_differences_of_exact_values(problem, size):
    # Central differences of 50-digit values, of 1e-15: their error is 1e-30 or so.
    _, slope = stability.exact(problem, size, "float64")
    drawn = stability._draw(problem, size, "float64")
    step = 1e-15
    ends = []
    original = stability._draw
    for sign in (1, -1):
        with mpmath.workdps(50), pytest.MonkeyPatch.context() as patch:
            to_exact = np.frompyfunc(mpmath.mpf, 1, 1)
            moved = to_exact(drawn["x"])
            moved.flat[0] += sign * mpmath.mpf(step)
            stability.exact.cache_clear()
            patch.setattr(stability, "_draw", lambda *a, x=moved: original(*a) | {"x": x})
            patch.setattr(stability, "_to_exact", lambda v: mpmath.mpf(v))
            ends.append(stability.exact(problem, size, "float64")[0])
    stability.exact.cache_clear()
    with mpmath.workdps(50):
        difference = ((ends[0] - ends[1]) * drawn["g"]).sum() / (2 * mpmath.mpf(step))
        assert abs(difference / slope.flat[0] - 1) < 1e-25


def test_exact_solutions_solve_the_system():
    value, _ = stability.exact("solve", 1e4, "float64")
    drawn = stability._draw("solve", 1e4, "float64")
    with mpmath.workdps(50):
        back = np.frompyfunc(mpmath.mpf, 1, 1)(drawn["data"][0]).dot(value)
        assert max(abs(a - b) for a, b in zip(back, drawn["x"], strict=True)) < 1e-40


def test_distances_and_errors_are_in_units_of_the_last_place():
    one = np.array([1.0, 2.0], np.float32)
    assert stability.ulp_distance(one, np.nextafter(one, np.float32(9))) == 1.0
    assert stability.ulp_distance(one, one) == 0.0
    off = one * (1 + 2 * np.finfo(np.float32).eps)
    exact = [mpmath.mpf(1), mpmath.mpf(2)]
    assert stability.relative_error(off, exact, "float32") == pytest.approx(2.0)
    assert stability.elementwise_error(off, exact, "float32") == pytest.approx(2.0)


def kernels_of(depth):
    """The number of kernels of a compiled chain of products and sums."""
    import odyssey as od

    drawn = stability._draw("chain", depth, "float32")
    program = od.compile(stability._function("chain", stability._odyssey_ops(stability._loop)))
    program.precompile(drawn["x"], *drawn["data"])
    return str(program.profile(drawn["x"], *drawn["data"], runs=1)).split(" ", 1)[0]


@pytest.mark.slow
def test_without_fusion_each_op_is_a_kernel_and_with_it_all_are_one():
    assert kernels_of(3) == "1"
    with no_fusion():
        assert kernels_of(3) == "6"  # three products and three sums
    assert kernels_of(3) == "1"


def test_a_taped_sample_has_errors_at_each_size():
    config = {"problem": "chain", "dtype": "float32", "sizes": [1, 3]}
    metrics = stability.build("taped", config).sample()
    assert set(metrics) == {f"{n}_error_at_{s}" for n in ("value", "gradient") for s in (1, 3)}
    assert 0 < metrics["value_error_at_1"] < 1  # two roundings, of half a unit each


def test_taped_powers_of_two_are_lost_where_the_format_ends():
    config = {"problem": "range", "dtype": "float32", "sizes": [160]}
    with np.errstate(over="ignore"):
        metrics = stability.build("taped", config).sample()
    assert metrics == {"first_overflow": 128.0, "first_underflow": 150.0}
