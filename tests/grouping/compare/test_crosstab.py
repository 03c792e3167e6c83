import numpy as np
import pandas as pd
import pyarrow
import pytest
from scipy.stats import fisher_exact

from inbedder import crosstab
from inbedder.errors import InputError
from inbedder.grouping.compare.crosstab import categorize_values
from inbedder.grouping.report.page import render_report
from tests.grouping.report.test_page import grouping

TOPIC = [0] * 40 + [1] * 30 + [2] * 30
MOOD = [0] * 36 + [1] * 4 + [0] * 10 + [1] * 20 + [0] * 14 + [1] * 16


def test_counts_shares_lift_and_residuals_are_exact():
    (table,) = crosstab([grouping(TOPIC), grouping(MOOD, instruction="Is it good?")])
    assert table.counts.tolist() == [[36, 4], [10, 20], [14, 16]]
    assert (table.rows.title, table.columns.title) == ("What is it?", "Is it good?")
    assert table.shares == pytest.approx(np.array([[0.9, 0.1], [1 / 3, 2 / 3], [14 / 30, 16 / 30]]))
    assert table.expected == pytest.approx(np.array([[24, 16], [18, 12], [18, 12]]))
    assert table.lift == pytest.approx(np.array([[1.5, 0.25], [10 / 18, 20 / 12], [14 / 18, 16 / 12]]))
    assert table.residuals[0, 0] == pytest.approx((36 - 24) / np.sqrt(24 * 0.6 * 0.4))
    assert table.residuals.sum(axis=1) == pytest.approx([0, 0, 0])  # two columns mirror each other


def test_residuals_square_to_the_chi_square_of_a_table_of_four_cells():
    from scipy.stats import chi2_contingency

    (table,) = crosstab([grouping(MOOD), grouping([0] * 50 + [1] * 50)])
    assert np.abs(table.residuals) ** 2 == pytest.approx(chi2_contingency(table.counts, correction=False).statistic)
    assert table.cramers_v == pytest.approx(abs(table.residuals[0, 0]) / 10)


@pytest.mark.parametrize(
    ("second", "verdict"),
    [
        (MOOD, "the same"),
        ([*MOOD[1:], MOOD[0]], "strongly related: one tells much of the other"),
        ([i % 2 for i in range(100)], "unrelated, as far as these texts show"),
    ],
)
def test_the_verdict_says_how_closely_two_groupings_are_related(second, verdict):
    assert crosstab([grouping(MOOD), grouping(second)])[0].verdict == verdict


def test_only_cells_beyond_chance_are_significant():
    (table,) = crosstab([grouping(TOPIC), grouping(MOOD)])
    assert table.differs.tolist() == [[1, -1], [-1, 1], [0, 0]]
    rng = np.random.default_rng(3)
    unrelated = [crosstab([grouping(first), grouping(second)])[0] for first, second in rng.integers(0, 8, (200, 2, 400)).tolist()]
    assert np.mean([table.differs.any() for table in unrelated]) < 0.1


def test_the_test_of_a_cell_is_fishers():
    (table,) = crosstab([grouping([0, 0, 0, 0, 0, 1, 1, 1, 1, 1]), grouping([0, 0, 0, 0, 0, 1, 1, 1, 1, 1])])
    assert table.false_discovery_rates == pytest.approx(np.full((2, 2), fisher_exact([[5, 0], [0, 5]]).pvalue))


def test_the_texts_of_a_cell_are_those_in_both():
    (table,) = crosstab([grouping([0, 1, 0, 1]), grouping([0, 0, 1, 1])])
    assert [table.texts(row, column) for row in (0, 1) for column in (0, 1)] == [[0], [2], [1], [3]]
    with pytest.raises(InputError, match="column must be a whole number from 0 to 1"):
        table.texts(0, 2)


def test_each_pair_of_groupings_or_grouping_and_column_has_a_table():
    results = [grouping([0, 1, 1, 0], instruction=question) for question in "abc"]
    columns = {"stars": [1, 5, 5, 1], "country": ["de", "fr", "de", "de"]}
    titles = [(table.rows.title, table.columns.title) for table in crosstab(results, columns)]
    assert titles[:3] == [("a", "b"), ("a", "c"), ("b", "c")]
    assert titles[3:] == [(question, name) for question in "abc" for name in columns]
    assert len(crosstab(results[0], columns)) == 2


def test_numbers_are_in_order_other_values_by_frequency_and_blanks_last():
    stars = categorize_values("stars", ["10", "2", " 2 ", "", 1.0, None], 6)
    assert (stars.names, stars.category_of.tolist()) == (["1", "2", "10", "(blank)"], [2, 1, 1, 3, 0, 3])
    countries = categorize_values("country", ["fr", "de", "de", float("nan")], 4)
    assert (countries.names, countries.category_of.tolist()) == (["de", "fr", "(blank)"], [1, 0, 0, 2])


def test_rare_values_are_counted_together():
    values = ["a"] * 5 + ["b"] * 3 + ["c", "d", ""]
    categories = categorize_values("kind", values, 11, most_values=3)
    assert categories.names == ["a", "b", "2 other values", "(blank)"]
    assert np.bincount(categories.category_of).tolist() == [5, 3, 2, 1]


def test_dates_are_grouped_into_periods_and_a_missing_one_is_blank():
    categories = categorize_values("day", ["2024-01-05", "2024-12-31T10:00:00Z", None, "2024-02-29"], 4)
    assert categories.names == [f"2024-{month:02}" for month in range(1, 13)] + ["(blank)"]
    assert categories.category_of.tolist() == [0, 11, 12, 1]


def test_texts_that_fit_no_group_are_a_row_of_their_own():
    (table,) = crosstab(grouping([0, 1, 2], left_out=2), {"kind": ["x", "y", "y"]})
    assert table.rows.names[-1] == "none of these"
    assert table.counts[:, table.columns.names.index("y")].tolist() == [0, 1, 1]


def test_loose_groups_are_marked_in_the_table_of_the_terminal_and_the_page():
    result = grouping([0, 1, 0, 1], stability=[0.9, 0.1])
    (table,) = tables = crosstab(result, {"kind": ["x", "y", "y", "x"]})
    assert table.rows.marked_names == [result.names[0], f"{result.names[1]} ≈"]
    assert table.columns.marked_names == table.columns.names
    page = render_report([result], cross_tables=tables)
    head = page[page.index('<table class="heatmap"') : page.index("</table>")]
    assert head.count("≈") == 1


def test_an_empty_column_of_a_table_has_no_lift_and_no_significance():
    (table,) = crosstab(grouping([0, 0, 1, 1]), {"day": ["2024-01-01", "2024-01-01", "2024-01-03", "2024-01-03"]})
    assert table.counts.tolist() == [[2, 0, 0], [0, 0, 2]]
    assert np.isnan(table.lift[:, 1]).all()
    assert table.residuals[:, 1].tolist() == [0, 0] and table.false_discovery_rates[:, 1].tolist() == [1, 1]
    assert [row["lift"] for row in table.records()] == [2, None, 0, 0, None, 2]


def test_the_frame_has_a_row_per_cell():
    (table,) = crosstab([grouping(TOPIC), grouping(MOOD)])
    frame = table.to_frame()
    assert list(frame.columns) == ["row", "column", "count", "share", "lift", "residual", "false_discovery_rate"]
    assert frame["count"].tolist() == table.counts.ravel().tolist()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([],), "nothing to cross-tabulate"),
        (([grouping([0, 1])],), "nothing to cross-tabulate"),
        (([grouping([0, 1]), grouping([0, 1, 1])],), "have different texts"),
        (([grouping([0, 1])], {"stars": [1]}), "2 texts but 1 values in 'stars'"),
        (([grouping([0] * 40)], {"id": list(range(40))}), "40 different values among 40 texts"),
    ],
)
def test_invalid_cross_tables_are_refused(arguments, message):
    with pytest.raises(InputError, match=message):
        crosstab(*arguments)


MISSING_KINDS = ["Int64", "Float64", "string", "boolean", "category", "object", "int64[pyarrow]", "timestamp[ms][pyarrow]"]


@pytest.mark.parametrize("dtype", MISSING_KINDS)
def test_a_missing_value_of_any_type_is_blank(dtype):
    values = [1, None, 1, 0]
    if dtype == "string":
        values = ["a", None, "a", "b"]
    elif dtype.startswith("timestamp"):
        values = [pd.Timestamp("2024-01-02"), None, pd.Timestamp("2024-01-02"), pd.Timestamp("2024-01-03")]
    column = pd.Series(values, dtype=dtype)
    (table,) = crosstab([grouping([0, 0, 1, 1])], {"value": column})
    assert table.columns.names[-1] == "(blank)"
    assert table.counts[:, -1].tolist() == [1, 0]
    assert table.total == 4


@pytest.mark.parametrize("make", [pd.DataFrame, pyarrow.table, dict], ids=["pandas", "Arrow", "dict"])
def test_a_table_is_taken_as_its_columns(make):
    columns = make({"stars": [1, 1, 5, 5], "country": ["fr", "de", "fr", "de"]})
    tables = crosstab([grouping([0, 0, 1, 1])], columns)
    assert [table.columns.title for table in tables] == ["stars", "country"]
    assert tables[0].counts.tolist() == [[2, 0], [0, 2]]


@pytest.mark.parametrize("columns", [[1, 1, 5, 5], "stars", 3])
def test_columns_without_names_are_refused(columns):
    with pytest.raises(InputError, match="columns must be a mapping of names to values, or a table, not"):
        crosstab([grouping([0, 0, 1, 1])], columns)
