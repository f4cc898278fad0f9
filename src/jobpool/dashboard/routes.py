"""The table of routes: each page and each form, who may ask for it, what answers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from starlette.responses import Response

from jobpool.dashboard.actions import bulk as bulk_actions
from jobpool.dashboard.actions import flows as flow_actions
from jobpool.dashboard.actions import jobs as job_actions
from jobpool.dashboard.actions import pauses
from jobpool.dashboard.actions import quotas as quota_actions
from jobpool.dashboard.actions import replay as replay_actions
from jobpool.dashboard.actions import schedules as schedule_actions
from jobpool.dashboard.asked import Asked, Place
from jobpool.dashboard.screens import (
    audit,
    changes,
    quotas,
    schedules,
    search,
    supervisors,
    tenants,
)
from jobpool.dashboard.screens.flows import listing as flows
from jobpool.dashboard.screens.flows import one as flow
from jobpool.dashboard.screens.home import incidents, overview
from jobpool.dashboard.screens.jobs import bulk, died, one
from jobpool.dashboard.screens.jobs import listing as jobs
from jobpool.dashboard.screens.kinds import listing as kinds
from jobpool.dashboard.screens.kinds import one as kind
from jobpool.operations.action import Action
from jobpool.operations.arguments.replay import Replay
from jobpool.operations.flows import (
    Approve,
    CancelFlow,
    PauseFlow,
    ResumeFlow,
    RetryFlow,
)
from jobpool.operations.jobs import Cancel, Release, Retry, Reveal, StopBulk
from jobpool.operations.operate import LEAST_ROLE
from jobpool.operations.principal import Role
from jobpool.operations.queue import Pause, Resume
from jobpool.operations.quotas import RemoveTenant, ResetQuota, SetQuota, SetTenant
from jobpool.operations.schedules import (
    Backfill,
    PauseSchedule,
    RemoveSchedule,
    ResumeSchedule,
    RunSchedule,
)

Answer = Callable[[Asked], Awaitable[Response]]
_WORK, _SYSTEM = "", "System"


@dataclass(frozen=True, kw_only=True)
class Route:
    """A page, or what a form is sent to."""

    name: str
    """Templates and screens make links by it: ``url('job', ref=…)``."""
    path: str
    """Below where the dashboard is mounted; parts in braces: ``/jobs/{ref}``."""
    answer: Answer
    place: str = ""
    """The page of the navigation that it belongs to; "": itself, if it is one."""
    role: Role = Role.VIEWER
    """The least that may see a page."""
    action: type[Action] | None = None
    """What a form does; None: it is a page. Who may is for the operations to say,
    which also write a refusal down."""

    is_stream: bool = False
    """Its answer does not end: it is asked for by scripts, while a page is open."""

    is_jump: bool = False
    """Its answer leads to another page."""

    @property
    def is_page(self) -> bool:
        """Whether people see it."""
        return self.action is None and not self.is_stream and not self.is_jump

    @property
    def method(self) -> str:
        """What it is asked with."""
        return "GET" if self.action is None else "POST"

    @property
    def least(self) -> Role:
        """The least role for which it is any use."""
        return self.role if self.action is None else LEAST_ROLE[self.action]


ROUTES: tuple[Route, ...] = (
    Route(name="overview", path="/", answer=overview.show),
    Route(name="incidents", path="/incidents", answer=incidents.show),
    Route(name="search", path="/search", answer=search.show, is_jump=True),
    Route(name="live", path="/live", answer=changes.show, is_stream=True),
    # Jobs
    Route(name="jobs", path="/jobs", answer=jobs.show),
    Route(name="dead", path="/dead", answer=died.show_dead),
    Route(name="quarantine", path="/quarantine", answer=died.show_quarantined),
    Route(name="job", path="/jobs/{ref}", answer=one.show, place="jobs"),
    Route(
        name="job_retry",
        path="/jobs/{ref}/retry",
        answer=job_actions.retry,
        place="jobs",
        action=Retry,
    ),
    Route(
        name="job_release",
        path="/jobs/{ref}/release",
        answer=job_actions.release,
        place="jobs",
        action=Release,
    ),
    Route(
        name="job_cancel",
        path="/jobs/{ref}/cancel",
        answer=job_actions.cancel,
        place="jobs",
        action=Cancel,
    ),
    Route(
        name="job_reveal",
        path="/jobs/{ref}/reveal",
        answer=job_actions.reveal,
        place="jobs",
        action=Reveal,
    ),
    Route(
        name="job_edit",
        path="/jobs/{ref}/edit",
        answer=replay_actions.edit,
        place="jobs",
        action=Reveal,
    ),
    Route(
        name="job_replay",
        path="/jobs/{ref}/replay",
        answer=replay_actions.replay,
        place="jobs",
        action=Replay,
    ),
    Route(name="jobs_act", path="/bulk", answer=bulk.show, place="jobs"),
    Route(name="bulk", path="/bulk/running", answer=bulk.show_running, place="jobs"),
    Route(
        name="bulk_retry",
        path="/bulk/retry",
        answer=bulk_actions.retry,
        place="jobs",
        action=Retry,
    ),
    Route(
        name="bulk_release",
        path="/bulk/release",
        answer=bulk_actions.release,
        place="jobs",
        action=Release,
    ),
    Route(
        name="bulk_cancel",
        path="/bulk/cancel",
        answer=bulk_actions.cancel,
        place="jobs",
        action=Cancel,
    ),
    Route(
        name="bulk_stop",
        path="/bulk/stop",
        answer=bulk_actions.stop,
        place="jobs",
        action=StopBulk,
    ),
    # Flows and schedules
    Route(name="flows", path="/flows", answer=flows.show),
    Route(name="flow", path="/flows/{ref}", answer=flow.show, place="flows"),
    Route(
        name="flow_cancel",
        path="/flows/{ref}/cancel",
        answer=flow_actions.cancel,
        place="flows",
        action=CancelFlow,
    ),
    Route(
        name="flow_pause",
        path="/flows/{ref}/pause",
        answer=flow_actions.pause,
        place="flows",
        action=PauseFlow,
    ),
    Route(
        name="flow_resume",
        path="/flows/{ref}/resume",
        answer=flow_actions.resume,
        place="flows",
        action=ResumeFlow,
    ),
    Route(
        name="flow_retry",
        path="/flows/{ref}/retry",
        answer=flow_actions.retry,
        place="flows",
        action=RetryFlow,
    ),
    Route(
        name="flow_approve",
        path="/flows/{ref}/approve",
        answer=flow_actions.approve,
        place="flows",
        action=Approve,
    ),
    Route(name="schedules", path="/schedules", answer=schedules.show_list),
    Route(
        name="schedule",
        path="/schedules/{schedule:path}",
        answer=schedules.show_one,
        place="schedules",
    ),
    Route(
        name="schedule_run",
        path="/schedules/{schedule:path}/run",
        answer=schedule_actions.run,
        place="schedules",
        action=RunSchedule,
    ),
    Route(
        name="schedule_pause",
        path="/schedules/{schedule:path}/pause",
        answer=schedule_actions.pause,
        place="schedules",
        action=PauseSchedule,
    ),
    Route(
        name="schedule_resume",
        path="/schedules/{schedule:path}/resume",
        answer=schedule_actions.resume,
        place="schedules",
        action=ResumeSchedule,
    ),
    Route(
        name="schedule_backfill",
        path="/schedules/{schedule:path}/backfill",
        answer=schedule_actions.backfill,
        place="schedules",
        action=Backfill,
    ),
    Route(
        name="schedule_remove",
        path="/schedules/{schedule:path}/remove",
        answer=schedule_actions.remove,
        place="schedules",
        action=RemoveSchedule,
    ),
    # System
    Route(name="kinds", path="/kinds", answer=kinds.show),
    Route(name="kind", path="/kinds/{kind:path}", answer=kind.show, place="kinds"),
    Route(name="supervisors", path="/supervisors", answer=supervisors.show),
    Route(name="audit", path="/audit", answer=audit.show),
    Route(name="quotas", path="/quotas", answer=quotas.show_list),
    Route(
        name="quota",
        path="/quotas/{quota:path}",
        answer=quotas.show_one,
        place="quotas",
    ),
    Route(
        name="quota_set",
        path="/quotas/{quota:path}/set",
        answer=quota_actions.set_quota,
        place="quotas",
        action=SetQuota,
    ),
    Route(
        name="quota_reset",
        path="/quotas/{quota:path}/reset",
        answer=quota_actions.reset_quota,
        place="quotas",
        action=ResetQuota,
    ),
    Route(name="tenants", path="/tenants", answer=tenants.show_list),
    Route(
        name="tenant",
        path="/tenants/{tenant:path}",
        answer=tenants.show_one,
        place="tenants",
    ),
    Route(
        name="tenant_set",
        path="/tenants/set",
        answer=quota_actions.set_tenant,
        place="tenants",
        action=SetTenant,
    ),
    Route(
        name="tenant_remove",
        path="/tenants/remove",
        answer=quota_actions.remove_tenant,
        place="tenants",
        action=RemoveTenant,
    ),
    Route(
        name="pause",
        path="/pause",
        answer=pauses.pause,
        place="overview",
        action=Pause,
    ),
    Route(
        name="resume",
        path="/resume",
        answer=pauses.resume,
        place="overview",
        action=Resume,
    ),
)
PLACES: tuple[Place, ...] = (
    Place("overview", "Overview", _WORK),
    Place("incidents", "Incidents", _WORK),
    Place("jobs", "Jobs", _WORK),
    Place("dead", "Dead", _WORK),
    Place("quarantine", "Quarantine", _WORK),
    Place("flows", "Flows", _WORK),
    Place("schedules", "Schedules", _WORK),
    Place("kinds", "Kinds", _SYSTEM),
    Place("quotas", "Quotas", _SYSTEM),
    Place("tenants", "Tenants", _SYSTEM),
    Place("supervisors", "Supervisors", _SYSTEM),
    Place("audit", "Audit", _SYSTEM),
)
"""The navigation, by names of routes; one that is no route yet is not shown."""
