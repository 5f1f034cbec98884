"""Application state: everything that the route handlers of one server share."""

from __future__ import annotations

from dataclasses import dataclass, field

from samekind.server.jobs.refit_jobs import RefitJobs
from samekind.server.security import Credentials
from samekind.server.session import Session


@dataclass
class AppState:
    """The open run, the credentials for it and its refits."""

    session: Session
    credentials: Credentials
    preload: bool = False  # load the model as soon as somebody logs in, before the first search
    refits: RefitJobs = field(init=False)

    def __post_init__(self) -> None:
        self.refits = RefitJobs(self.session)

    def warm_up(self) -> None:
        """Start the slow work that the next requests will need."""
        if self.preload:
            self.session.warm_up()

    def close(self) -> None:
        self.refits.close()
        self.session.close()
