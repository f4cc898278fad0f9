"""What the supervisor knows of kinds: declarations and settings, put together.

Pure: built from the zygotes' reports and the operator's settings.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import msgspec

from jobpool.core.application.app_report import AppReport
from jobpool.core.application.handler_spec import (
    HOOK_DEAD,
    HOOK_QUARANTINED,
    INTERNAL_PREFIX,
    HandlerSpec,
)
from jobpool.core.config.kinds import settings_of
from jobpool.core.config.quotas import needs_of, published_limits
from jobpool.core.config.settings import (
    KeepOutput,
    PoolSettings,
    SandboxLevel,
    Settings,
)
from jobpool.core.config.store_url import refuse_other_store
from jobpool.core.jobs.job import JobState, Lease, NewJob, Settlement
from jobpool.core.jobs.outcome import Outcome
from jobpool.core.pool_coverage import refuse_without_kinds
from jobpool.core.rules.lifecycle import Ending
from jobpool.core.rules.limits import Effective, Limits, resolve
from jobpool.core.rules.policy import Policy, Rerun
from jobpool.core.rules.quotas.definition import DEFAULT_THROTTLE_MAX_S, Need
from jobpool.core.units import show_size
from jobpool.errors import ConfigError
from jobpool.store.records.runs import KindRecord

_HOOKS = {JobState.QUARANTINED: HOOK_QUARANTINED, JobState.DEAD: HOOK_DEAD}
_NO_WISH = Limits()
MEMORY_HEADROOM_BYTES = 8 * 2**20
"""What a child needs beyond its zygote before its handler does anything."""


class Registry:
    """Kinds, their policies and limits, for the pools that this supervisor runs.

    Args:
        settings: the operator's settings.
        report: what the application declares.

    Raises:
        ConfigError: the application and the settings contradict each other.
    """

    def __init__(self, settings: Settings, report: AppReport) -> None:
        refuse_other_store(settings, report.store)
        self._settings = settings
        self._pools = {pool.name: pool for pool in settings.pools}
        refuse_without_kinds(settings, report)
        self._specs: dict[str, HandlerSpec] = {}
        for spec in report.handlers:
            for name in (spec.kind, *spec.aliases):
                self._specs[name] = spec
        self.published = published_limits(settings, report)
        """The quotas and tenants' rules that this supervisor publishes."""
        self._check_memory(report.base_rss_bytes)
        self._policies = {
            name: self._policy(spec) for name, spec in self._specs.items()
        }
        self._plain = {
            (spec.pool, name): self._limits(spec, spec.pool)
            for name, spec in self._specs.items()
            if spec.pool in self._pools
        }
        self.kinds: Mapping[str, Sequence[str]] = {
            pool: tuple(
                sorted(name for name, s in self._specs.items() if s.pool == pool)
            )
            for pool in self._pools
        }
        """Kinds and aliases that each pool can execute."""
        self.quotas = {one.name: one for one in self.published.quotas}
        """All that are in force here, by name; a kind's own cap is one."""
        self.host_caps = {
            one.name: one.concurrency
            for one in self.quotas.values()
            if one.host_only and one.concurrency is not None
        }
        """How much there is of the quotas that each supervisor counts alone."""
        self.host_needs = {
            name: needs
            for name, spec in self._specs.items()
            if (needs := self._host_needs(spec))
        }
        """What kinds need of those."""
        self.schedules = report.schedules
        """What the application declares, for any pool."""
        self.app_version = settings.app_version or report.version
        """The application's: as configured, else a hash of what was imported."""

    @property
    def names(self) -> Collection[str]:
        """The application's kinds and their aliases, of all pools."""
        return self._specs.keys()

    def knows(self, kind: str) -> bool:
        """Say whether a lease of this kind can be executed here."""
        return kind in self._specs

    def may_read(self, pool: str) -> bool:
        """Say whether handlers of a pool may read other jobs in the store."""
        return self._pools[pool].sandbox is not SandboxLevel.STRICT

    def policy(self, kind: str) -> Policy:
        """Return a kind's policy; of an unknown kind, the defaults."""
        return self._policies.get(kind) or Policy()

    def breaker_after(self, kind: str) -> int:
        """Return the crashes in a row after which a kind is held back; 0: never."""
        spec = self._specs.get(kind)
        if spec is None:
            return 0
        own = settings_of(self._settings, spec).breaker_after
        return self._pool_of(spec).breaker_after if own is None else own

    def keep_output(self, kind: str) -> KeepOutput:
        """Return of which attempts of a kind the output is stored."""
        spec = self._specs.get(kind)
        if spec is None:
            return KeepOutput.FAILED
        own = settings_of(self._settings, spec).keep_output
        return self._pool_of(spec).keep_output if own is None else own

    def limits(self, lease: Lease) -> Effective:
        """Return the limits of one attempt."""
        ran_out = 0
        if lease.history:
            ran_out = sum(one.outcome is Outcome.OUT_OF_MEMORY for one in lease.history)
        if lease.timeout_s is None and lease.memory_bytes is None and not ran_out:
            plain = self._plain.get((lease.pool, lease.kind))
            return plain or self._limits(self._specs[lease.kind], lease.pool)
        wish = Limits(timeout_s=lease.timeout_s, memory_bytes=lease.memory_bytes)
        return self._limits(self._specs[lease.kind], lease.pool, wish, ran_out)

    def within_throttle_max(self, ending: Ending) -> Ending:
        """Return the end of a throttled attempt, with its pause as its quota allows."""
        if ending.throttled is None or ending.snooze_s is None:
            return ending
        quota = self.quotas.get(ending.throttled[0])
        most_s = DEFAULT_THROTTLE_MAX_S if quota is None else quota.throttle_max_s
        kept: Ending = msgspec.structs.replace(
            ending, snooze_s=min(ending.snooze_s, most_s)
        )
        return kept

    def fixed_memory(self) -> tuple[str, ...]:
        """Return the names of kinds whose memory limit the configuration says."""
        return tuple(
            name
            for name, spec in sorted(self._specs.items())
            if spec.pool in self._pools
            and settings_of(self._settings, spec).limits.memory_bytes is not None
        )

    def memory_limits(self, pool: str) -> Mapping[str, int]:
        """Return the memory limits of the kinds whose jobs run in a pool."""
        return {
            name: limits.memory_bytes
            for (runs_in, name), limits in self._plain.items()
            if runs_in == pool and not name.startswith(INTERNAL_PREFIX)
        }

    def records(self, elsewhere: Mapping[str, str] | None = None) -> list[KindRecord]:
        """Return what is published in the store, one record per kind.

        Args:
            elsewhere: kinds or aliases of which jobs are in another pool than their
                own, and one of those pools that this supervisor runs.
        """
        runs_in = {
            spec.kind: spec.pool
            for spec in self._specs.values()
            if spec.pool in self._pools
        }
        for name, pool in (elsewhere or {}).items():
            runs_in.setdefault(self._specs[name].kind, pool)
        limits = {
            kind: self._limits(self._specs[kind], p) for kind, p in runs_in.items()
        }
        return [
            KindRecord(
                kind=spec.kind,
                pool=spec.pool,
                schema=spec.schema,
                timeout_s=limits[spec.kind].timeout_s,
                memory_bytes=limits[spec.kind].memory_bytes,
                max_attempts=self._policies[spec.kind].max_attempts,
                max_crashes=self._policies[spec.kind].max_crashes,
                at_most_once=(spec.kind, *spec.aliases)
                if spec.policy.rerun is Rerun.NEVER
                else (),
                needs=needs_of(self._settings, spec),
            )
            for name, spec in self._specs.items()
            if name == spec.kind and name in runs_in
        ]

    def with_followup(self, lease: Lease, settlement: Settlement) -> Settlement:
        """Add the hook's job when a settlement ends a job for good."""
        hook = _HOOKS.get(settlement.state)
        if hook is None or hook not in self._specs:
            return settlement
        if lease.kind.startswith(INTERNAL_PREFIX):
            return settlement
        evidence = settlement.evidence
        facts = {
            "id": lease.id,
            "kind": lease.kind,
            "pool": lease.pool,
            "state": settlement.state.value,
            "outcome": settlement.outcome and settlement.outcome.value,
            "reason": evidence.reason,
            "error_class": evidence.error_class,
            "error": evidence.error,
            "key": lease.key,
            "tenant": lease.tenant,
            "payload": lease.payload,  # as base64: only a child decodes it
            "codec": lease.codec,
        }
        followup = NewJob(
            kind=hook,
            pool=self._specs[hook].pool,
            payload=msgspec.json.encode({"job": facts}),
            tenant=lease.tenant,  # whose data it holds: it is erased with the rest
            codec=lease.codec,
            trace=lease.trace,
        )
        return msgspec.structs.replace(settlement, followup=followup)

    @property
    def laned_kinds(self) -> tuple[str, ...]:
        """The kinds here whose jobs need a quota of the store's, sorted."""
        return tuple(
            record.kind
            for record in sorted(self.records(), key=lambda record: record.kind)
            if any(not self.quotas[need.quota].host_only for need in record.needs)
        )

    def _host_needs(self, spec: HandlerSpec) -> tuple[Need, ...]:
        return tuple(need for need in spec.needs if need.quota in self.host_caps)

    def _policy(self, spec: HandlerSpec) -> Policy:
        configured = settings_of(self._settings, spec)
        policy = spec.policy
        if configured.max_attempts is not None:
            policy = msgspec.structs.replace(
                policy, max_attempts=configured.max_attempts
            )
        if configured.max_crashes is not None:
            policy = msgspec.structs.replace(policy, max_crashes=configured.max_crashes)
        return msgspec.structs.replace(
            policy, unknown_for_s=self._settings.unknown_for_s
        )

    def _pool_of(self, spec: HandlerSpec) -> PoolSettings:
        """Return the pool of a kind's own, or another one if that runs elsewhere."""
        return self._pools.get(spec.pool) or self._settings.pools[0]

    def _limits(
        self, spec: HandlerSpec, pool: str, wish: Limits = _NO_WISH, ran_out: int = 0
    ) -> Effective:
        return resolve(
            configured=settings_of(self._settings, spec).limits,
            job=wish,
            declared=spec.limits,
            pool=self._pools[pool].limits,
            ran_out=ran_out,
        )

    def _check_memory(self, base_rss_bytes: int) -> None:
        """Refuse limits that leave a bare child no room."""
        floor = base_rss_bytes + MEMORY_HEADROOM_BYTES
        wishes = [
            (f"pool {pool.name}", pool.limits.memory_bytes)
            for pool in self._pools.values()
        ]
        wishes += [
            (f"kind {spec.kind}", self._limits(spec, spec.pool).memory_bytes)
            for spec in self._specs.values()
            if spec.pool in self._pools
        ]
        for subject, limit in wishes:
            if limit < floor:
                raise ConfigError(
                    f"{subject}: a memory limit of {show_size(limit)} is below the "
                    f"{show_size(floor)} that a bare child of this application needs; "
                    "raise the limit, or import less (see: jobpool manual tuning)"
                )
