"""Figures of the study: numbers as text, tables, places of names, colours, files."""

import itertools
import re
import warnings

import numpy as np
import pytest

from study import drawing
from study.contract import SYSTEMS, Estimate
from study.drawing import Bars, Lines, Stack, estimate_text, number_text
from study.records import Records

SIZES = (8, 64, 512, 4096)


def estimate(median, width=0.05, noisy=False):
    return Estimate(median, median * (1 - width), median * (1 + width), 15, noisy)


def lines(series, **options):
    return Lines("lines", "A claim", "elements", "seconds", series, **options)


# ------------------------------------------------------------------ text


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (0.00123456, "s", "1.23 ms"),
        (0.0009997, "s", "1.00 ms"),
        (9.99e-4, "s", "999 µs"),
        (2e-12, "s", "0.00200 ns"),
        (4_194_304, "B", "4.19 MB"),
        (0, "B", "0 B"),
        (0.0314, "%", "3.14 %"),
        (12, "", "12"),
        (1234.5, "", "1230"),
        (1.0, "times", "1 times"),
        (2.0, "s", "2.00 s"),
        (float("nan"), "s", "NaN s"),
        (float("inf"), "B", "∞ B"),
        (-0.5, "", "−0.500"),
        (5e-7, "", "5·10⁻⁷"),
        (1e12, "", "10¹²"),
    ],
)
def test_a_number_is_written_with_three_digits_and_the_prefix_that_fits(value, unit, text):
    assert number_text(value, unit) == text


def test_an_estimate_is_written_with_its_interval_and_a_star_if_it_is_noisy():
    assert estimate_text(Estimate(2e-3, 1.9e-3, 2.2e-3, 15, True), "s") == (
        "2.00 ms (1.90 ms to 2.20 ms) *"
    )
    assert estimate_text(Estimate(7.0, 7.0, 7.0, 15, False)) == "7"
    assert estimate_text(61) == "61"


def test_a_table_has_a_row_for_each_x_and_a_dash_where_a_system_has_no_value():
    table = lines(
        {"taped": [(8, estimate(1.0)), (64, estimate(2.0))], "jax": [(64, estimate(4.0))]}
    )
    assert table.table().splitlines() == [
        "| elements | odyssey taped | JAX jit |",
        "| --- | --- | --- |",
        "| 8 | 1.00 (0.950 to 1.05) | – |",
        "| 64 | 2.00 (1.90 to 2.10) | 4.00 (3.80 to 4.20) |",
    ]


def test_a_table_of_ratios_follows_that_of_the_quantity():
    picture = lines(
        {"taped": [(8, estimate(1.0))], "torch": [(8, estimate(2.0))]},
        ratio_to="torch",
        ratios={"taped": [(8, estimate(0.5))]},
    )
    assert "Ratio to PyTorch eager:" in picture.table()
    assert picture.table().endswith("| 8 | 0.500 (0.475 to 0.525) |")


def test_a_bar_in_a_name_does_not_end_a_cell():
    picture = Bars("bars", "A claim", "bytes", {"a|b\nc": {"taped": estimate(1.0)}})
    assert picture.table().splitlines()[2] == "| a\\|b c | 1.00 (0.950 to 1.05) |"


def test_the_table_of_a_stack_has_its_peak():
    values = [1.0] * 100
    values[37] = 50.0
    table = Stack("stack", "A claim", "node", "bytes", range(100), {"saved": values}).table()
    assert "| 37 | 50 | 50 |" in table.splitlines()
    assert len(table.splitlines()) <= 12


def test_ratios_without_their_estimates_are_refused():
    with pytest.raises(ValueError, match="picture lines: ratio_to and ratios come together"):
        lines({}, ratio_to="torch")


def test_a_layer_of_another_length_is_refused_by_name():
    with pytest.raises(ValueError, match="'saved' has 2 values, and x has 3"):
        Stack("stack", "", "node", "bytes", [1, 2, 3], {"saved": [1.0, 2.0]})


@pytest.mark.parametrize("name", ["", "../figure", "a b", "a/b"])
def test_a_name_that_is_no_file_is_refused(name):
    with pytest.raises(ValueError, match="a picture's name is its file"):
        Bars(name, "", "", {})


# ------------------------------------------------------------------ lines of records


def sample(system, size, round_number, seconds):
    return {
        "study": 1, "run": "0" * 12, "session": 0, "experiment": "overhead", "system": system,
        "config": {"size": size, "ops": 60}, "attempt": 0, "round": round_number, "status": "ok",
        "metrics": {"seconds": seconds, "cpu_seconds": seconds}, "counts": {}, "check": None,
    }  # fmt: skip


def test_lines_of_records_have_ratios_of_neighbours_and_no_points_for_what_is_missing():
    # The machine slows down by rounds: each ratio of neighbours is 2, that of medians is not.
    records = Records(
        [sample("torch", 8, k, 1.0 + k) for k in range(4)]
        + [sample("taped", 8, k, 2.0 * (1.0 + k)) for k in range(1, 4)]
        + [sample("torch", 64, k, 5.0) for k in range(4)],
        [],
    )
    picture = Lines.from_records(
        records, name="overhead", title="A claim", x="size", metric="cpu_seconds",
        systems=["taped", "torch", "jax"], x_label="elements", y_label="seconds", ratio_to="torch",
    )  # fmt: skip
    assert [x for x, _ in picture.series["torch"]] == [8, 64]
    assert [x for x, _ in picture.series["taped"]] == [8]
    assert picture.series["jax"] == []
    ((x, ratio),) = picture.ratios["taped"]
    assert (x, ratio.median, ratio.low, ratio.high) == (8, 2.0, 2.0, 2.0)


def test_lines_of_records_of_several_configs_are_refused():
    other = sample("torch", 8, 0, 1.0)
    other["config"]["ops"] = 120
    with pytest.raises(ValueError, match="2 configs have records"):
        Lines.from_records(
            Records([sample("torch", 8, 0, 1.0), other], []), name="a", title="", x="size",
            metric="seconds", systems=["torch"], x_label="", y_label="",
        )  # fmt: skip


# ------------------------------------------------------------------ places and colours


def test_names_are_spread_apart_with_the_least_squared_shift():
    rng = np.random.default_rng(0)
    for _ in range(200):
        places = np.sort(rng.uniform(0, 1, rng.integers(1, 8)))
        gap = 0.1
        spread = np.array(drawing.spread_apart(places, gap, 0.0, 1.0))
        assert (np.diff(spread) >= gap - 1e-12).all()
        assert spread[0] >= -1e-12
        assert spread[-1] <= 1 + 1e-12
        cost = ((spread - places) ** 2).sum()
        for _ in range(50):  # no other admissible places are nearer
            other = np.maximum.accumulate(
                np.sort(rng.uniform(0, 1 - gap * (len(places) - 1), len(places)))
            ) + gap * np.arange(len(places))
            assert cost <= ((other - places) ** 2).sum() + 1e-12


def test_names_that_do_not_fit_leave_on_both_sides_alike():
    assert drawing.spread_apart([0.5, 0.5, 0.5], 1.0, 0.0, 1.0) == [-0.5, 0.5, 1.5]
    assert drawing.spread_apart([], 1.0, 0.0, 1.0) == []


# Machado, Oliveira, Fernandes 2009, severity 1.0, on linear RGB.
BLINDNESS = {
    "none": np.eye(3),
    "protanopia": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216],
         [-0.003882, -0.048116, 1.051998]]
    ),
    "deuteranopia": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413],
         [-0.011820, 0.042940, 0.968881]]
    ),
    "tritanopia": np.array(
        [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602],
         [0.004733, 0.691367, 0.303900]]
    ),
}  # fmt: skip


def lab(colour, matrix):
    """CIE L*a*b* (D65) of a hex colour as an eye with that blindness sees it."""
    srgb = np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    linear = np.where(srgb <= 0.04045, srgb / 12.92, ((srgb + 0.055) / 1.055) ** 2.4)
    xyz = np.array(
        [[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]
    ) @ np.clip(matrix @ linear, 0, 1)
    x, y, z = np.cbrt(np.maximum(xyz / [0.9505, 1.0, 1.089], 1e-4))
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


@pytest.mark.parametrize("matrix", BLINDNESS.values(), ids=BLINDNESS)
def test_colours_of_libraries_differ_under_colour_blindness(matrix):
    colours = {style[1] for style in drawing.SYSTEMS.values()}
    assert len(colours) == 5
    for one, other in itertools.combinations(colours, 2):
        # Some 2 is what an eye tells apart side by side; lines lie apart.
        assert np.linalg.norm(lab(one, matrix) - lab(other, matrix)) > 15, (one, other)


def test_systems_differ_in_dashes_or_grey_and_in_markers():
    assert set(drawing.SYSTEMS) == set(SYSTEMS)
    markers = [style[3] for style in drawing.SYSTEMS.values()]
    assert len(set(markers)) == len(markers)
    for one, other in itertools.combinations(drawing.SYSTEMS.values(), 2):
        greys = [lab(style[1], np.eye(3))[0] for style in (one, other)]
        assert one[2] != other[2] or abs(greys[0] - greys[1]) > 5, (one, other)


def test_what_is_no_system_has_a_colour_of_no_system_that_stands_beside_it():
    styles = drawing._styles(["predicted", "taped", "torch", "other"])
    assert styles["taped"] == drawing.SYSTEMS["taped"][1:]
    assert len({colour for colour, _, _ in styles.values()}) == 4
    everything = drawing._styles([*SYSTEMS, *map(str, range(20))])
    assert set(everything) == {*SYSTEMS, *map(str, range(20))}


def test_neighbours_in_a_stack_differ_in_grey_print():
    greys = [lab(colour, np.eye(3))[0] for colour in drawing.LAYERS]
    assert all(abs(a - b) > 20 for a, b in itertools.pairwise([*greys, greys[0]]))


# ------------------------------------------------------------------ drawn pictures

NAMES = [f"a rule of the tape that is switched off, number {k}: $x_{k}$ <&>" for k in range(6)]
HARD = {
    "alike": lines({s: [(x, estimate(5.0 + x)) for x in SIZES] for s in SYSTEMS}),
    "ratios": lines(
        {s: [(x, estimate(5.0 + x)) for x in SIZES] for s in SYSTEMS},
        ratio_to="torch",
        ratios={"taped": [(x, estimate(0.5)) for x in SIZES], "jax": [(8, estimate(1e-3))]},
    ),
    "one point": lines({"taped": [(64, estimate(3.0, noisy=True))]}),
    "missing": lines({"taped": [(8, estimate(1.0))], "jax": [], "torch": [(8, estimate(np.nan))]}),
    "nothing": lines({}),
    "zeros": lines({"taped": [(x, Estimate(0, 0, 0, 15, False)) for x in SIZES]}),
    "zeros and more": lines({"taped": [(0, estimate(0.0)), (1, estimate(1e-9)), (9, estimate(7))]}),
    "huge range": lines({"jax": [(10.0**k, estimate(10.0 ** (45 * k))) for k in range(-6, 7)]}),
    "negative": lines({"taped": [(k, estimate(k - 2.5)) for k in range(6)]}),
    "infinite interval": lines({"taped": [(1, Estimate(1.0, -np.inf, np.inf, 3, True))]}),
    "words": lines({"taped": [("float32", estimate(1.0)), ("bfloat16", estimate(2.0))]}),
    "long names": lines({name: [(x, estimate(2.0)) for x in SIZES] for name in NAMES}),
    "many": lines({f"line {k}": [(1, estimate(2.0)), (2, estimate(k + 1.0))] for k in range(40)}),
    "stack": Stack(
        "stack", "A claim", "node", "bytes", range(500),
        {"saved": [min(k, 500 - k) for k in range(500)], "none": [0] * 500, "state": [9] * 500},
        ("predicted", [260] * 500), "B",
    ),
    "one column": Stack("stack", "A claim", "node", "bytes", [3], {"saved": [4.0]}),
    "no column": Stack("stack", "A claim", "node", "bytes", [], {}),
    "flat stack": Stack("stack", "A claim", "node", "bytes", [1, 2], {"saved": [0, 0]}),
    "bars": Bars(
        "bars", "A claim", "bytes",
        {name: {"taped": estimate(4e6, 0.4), "torch": estimate(5e6, noisy=True)} for name in NAMES}
        | {"one": {"taped": estimate(0.0)}}, "B",
    ),
    "bars of a huge range": Bars(
        "bars", "A claim", "seconds",
        {"a": {"taped": estimate(1e-9), "jax": estimate(2.0)}, "b": {"taped": estimate(1e-3, 1.5)}},
    ),
    "negative bars": Bars("bars", "", "loss", {"a": {"taped": estimate(-1.0), "jax": estimate(1)}}),
    "no bars": Bars("bars", "A claim", "seconds", {}),
    "bars that are no numbers": Bars("bars", "", "", {"a": {"taped": estimate(np.nan)}}),
}  # fmt: skip
NOTE = "A processor, one thread. Median of 15 rounds, 95 % intervals. " * 3


@pytest.mark.slow
@pytest.mark.parametrize("name", HARD)
def test_no_text_of_a_picture_leaves_it_or_lies_on_another(name):
    pytest.importorskip("matplotlib")
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        figure = HARD[name].draw(NOTE)
    canvas = FigureCanvasAgg(figure).get_renderer()
    width, height = figure.bbox.width, figure.bbox.height
    texts = [*figure.texts, figure._suptitle, *figure.findobj(match=type(figure._suptitle))]
    boxes = {}
    for text in texts:
        if text is not None and text.get_visible() and text.get_text().strip():
            boxes[id(text)] = text.get_text(), text.get_window_extent(canvas)
    ticks = {
        id(label)
        for axes in figure.axes
        for axis in (axes.xaxis, axes.yaxis)
        for tick in [*axis.majorTicks, *axis.minorTicks]
        for label in (tick.label1, tick.label2)
        if not tick.get_visible()
        or not (axes.bbox.padded(2)).contains(*_middle(tick.tick1line, canvas))
    }
    boxes = [box for key, box in boxes.items() if key not in ticks]
    for text, box in boxes:
        assert box.x0 >= -1, text
        assert box.y0 >= -1, text
        assert box.x1 <= width + 1, text
        assert box.y1 <= height + 1, text
    for (one, a), (other, b) in itertools.combinations(boxes, 2):
        across = min(a.x1, b.x1) - max(a.x0, b.x0)
        down = min(a.y1, b.y1) - max(a.y0, b.y0)
        assert across < 2 or down < 2, (one, other)


def _middle(line, canvas):
    box = line.get_window_extent(canvas)
    return (box.x0 + box.x1) / 2, (box.y0 + box.y1) / 2


@pytest.mark.slow
def test_equal_pictures_are_equal_bytes_without_a_date_and_a_foreign_host(tmp_path):
    matplotlib = pytest.importorskip("matplotlib")
    written = []
    for number, size in enumerate((8, 20)):
        with matplotlib.rc_context({"font.size": size, "axes.grid": True}):  # a user's settings
            svg, png = drawing.write_picture(HARD["alike"], tmp_path, NOTE)
        written.append((svg.read_bytes(), png.read_bytes()))
        assert png.read_bytes().startswith(b"\x89PNG"), number
    assert written[0] == written[1]
    text = written[0][0].decode()
    assert "<dc:date>" not in text
    assert "odyssey compiled" in text
    hosts = set(re.findall(r"(?:href|src)=\"(?!#)([^\"]*)\"|url\((?!#)([^)]*)\)", text))
    assert hosts == set()


@pytest.mark.slow
def test_a_noisy_estimate_is_hollow_and_a_missing_system_is_named():
    pytest.importorskip("matplotlib")
    picture = lines(
        {"taped": [(1, estimate(1.0)), (2, estimate(2.0, noisy=True))], "jax": []}, log_x=False
    )
    figure = picture.draw("One thread.")
    faces = {
        (line.get_xdata()[0], line.get_markerfacecolor())
        for line in figure.axes[0].get_lines()
        if line.get_marker() == "o"
    }
    assert faces == {(1, "#0b5fa5"), (2, "white")}
    assert figure._supxlabel.get_text() == "One thread. No values: JAX jit."
