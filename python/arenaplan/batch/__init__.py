"""Many models at once, in worker processes or on a cluster, and reports that can be resumed."""

from arenaplan.batch.jobs import Job, Outcome
from arenaplan.batch.run import plan_many

__all__ = ["Job", "Outcome", "plan_many"]
