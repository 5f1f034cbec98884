"""Comparisons and tables of recorded runs, with numbers that can be checked by hand."""

from __future__ import annotations

import csv
import io
from typing import Any

import pytest

from samekind.bench.reporting import result_tables
from samekind.bench.reporting.compare import compare_runs, paired_difference
from samekind.bench.reporting.html_report import ReportSection, render_tables
from samekind.bench.reporting.render import to_csv, to_latex
from samekind.errors import DataError, SettingError

T_2 = 4.302652729911275  # 97.5 % point of Student's t with 2 degrees of freedom


def runs(row: str, *errors: float, first: int = 0, **more: Any) -> list[dict[str, Any]]:
    """Return one record per error; the number of the split is its hash."""
    cost = {"flops": more.pop("flops", 2e12), "steps": 10, "rows": 200, "seconds": 3.0, "cpu_seconds": 2.0}
    common = {"data": "digits", "labels": 20, "settings": {}, "budget": None, "judged_on": "test", "code": {"hash": "c0de"}}
    return [
        {
            "key": f"{row}{seed}{more}",
            "row": row,
            "method": row,
            "seed": seed,
            "error": error,
            "student_error": error,
            "split": {"hash": f"split {seed}"},
            "cost": cost,
            **common,
            **more,
        }
        for seed, error in enumerate(errors, start=first)
    ]


def test_a_paired_difference_has_students_t_interval() -> None:
    found = paired_difference([1.0, 2.0, 3.0])
    half = T_2 * 1.0 / 3**0.5
    assert found == pytest.approx((2.0, 2.0 - half, 2.0 + half, 3))
    assert not found.excludes_zero
    assert str(found) == "+2.00 [-0.48, +4.48]"


def test_mean_and_standard_deviation_over_splits() -> None:
    table = result_tables.error_table(compare_runs(runs("supervised", 10.0, 12.0, 14.0)))
    assert table.header == ("method", "digits, 20 labels: error %", "splits")
    assert table.rows == (("supervised", "12.00 ± 2.00", "3"),)


def test_a_paired_difference_removes_the_effect_of_the_split() -> None:
    # the splits differ by tens of points, the methods by one point in every split
    found = compare_runs([*runs("mean_teacher", 10.0, 30.0, 50.0), *runs("learned_graph", 9.1, 29.0, 48.9)])
    (column,) = found.columns
    assert str(found.difference("learned_graph", "mean_teacher", column)) == "-1.00 [-1.25, -0.75]"
    assert found.best(column) == "learned_graph"
    assert result_tables.error_table(found).bold == {(1, 1)}
    assert result_tables.difference_table(found).rows == (("learned_graph", "-1.00 [-1.25, -0.75]"),)


def test_the_lowest_error_is_not_bold_without_a_significant_difference_to_every_other_row() -> None:
    different = [*runs("mean_teacher", 10.0, 30.0, 50.0), *runs("learned_graph", 9.1, 29.0, 48.9)]
    found = compare_runs([*different, *runs("pi_model", 9.0, 29.2, 49.0)])
    assert found.best(found.columns[0]) is None
    assert result_tables.error_table(found).bold == frozenset()
    assert any("No row is bold" in remark for remark in result_tables.remarks(found))


def test_with_one_split_nothing_is_bold_and_a_remark_explains_it() -> None:
    found = compare_runs([*runs("mean_teacher", 10.0), *runs("supervised", 20.0)])
    assert result_tables.error_table(found).bold == frozenset()
    assert result_tables.difference_table(found).rows == (("supervised", "+10.00 (1 split)"),)
    assert any("one split only" in remark for remark in result_tables.remarks(found))


def test_only_common_splits_are_compared() -> None:
    found = compare_runs([*runs("mean_teacher", 10.0, 20.0, 30.0), *runs("supervised", 21.0, 31.0, 41.0, first=1)])
    assert found.difference("supervised", "mean_teacher", found.columns[0])[0] == 1.0
    assert found.difference("supervised", "mean_teacher", found.columns[0]).n == 2
    other = compare_runs([*runs("mean_teacher", 10.0), *runs("supervised", 21.0, first=1)])
    assert result_tables.difference_table(other).rows == (("supervised", "–"),)


def test_the_error_table_has_columns_for_the_student_and_the_paper() -> None:
    published = {"error": 10.78, "spread": 0.24}
    records = [*runs("learned_graph", 12.0, published=published), *runs("supervised", 20.0)]
    records[0]["student_error"] = 12.5
    table = result_tables.error_table(compare_runs(records))
    assert table.header == ("method", "digits, 20 labels: error %", "student", "paper", "splits")
    assert table.rows[0] == ("learned_graph", "12.00", "12.50", "10.78 ± 0.24", "1")
    assert table.rows[1] == ("supervised", "20.00", "20.00", "–", "1")


def test_two_folders_with_one_name_are_two_columns() -> None:
    records = [*runs("supervised", 10.0, data="/a/summer/leaves/"), *runs("supervised", 30.0, data="/a/winter/leaves")]
    found = compare_runs([*records, *runs("supervised", 20.0, data="/a/digits")])
    assert [column.data for column in found.columns] == ["summer/leaves", "winter/leaves", "digits"]
    assert [column.data for column in compare_runs(runs("supervised", 10.0, data="/a/summer/leaves")).columns] == ["leaves"]


def test_trials_of_the_search_are_not_in_the_table() -> None:
    trials = runs("mean_teacher", 1.0, 1.0, judged_on="validation")
    assert result_tables.error_table(compare_runs([*trials, *runs("mean_teacher", 7.0)])).rows == (
        ("mean_teacher", "7.00", "1"),
    )
    with pytest.raises(DataError, match="none of these runs is finished"):
        compare_runs(trials)


def test_runs_with_one_name_and_two_settings_are_two_rows() -> None:
    records = [*runs("mean_teacher", 5.0, 6.0), *runs("mean_teacher", 7.0, 8.0, settings={"w_max": 3.0})]
    tuned = runs("mean_teacher", 4.0, trials=8, chosen={"w_max": 30.0}, settings={"w_max": 30.0})
    found = compare_runs([*records, *tuned])
    assert found.rows == ("mean_teacher", "mean_teacher #2", "mean_teacher, tuned (8 trials)")
    assert [len(held) for held in found.runs.values()] == [2, 2, 1]
    chosen = result_tables.tuned_settings_table(found)
    assert chosen is not None and chosen.rows == (("mean_teacher, tuned (8 trials)", "digits, 20 labels", "w_max 30"),)


def test_budgets_share_a_row_unless_untuned_settings_differ() -> None:
    plain = [*runs("mean_teacher", 9.0, budget=1e12), *runs("mean_teacher", 7.0, budget=4e12)]
    assert compare_runs(plain).rows == ("mean_teacher",)
    other = runs("mean_teacher", 6.0, budget=8e12, settings={"w_max": 3.0})
    assert [row for _, _, row, _ in compare_runs([*plain, *other]).compute_curves()] == ["mean_teacher", "mean_teacher #2"]
    tuned = [runs("mean_teacher", 9.0, budget=1e12 * n, trials=8, settings={"w_max": n}) for n in (1.0, 4.0)]
    assert compare_runs([*tuned[0], *tuned[1]]).rows == ("mean_teacher, tuned (8 trials)",)


def test_error_against_compute_has_a_line_per_budget_the_cheapest_first() -> None:
    records = [*runs("supervised", 8.0, 10.0, budget=4e12, flops=3.9e12), *runs("supervised", 20.0, budget=1e12, flops=9e11)]
    found = compare_runs(records)
    assert [column.label(found.columns) for column in found.columns] == [
        "digits, 20 labels, 1 TFLOP",
        "digits, 20 labels, 4 TFLOP",
    ]
    rows = result_tables.compute_table(found).rows
    assert [row[2:] for row in rows] == [("0.9", "20.00", "1"), ("3.9", "9.00 ± 1.41", "2")]


def test_the_error_for_an_unknown_reference_suggests_the_nearest_row() -> None:
    records = [*runs("mean_teacher", 5.0), *runs("supervised", 7.0)]
    assert compare_runs(records).reference == "mean_teacher"
    assert compare_runs(records, "supervised").reference == "supervised"
    with pytest.raises(SettingError, match="did you mean 'supervised'"):
        compare_runs(records, "supervized")


def test_a_remark_lists_the_versions_of_the_code() -> None:
    records = [*runs("mean_teacher", 5.0), *runs("supervised", 7.0, code={"hash": "0ther"})]
    assert any("2 versions of the code: 0ther, c0de" in remark for remark in result_tables.remarks(compare_runs(records)))


def test_latex_escapes_special_characters_and_keeps_bold() -> None:
    found = compare_runs([*runs("mean_teacher", 10.0, 30.0, 50.0), *runs("learned_graph", 9.1, 29.0, 48.9)])
    text = to_latex(result_tables.error_table(found))
    assert r"learned\_graph & \textbf{29.00 $\pm$ 19.90} & 3 \\" in text
    assert r"error \%" in text and text.startswith("\\begin{tabular}{lrr}\n\\toprule")


def test_csv_has_a_line_per_row_and_column_with_unformatted_numbers() -> None:
    found = compare_runs([*runs("mean_teacher", 10.0, 30.0, 50.0), *runs("learned_graph", 9.1, 29.0, 48.9)])
    lines = list(csv.DictReader(io.StringIO(to_csv(found))))
    ours = next(line for line in lines if line["method"] == "learned_graph")
    assert (ours["error"], ours["splits"], ours["bold"], ours["common_splits"], ours["flops"]) == ("29", "3", "1", "3", "2e+12")
    assert float(ours["low"]) < float(ours["difference"]) < float(ours["high"]) < 0


def test_html_tables_are_self_contained() -> None:
    found = compare_runs([*runs("mean_teacher", 10.0, 30.0), *runs("a <b>", 9.0, 29.0)])
    text = render_tables("Runs", [ReportSection("Errors", result_tables.error_table(found))], result_tables.remarks(found))
    assert text.startswith("<!doctype html>") and "a &lt;b&gt;" in text and "src=" not in text and "href=" not in text


def test_the_similarity_table_has_only_runs_that_measured_it() -> None:
    numbers = dict.fromkeys(result_tables.SIMILARITY_COLUMNS, 0.5)
    found = compare_runs([*runs("learned_graph", 9.0, similarity=numbers), *runs("supervised", 10.0)])
    table = result_tables.similarity_table(found)
    assert table is not None and [row[0] for row in table.rows] == ["learned_graph"]
    assert result_tables.similarity_table(compare_runs(runs("supervised", 10.0))) is None
