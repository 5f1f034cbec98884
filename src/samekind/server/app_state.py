"""The desk: all that the endpoints of one server share."""

from __future__ import annotations

from dataclasses import dataclass, field

from samekind.server.jobs.refit_jobs import RefitJobs
from samekind.server.security import Credentials
from samekind.server.session import Session


@dataclass
class AppState:
    """The page and the keys to it."""

    session: Session
    credentials: Credentials
    eager: bool = False  # whether the model is loaded as soon as a person comes, before anything is asked of it
    jobs: RefitJobs = field(init=False)

    def __post_init__(self) -> None:
        self.jobs = RefitJobs(self.session)

    def wake(self) -> None:
        """Somebody is here who will ask for what takes a while."""
        if self.eager:
            self.session.work_on()

    def close(self) -> None:
        self.jobs.close()
        self.session.close()
