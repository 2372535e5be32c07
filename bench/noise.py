"""How busy other processes keep the machine while something is measured."""
import os
import resource

VOID = 0.03  # of a core: what is measured while others use more is void
TICKS = os.sysconf("SC_CLK_TCK")


def of_process(pid):
    """Seconds that a running process has used: utime and stime of its /proc/PID/stat."""
    with open(f"/proc/{pid}/stat", encoding="ascii") as f:
        fields = f.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def processor_time(*running):
    """Seconds that all processes of this machine have run, and seconds that this one, the children it
    has waited for and those of `running` have: the first from /proc/stat's `cpu` line (user, nice, system, irq and
    softirq; the time that other guests of the host took is not in them), the second from getrusage. What the first
    grows by more than the second is other processes' work. /proc/stat counts in ticks of 10 ms; over the seconds that
    a round takes the error is well below 1 % of a core."""
    own = sum(r.ru_utime + r.ru_stime for r in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)))
    try:
        own += sum(map(of_process, running))
        with open("/proc/stat", encoding="ascii") as f:
            user, nice, system, _, _, irq, softirq = map(int, f.readline().split()[1:8])
    except (OSError, ValueError):
        return None, own
    return (user + nice + system + irq + softirq) / TICKS, own


def others(before, after, wall):
    """Cores that other processes used between two readings of processor_time(); None where unknown."""
    if before[0] is None or after[0] is None:
        return None
    return max(0.0, ((after[0] - before[0]) - (after[1] - before[1])) / wall)
