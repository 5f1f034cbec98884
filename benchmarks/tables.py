"""Error on real tables with gaps, categories and dates, beside what a data scientist writes with scikit-learn.

    python benchmarks/tables.py [--tables penguins,weather] [--labels 5 10 5r 10r] [--draws 5] [--record FILE] [--trial]

Each table comes with 5 or 10 labels of each class, or with as many labels in total that are drawn at random ("5r", "10r"). The
error in % is on all other rows; lower is better.
samekind gets the data frame as it is. HistGradientBoosting and LogisticRegression learn from the labelled rows only, behind
the usual preparation: dates as year, month, day and weekday, columns of ids and of free text left out, medians for missing
numbers, one-hot categories for LogisticRegression, and `min_samples_leaf=2` for HistGradientBoosting, whose default of 20
cannot split 10 rows. HistGradientBoosting never splits off a category of fewer than 10 rows, so it has a second row, with
one-hot categories. It gets no column that is missing in all labelled rows, because it then raises an error. --trial takes the
tables on which defaults are tried. Runs in FILE are not repeated.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from real_tables import TABLES, TRIAL_TABLES, load_table
from sklearn.compose import make_column_transformer
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from samekind import SemiSupervisedClassifier

from bench_tables import labels_title, mean_and_spread, read_runs, record_runs, show, show_labels

Integers = npt.NDArray[np.int64]
UNKNOWN = {"handle_unknown": "ignore", "sparse_output": False}
MANY = 50  # a text column with more values is an id or free text to a data scientist
Predict = Callable[[pd.DataFrame, Integers, int], Integers]


def prepared(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the columns as a data scientist prepares them: parts of dates, and no ids or free texts."""
    columns: dict[str, pd.Series] = {}
    for name, column in frame.items():
        if pd.api.types.is_numeric_dtype(column):
            is_id = column.is_unique and bool((column % 1 == 0).all()) and column.max() - column.min() == len(column) - 1
            columns |= {} if is_id or column.nunique() < 2 else {name: column}
            continue
        dates = pd.to_datetime(column, errors="coerce", format="ISO8601")
        if dates.notna().sum() == column.notna().sum() and column.notna().any():
            parts = {part: getattr(dates.dt, part) for part in ("year", "month", "day", "weekday")}
            columns |= {f"{name} {part}": values.astype("float64") for part, values in parts.items()}
        elif 2 <= column.nunique(dropna=False) <= MANY:
            columns[name] = column.astype("category")
    return pd.DataFrame(columns)


def predict_samekind(frame: pd.DataFrame, y: Integers, seed: int) -> Integers:
    """Return the classes of all rows by samekind's default on the data frame as it is."""
    return np.asarray(SemiSupervisedClassifier(random_state=seed).fit(frame, y).transduction_)


def predict_boosting(frame: pd.DataFrame, y: Integers, seed: int) -> Integers:
    """Return the classes of all rows by gradient boosting on the labelled rows; it takes missing values and categories."""
    model = HistGradientBoostingClassifier(categorical_features="from_dtype", min_samples_leaf=2, random_state=seed)
    return fit_on_labelled(model, without_empty(prepared(frame), y), y)


def predict_boosting_one_hot(frame: pd.DataFrame, y: Integers, seed: int) -> Integers:
    """Return the classes of all rows by gradient boosting on the labelled rows, with one-hot categories."""
    numbers, categories, X = columns_by_type(without_empty(prepared(frame), y))
    columns = make_column_transformer(("passthrough", numbers), (OneHotEncoder(**UNKNOWN), categories))
    model = HistGradientBoostingClassifier(min_samples_leaf=2, random_state=seed)
    return fit_on_labelled(make_pipeline(columns, model), X, y)


def predict_logistic(frame: pd.DataFrame, y: Integers, seed: int) -> Integers:
    """Return the classes of all rows by logistic regression on the labelled rows, behind a ColumnTransformer."""
    numbers, categories, X = columns_by_type(prepared(frame))
    columns = make_column_transformer(
        (make_pipeline(SimpleImputer(strategy="median", keep_empty_features=True), StandardScaler()), numbers),
        (make_pipeline(SimpleImputer(strategy="most_frequent"), OneHotEncoder(**UNKNOWN)), categories),
    )
    return fit_on_labelled(make_pipeline(columns, LogisticRegression(max_iter=2000, random_state=seed)), X, y)


def without_empty(X: pd.DataFrame, y: Integers) -> pd.DataFrame:
    """Return the columns that have a value in a labelled row."""
    return X.loc[:, X[y >= 0].notna().any()]


def columns_by_type(X: pd.DataFrame) -> tuple[Any, Any, pd.DataFrame]:
    """Return the names of the columns of numbers and of categories, and X with categories as objects."""
    is_category = np.array([isinstance(kind, pd.CategoricalDtype) for kind in X.dtypes])
    categories = X.columns[is_category]
    X = X.astype(dict.fromkeys(categories, object))
    return X.columns[~is_category], categories, X.where(X.notna(), np.nan)


def fit_on_labelled(model: Any, X: pd.DataFrame, y: Integers) -> Integers:
    """Return the classes of all rows by a model that is fitted to the labelled rows."""
    return np.asarray(model.fit(X[y >= 0], y[y >= 0]).predict(X))


METHODS: dict[str, Predict] = {
    "samekind": predict_samekind,
    "HistGradientBoosting": predict_boosting,
    "HistGradientBoosting, one-hot": predict_boosting_one_hot,
    "LogisticRegression": predict_logistic,
}


def run(table: str, labels: str, draw: int, method: str) -> dict[str, Any]:
    """Return the record of one fit: its error in % on the rows without a label, and its seconds."""
    frame, classes = load_table(table)
    truth = np.unique(classes.astype(str), return_inverse=True)[1].astype(np.int64)
    y, start = show_labels(truth, labels, draw), time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        predicted = METHODS[method](frame, y, draw)
    seconds = time.perf_counter() - start
    error = 100 * float((predicted != truth)[y < 0].mean())
    facts = {"rows": len(frame), "columns": frame.shape[1], "classes": int(truth.max()) + 1}
    gaps = 100 * float(frame.isna().to_numpy().mean())
    key = {"table": table, "labels": labels, "draw": draw, "method": method}
    return {**key, **facts, "gaps": gaps, "error": error, "seconds": seconds}


def summarize(runs: list[dict[str, Any]], tables: list[str], labels: str) -> None:
    """Print one row for each table, and the mean over all tables."""
    rows, means = [], []
    for table in tables:
        own = {m: [r for r in runs if (r["table"], r["labels"], r["method"]) == (table, labels, m)] for m in METHODS}
        errors = {method: [one["error"] for one in found] for method, found in own.items()}
        mean = {method: float(np.mean(found)) for method, found in errors.items()}
        means.append(list(mean.values()))
        facts = own["samekind"][0]
        behind = mean["samekind"] - min(mean.values())
        shape = f"{facts['rows']} x {facts['columns']}, {facts['classes']} classes, {facts['gaps']:.1f} % gaps"
        rows.append([table, shape, *(mean_and_spread(found) for found in errors.values()), f"{behind:.1f}"])
    overall = np.mean(means, axis=0)
    rows.append(["mean", "", *(f"{value:5.2f}" for value in overall), f"{overall[0] - overall.min():.1f}"])
    print(f"\n{labels_title(labels)}\n")
    show(["table", "size", *METHODS, "behind the best"], rows)


def main() -> None:
    """Run what is not recorded yet, and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", default="")
    parser.add_argument("--labels", nargs="+", default=["5", "10", "5r", "10r"])
    parser.add_argument("--draws", type=int, default=5)
    parser.add_argument("--record", default="")
    parser.add_argument("--trial", action="store_true")
    arguments = parser.parse_args()
    tables = arguments.tables.split(",") if arguments.tables else list(TRIAL_TABLES if arguments.trial else TABLES)
    runs = read_runs(arguments.record)
    known = {(r["table"], r["labels"], r["draw"], r["method"]) for r in runs}
    for table in tables:
        for key in ((table, n, draw, m) for n in arguments.labels for draw in range(arguments.draws) for m in METHODS):
            if key not in known:
                runs.append(run(*key))
                record_runs(arguments.record, runs[-1])
    for labels in arguments.labels:
        summarize(runs, tables, labels)


if __name__ == "__main__":
    main()
