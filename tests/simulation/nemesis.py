"""What goes wrong, and what operators do: one method for each `plan.Fault.what`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jobpool.supervisor.machine import inputs as inp
from simulation.kernel import Process
from simulation.plan import Fault
from simulation.supervisor import SimSupervisor
from support.store.history import Disturbed

if TYPE_CHECKING:
    from simulation.host import Host
    from simulation.world import World

EXCUSES = frozenset(
    (
        "jump_store",
        "sleep_host",
        "sleep_at_completion",
        "stick_child",
        "kill_both",
        "kill_zygote",
        "stop_host",
    )
)
"""After these, leases of several hosts may overlap within their rule."""
WITHOUT_NETWORK_S = 5.0


class Nemesis:
    """Does harm, and repairs it when the quiet begins."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._kernel = world.kernel
        self._stopped: list[Process] = []

    def do(self, fault: Fault) -> None:
        """Let a fault happen."""
        self._world.sometimes[f"fault {fault.what}"] += 1
        getattr(self, fault.what)(fault)

    def be_quiet(self) -> None:
        """Repair everything that can be repaired."""
        for host in self._world.hosts:
            self._wake(host)
            host.memory.recover()
        for process in self._stopped:
            self._kernel.go_on(process)
        for link in self._world.links():
            link.cut_until_s = link.faulty_until_s = 0.0
            link.at.clear()
        for supervisor in self._world.supervisors:
            supervisor.process.dies_at_step = 0
        self._world.chances.clear()
        self._world.locked.clear()
        self._world.completions.on_next = None

    # -- supervisors -------------------------------------------------------------------

    def _one(self, fault: Fault) -> SimSupervisor | None:
        living = [s for s in self._world.supervisors if s.process.alive]
        return living[fault.where % len(living)] if living else None

    def kill_supervisor(self, fault: Fault) -> None:
        """SIGKILL."""
        if one := self._one(fault):
            self._kernel.kill(one.process)

    def kill_both(self, fault: Fault) -> None:
        """SIGKILL of the zygotes, then of the supervisor: no process ends the rest."""
        if one := self._one(fault):
            self._world.kill_zygotes_of(one.directory.record)
            self._kernel.kill(one.process)

    def kill_at_step(self, fault: Fault) -> None:
        """SIGKILL between two of its steps."""
        if one := self._one(fault):
            one.process.dies_at_step = one.process.steps + 1 + int(fault.seconds)

    def stop_supervisor(self, fault: Fault) -> None:
        """SIGSTOP, and SIGCONT later."""
        if one := self._one(fault):
            self._stop(one.process, fault.seconds)
            self._note(one.name, fault.seconds)

    def memory_falls(self, fault: Fault) -> None:
        """Other programs take memory, and give it back later."""
        if one := self._one(fault):
            memory = one.host.memory
            memory.fall(fault.share)
            self._kernel.after(fault.seconds, memory.recover)

    def away(self, fault: Fault) -> None:
        """SIGKILL of all; none is restarted for a while."""
        world = self._world
        world.away_until_s = self._kernel.now_s + fault.seconds
        for supervisor in world.supervisors:
            self._kernel.kill(supervisor.process)

    def stop_at_grant(self, fault: Fault) -> None:
        """SIGSTOP while leases are on their way.

        It continues before its network does.
        """
        if one := self._one(fault):
            self._stop_at(one, "granted", fault.seconds, WITHOUT_NETWORK_S)

    def stop_at_end(self, fault: Fault) -> None:
        """SIGSTOP while it holds ends that are not settled."""
        if one := self._one(fault):
            self._stop_at(one, "settling", fault.seconds, 0.0)

    def _stop_at(
        self, one: SimSupervisor, point: str, seconds: float, deaf_s: float
    ) -> None:
        """Stop it there for so long; where leases expire, for longer than its own."""
        plan = self._world.plan
        if plan.shared:
            seconds += plan.ttl_s

        def act() -> None:
            self._world.sometimes[f"stopped when {point}"] += 1
            self._note(one.name, seconds + deaf_s)
            one.link.cut_until_s = self._kernel.now_s + seconds + deaf_s
            self._stop(one.process, seconds)

        one.link.at[point] = act

    def drain(self, fault: Fault) -> None:
        """SIGTERM; the service manager starts another one."""
        if one := self._one(fault):
            one.feed(inp.Drain("SIGTERM"))

    def quit(self, fault: Fault) -> None:
        """SIGQUIT."""
        if one := self._one(fault):
            one.feed(inp.Stop("SIGQUIT"))

    def reload(self, fault: Fault) -> None:
        """SIGHUP."""
        if one := self._one(fault):
            one.feed(inp.Reload(self._world.settings))

    def _stop(self, process: Process, seconds: float) -> None:
        self._kernel.stop(process)
        self._stopped.append(process)
        self._kernel.after(seconds, lambda: self._go_on(process))

    def _go_on(self, process: Process) -> None:
        """SIGCONT, unless its host sleeps: then it goes on with that."""
        hosts = [s.host for s in self._world.supervisors if s.process is process]
        if all(host.asleep_s is None for host in hosts):
            self._kernel.go_on(process)

    def _note(self, where: str, seconds: float) -> None:
        now_s = self._kernel.now_s
        self._world.note(Disturbed(at_s=now_s, where=where, until_s=now_s + seconds))

    # -- children and zygotes ----------------------------------------------------------

    def kill_child(self, fault: Fault) -> None:
        """SIGKILL from outside."""
        if tree := self._world.some_tree(fault.where):
            tree.die("nemesis", signal=9)

    def oom_kill(self, fault: Fault) -> None:
        """The kernel runs out of memory and chooses a child."""
        if tree := self._world.some_tree(fault.where):
            tree.run.host.oom_kills += 1
            tree.die("nemesis", signal=9)

    def stop_child(self, fault: Fault) -> None:
        """SIGSTOP a child, forever."""
        if tree := self._world.some_tree(fault.where):
            tree.frozen = True

    def stick_child(self, fault: Fault) -> None:
        """A child waits for a disk, and cannot die."""
        if tree := self._world.some_tree(fault.where):
            tree.stuck_until_s = self._kernel.now_s + fault.seconds
            tree.frozen = True
            self._note(tree.run.name, fault.seconds + 60.0)

    def kill_zygote(self, fault: Fault) -> None:
        """SIGKILL of a zygote."""
        one = self._one(fault)
        if one is not None and one.zygotes is not None:
            pools = sorted(one.zygotes.serving)
            if pools:
                one.zygotes.lose(pools[fault.where % len(pools)], "it was killed")

    # -- the store ---------------------------------------------------------------------

    def cut(self, fault: Fault) -> None:
        """Nothing reaches the store."""
        if one := self._one(fault):
            one.link.cut_until_s = self._kernel.now_s + fault.seconds

    def outage(self, fault: Fault) -> None:
        """The store is away for every supervisor."""
        for link in self._world.links():
            link.cut_until_s = self._kernel.now_s + fault.seconds

    def lose(self, fault: Fault) -> None:
        """Some requests fail before they take effect."""
        for link in self._some_links(fault):
            link.faulty_until_s = self._kernel.now_s + fault.seconds
            link.lost_share = fault.share

    def mute(self, fault: Fault) -> None:
        """Some commits take effect, and the answer is lost."""
        for link in self._some_links(fault):
            link.faulty_until_s = self._kernel.now_s + fault.seconds
            link.mute_share = fault.share

    def slow(self, fault: Fault) -> None:
        """Requests take up to several seconds."""
        for link in self._some_links(fault):
            link.faulty_until_s = self._kernel.now_s + fault.seconds
            link.slow_s = fault.share * 5.0

    def _some_links(self, fault: Fault) -> list:
        links = self._world.links()
        return links if fault.where % 3 == 0 else [links[fault.where % len(links)]]

    def lock_job(self, fault: Fault) -> None:
        """Another open transaction holds a job."""
        if self._world.plan.shared and self._world.newest_job:
            job = 1 + fault.where % self._world.newest_job
            self._world.locked[job] = self._kernel.now_s + fault.seconds

    # -- hosts and clocks --------------------------------------------------------------

    def _host(self, fault: Fault) -> Host:
        hosts = self._world.hosts
        return hosts[fault.where % len(hosts)]

    def reboot(self, fault: Fault) -> None:
        """A host is switched off and on."""
        self.switch_off(self._host(fault))

    def switch_off(self, host: Host) -> None:
        """End everything on a host at once; it then boots anew."""
        for supervisor in self._world.supervisors:
            if supervisor.host is host:
                self._kernel.kill(supervisor.process)
        for run in host.runs.values():
            for one in list(run.survivors()):
                one.stuck_until_s = 0.0
                if hasattr(one, "die"):
                    one.die("host", signal=9)
                else:
                    run.end_orphan(one, self._world)
        host.boots += 1

    def sleep_host(self, fault: Fault) -> None:
        """A host is suspended: everything on it stands still."""
        self._sleep(self._host(fault), fault.seconds)

    def sleep_at_completion(self, fault: Fault) -> None:
        """The host sleeps for longer than a lease, with a handler about to complete."""
        plan = self._world.plan
        seconds = fault.seconds + (plan.ttl_s if plan.shared else 0.0)
        self._world.completions.on_next = lambda host: self._sleep(host, seconds)

    def _sleep(self, host: Host, seconds: float) -> None:
        if host.asleep_s is not None:
            return
        self._note(host.name, seconds)
        host.asleep_s = self._kernel.now_s
        for supervisor in self._world.supervisors:
            if supervisor.host is host and supervisor.process.alive:
                self._kernel.stop(supervisor.process)
        self._kernel.stop(host.machine)
        self._kernel.after(seconds, lambda: self._wake(host))

    def _wake(self, host: Host) -> None:
        """Resume a host: what was stopped on it continues, whatever had stopped it."""
        if host.asleep_s is None:
            return
        host.clock.slept_s += self._kernel.now_s - host.asleep_s
        host.asleep_s = None
        first, host.goes_first = host.goes_first, lambda: None
        first()
        for supervisor in self._world.supervisors:
            if supervisor.host is host:
                self._kernel.go_on(supervisor.process)
        self._kernel.go_on(host.machine)

    def jump_wall(self, fault: Fault) -> None:
        """A host's wall clock is set."""
        self._host(fault).clock.jumped_s += fault.seconds
        self._world.quotas.clock_was_set()

    def jump_store(self, fault: Fault) -> None:
        """The database server's clock is set."""
        self._world.server_clock.jumped_s += fault.seconds
        self._world.quotas.clock_was_set()

    # -- operators ---------------------------------------------------------------------

    def cancel(self, fault: Fault) -> None:
        """Cancel a job."""
        self._world.operate("cancel", fault.where)

    def revive(self, fault: Fault) -> None:
        """Retry, or release, a job."""
        self._world.operate("revive", fault.where)

    def pause(self, fault: Fault) -> None:
        """Pause a pool for a while."""
        self._world.pause(fault.where, fault.seconds)

    def upgrade(self, fault: Fault) -> None:
        """Deploy a newer release: supervisors run it from their next start on."""
        del fault
        self._world.versions.upgrade()

    def require(self, fault: Fault) -> None:
        """Use a feature of the newer release, as soon as that is possible."""
        del fault
        self._world.require()

    def deploy(self, fault: Fault) -> None:
        """Deploy the application's second version."""
        del fault
        self._world.schedules.deploy()

    def pause_schedule(self, fault: Fault) -> None:
        """Pause a schedule for a while."""
        self._world.schedules.change("pause", fault.where, fault.seconds)

    def remove_schedule(self, fault: Fault) -> None:
        """Remove a schedule, and put it again after a while."""
        self._world.schedules.change("remove", fault.where, fault.seconds)

    def cancel_flow(self, fault: Fault) -> None:
        """Cancel a flow."""
        self._world.flows.change("cancel", fault.where)

    def pause_flow(self, fault: Fault) -> None:
        """Pause a flow for a while."""
        self._world.flows.change("pause", fault.where, fault.seconds)

    def retry_flow(self, fault: Fault) -> None:
        """Retry a flow, or a member of one."""
        self._world.flows.retry(fault.where)

    def approve(self, fault: Fault) -> None:
        """Approve the member of an external step, if its turn has come."""
        self._world.flows.approve(fault.where)

    def deploy_quotas(self, fault: Fault) -> None:
        """Deploy the application's second version, with other quotas."""
        del fault
        self._world.quotas.deploy()

    def pause_quota(self, fault: Fault) -> None:
        """Pause a quota or a tenant for a while."""
        self._world.quotas.change("pause", fault.where, fault.seconds)

    def set_quota(self, fault: Fault) -> None:
        """Set a quota for a while."""
        self._world.quotas.change("set", fault.where, fault.seconds)

    def set_tenant(self, fault: Fault) -> None:
        """Set a tenant's cap for a while."""
        self._world.quotas.change("set_tenant", fault.where, fault.seconds)

    def reset_quota(self, fault: Fault) -> None:
        """Reset a quota."""
        self._world.quotas.change("reset", fault.where, fault.seconds)

    # -- what is by chance -------------------------------------------------------------

    def fork_refused(self, fault: Fault) -> None:
        """Forks fail."""
        self._world.allow("fork refused", fault)

    def fork_hangs(self, fault: Fault) -> None:
        """Zygotes do not answer."""
        self._world.allow("fork hangs", fault)

    def start_fails(self, fault: Fault) -> None:
        """Children cannot set themselves up."""
        for name in ("start fails", "start dies", "start hangs"):
            self._world.allow(name, fault)

    def load_fails(self, fault: Fault) -> None:
        """The application fails to load from now on."""
        self._world.allow("load fails", fault)
        self.kill_zygote(fault)

    def retire_hangs(self, fault: Fault) -> None:
        """Children do not end when asked."""
        self._world.allow("retire hangs", fault)
        self._world.allow("orphan is stuck", fault)
