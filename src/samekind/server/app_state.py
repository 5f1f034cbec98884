"""Application state: the objects that all route handlers of a server share."""

from __future__ import annotations

from dataclasses import dataclass, field

from samekind.server.jobs.instant_refits import InstantRefits
from samekind.server.jobs.refit_jobs import RefitJobs
from samekind.server.security import Credentials
from samekind.server.session import Session


@dataclass
class AppState:
    """The opened run of a server, its credentials, its refits, and its updates after every label.

    A route handler gets each of these fields as the parameter of that name (routing.py).
    """

    session: Session
    credentials: Credentials
    refits: RefitJobs = field(init=False)
    instant: InstantRefits = field(init=False)

    def __post_init__(self) -> None:
        self.refits = RefitJobs(self.session)
        self.instant = InstantRefits(self.session, lambda: self.refits.request("full"))

    def close(self) -> None:
        """Stop a running refit, and close the run."""
        self.instant.close()
        self.refits.close()
        self.session.close()
