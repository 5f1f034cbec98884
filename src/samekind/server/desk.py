"""The desk: all that the endpoints of one server share."""

from __future__ import annotations

from dataclasses import dataclass, field

from samekind.server.auth import Keys
from samekind.server.jobs import Jobs
from samekind.server.page import Page


@dataclass
class Desk:
    """The page and the keys to it."""

    page: Page
    keys: Keys
    eager: bool = False  # whether the model is loaded as soon as a person comes, before anything is asked of it
    jobs: Jobs = field(init=False)

    def __post_init__(self) -> None:
        self.jobs = Jobs(self.page)

    def wake(self) -> None:
        """Somebody is here who will ask for what takes a while."""
        if self.eager:
            self.page.work_on()

    def close(self) -> None:
        self.jobs.close()
        self.page.close()
