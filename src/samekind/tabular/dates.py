"""Parts of dates as numbers: year, month, day, weekday, hour, and the days since the first date in the data of the fit."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

DATE_PARTS = ("year", "month", "day", "weekday", "hour", "elapsed days")


def date_parts(dates: npt.NDArray[Any], origin: float) -> npt.NDArray[np.float64]:
    """Return the parts (n, 6) of dates (n,), with nan for missing dates.

    `origin` is the first day in the data of the fit, in days since 1970.
    """
    missing = np.isnat(dates)
    known = np.where(missing, np.datetime64(0, "us"), dates).astype("datetime64[us]")
    days, months = known.astype("datetime64[D]"), known.astype("datetime64[M]")
    since_1970 = days.astype(np.int64)
    hours = (known - days).astype("timedelta64[us]").astype(np.float64) / 3.6e9
    parts = np.column_stack(
        [
            known.astype("datetime64[Y]").astype(np.int64) + 1970,
            months.astype(np.int64) % 12 + 1,
            (days - months.astype("datetime64[D]")).astype(np.int64) + 1,
            (since_1970 + 3) % 7,  # 1 January 1970 was a Thursday, and Monday has the number 0
            hours,
            since_1970 + hours / 24 - origin,
        ]
    ).astype(np.float64)
    parts[missing] = np.nan
    return parts
