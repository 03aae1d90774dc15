# SPDX-License-Identifier: Apache-2.0
"""Runs one program and says what it used and what else the machine did meanwhile (Linux; standard library only)."""

import dataclasses
import os
import subprocess
import time

SAMPLE_SECONDS = 0.02
TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


@dataclasses.dataclass
class ChildRun:
    output: str  # stdout
    seconds: float
    peak_bytes: int  # private and shared memory (RssAnon + RssShmem), sampled: without the files it maps
    max_rss_bytes: int  # the kernel's high-water mark, mapped files included
    load_before: float  # one-minute load average
    busy_before: float  # share of all cores, over one second before the start
    foreign_cpu: float  # cores kept busy by others during the run


class ChildFailed(Exception):
    pass


def machine_seconds():
    """(busy, idle) of all cores since boot; stolen time counts as busy, waiting for disks as idle."""
    with open("/proc/stat") as stat:
        user, nice, system, idle, iowait, irq, softirq, steal = map(int, stat.readline().split()[1:9])
    return (user + nice + system + irq + softirq + steal) / TICKS_PER_SECOND, (idle + iowait) / TICKS_PER_SECOND


def busy_share(seconds=1.0):
    before = machine_seconds()
    time.sleep(seconds)
    busy, idle = (after - start for after, start in zip(machine_seconds(), before))
    return busy / (busy + idle)


def resident_bytes(process_id):
    """(RssAnon + RssShmem, high-water mark of all resident memory); zeros when the process is gone."""
    try:
        with open(f"/proc/{process_id}/status") as status:
            fields = dict(line.split(":", 1) for line in status)
        anonymous, shared, peak = (int(fields[key].split()[0]) * 1024 for key in ("RssAnon", "RssShmem", "VmHWM"))
        return anonymous + shared, peak
    except (OSError, KeyError):  # a process that has ended, or is ending
        return 0, 0


def wait_sampling(process):
    """Until the end: (exit status, CPU seconds with descendants, peak memory, peak resident memory)."""
    peak, max_rss = 0, 0
    while True:
        finished, status, usage = os.wait4(process.pid, os.WNOHANG)
        if finished:
            process.returncode = os.waitstatus_to_exitcode(status)
            return process.returncode, usage.ru_utime + usage.ru_stime, peak, max_rss
        now, high_water = resident_bytes(process.pid)
        peak, max_rss = max(peak, now), max(max_rss, high_water)
        time.sleep(SAMPLE_SECONDS)


def run_child(command, log_path, environment=None):
    """stderr and stdout go to files beside `log_path`; a failure raises ChildFailed with their last lines."""
    load_before, busy_before = os.getloadavg()[0], busy_share()
    busy_start, start = machine_seconds()[0], time.monotonic()
    output_path = log_path.with_suffix(".out")
    with open(output_path, "w") as output, open(log_path, "w") as log:
        process = subprocess.Popen(command, stdout=output, stderr=log, env={**os.environ, **(environment or {})})
        exit_code, cpu_seconds, peak, max_rss = wait_sampling(process)
    seconds = time.monotonic() - start
    foreign = max(0.0, machine_seconds()[0] - busy_start - cpu_seconds) / seconds
    if exit_code != 0:
        tail = "".join(log_path.read_text().splitlines(keepends=True)[-15:])
        raise ChildFailed(f"{' '.join(map(str, command))}: exit status {exit_code}\n{tail}")
    return ChildRun(output_path.read_text(), seconds, peak, max_rss, load_before, busy_before, foreign)
