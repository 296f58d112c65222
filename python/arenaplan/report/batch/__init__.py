"""Many models at once, in worker processes or on a cluster, and reports that can be resumed."""

from arenaplan.report.batch.job_runs import plan_many
from arenaplan.report.batch.jobs import Job, Outcome

__all__ = ["Job", "Outcome", "plan_many"]
