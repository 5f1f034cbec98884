"""The desk: all that the endpoints of one server share."""

from __future__ import annotations

from dataclasses import dataclass, field

from samekind.serve.auth import Keys
from samekind.serve.jobs import Jobs
from samekind.serve.page import Page


@dataclass
class Desk:
    """The page and the keys to it."""

    page: Page
    keys: Keys
    jobs: Jobs = field(init=False)

    def __post_init__(self) -> None:
        self.jobs = Jobs(self.page)

    def close(self) -> None:
        self.jobs.close()
        self.page.close()
