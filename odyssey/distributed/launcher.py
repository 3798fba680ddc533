"""Launcher: start the ranks of a run by mpiexec, watch them, and end all when one has failed."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from secrets import token_hex
from types import FrameType

from odyssey.distributed import run_processes
from odyssey.distributed.board import WAITING, Board, BoardLine
from odyssey.distributed.run_processes import (
    end_processes,
    end_ranks,
    list_folder,
    rank_processes,
    remove_run_folder,
)
from odyssey.errors import DistributedError

__all__ = ["LaunchOptions", "choose_rank_count", "find_mpiexec", "launch"]

FAILED_TOGETHER = 0.3
"""Seconds in which other ranks may report their failures, after the first one."""

SIGNAL_GRACE = 10.0
"""Seconds in which ranks may end after a signal."""

START_LIMIT = 60.0
"""Seconds in which all ranks must have started and met, beside the timeout."""

OVERDUE = 1.2
"""Seconds after its deadline at which a rank that did not raise is ended."""

MPIEXEC_GRACE = 0.7
"""Seconds in which mpiexec may end after its ranks."""

KEEPING = 3600.0
"""Seconds after which the files of the run folder are made to look new."""

HELD_BACK = 0.05
"""Seconds for which an unfinished line of rank 0 waits for its end."""

MPIEXEC_BYTES, LONGEST_LINE, WRITTEN_AT_ONCE = 1 << 16, 1 << 20, 4096

_OF_A_RANK = re.compile(
    "PMI_|PMIX_(RANK|NAMESPACE|SERVER_|KEEPALIVE)|OMPI_COMM_WORLD_|PRTE_LAUNCHED"
)
"""Variables by which another mpiexec has told this process that it is one of its ranks."""

BLAS_VARIABLES = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
)

STATUS_DISTRIBUTED = 75  # a rank waited for others: EX_TEMPFAIL of sysexits.h
STATUS_UNEXPLAINED = 70  # EX_SOFTWARE
STATUS_OUTPUT = 74  # EX_IOERR


@dataclasses.dataclass(frozen=True)
class LaunchOptions:
    """Options of a run: the script, the number of ranks, and how they are treated.

    Args:
        target: Path of a script, or name of a module.
        arguments: Its arguments.
        module: Whether ``target`` is a module.
        low: The smallest number of ranks.
        high: The largest.
        timeout: Seconds that a collective waits for other ranks.
        restarts: How often to start again after a failure.
        resume: The value of ``ODYSSEY_RESUME`` for the first start, "" or "auto".
        blas_threads: Threads of NumPy's BLAS library in each rank.
    """

    target: str
    arguments: Sequence[str] = ()
    module: bool = False
    low: int = 1
    high: int = 1
    timeout: float = 60.0
    restarts: int = 0
    resume: str = ""
    blas_threads: int = 1


@dataclasses.dataclass(frozen=True)
class _Failure:
    """The end of a rank before the end of its script."""

    when: float
    rank: int
    status: int  # negative for a signal
    error: str

    def describe(self) -> str:
        if self.status < 0:
            name = _signal_name(-self.status)
            text = f"was killed by signal {-self.status} ({name})"
            if name == "SIGKILL":
                text += "; the system does so to processes when memory is used up"
            return text
        if self.status == STATUS_DISTRIBUTED:
            return f"ended with status {self.status}: {self.error.partition(':')[0]}, as said above"
        reason = f": {self.error}" if self.error else ""
        if not self.status:
            return f"ended with status 0 before the end of the script{reason}"
        return f"ended with status {self.status}{reason}"


@dataclasses.dataclass
class _Outcome:
    status: int
    lost: int = 0  # ranks that were killed, or vanished


def launch(options: LaunchOptions) -> int:
    """Run a script on several ranks, and return the exit status.

    Returns:
        0 only if every rank reached the end of the script; else the status of the rank that failed
        first, 128 + number if a signal ended it or the launcher, 75 for a ``DistributedError``, 70
        without an explanation.

    Raises:
        DistributedError: there is no mpiexec, no mpi4py, or no place for the run folder.
    """
    _open_standard_descriptors()
    cores = _core_count()
    count = choose_rank_count(options.low, options.high, cores, options.high)
    with _Signals() as signals, _Guardian() as guardian:
        for attempt in range(1, options.restarts + 2):
            if count > cores and attempt == 1:
                _say(f"note: {count} ranks share {cores} core{'s' * (cores > 1)}")
            outcome = _Run(options, count, attempt, signals, guardian).run()
            if not outcome.status or signals.number or attempt > options.restarts:
                break
            count = choose_rank_count(options.low, options.high, cores, count - outcome.lost)
            _say(f"start {attempt + 1} of {options.restarts + 1}, with -n {count}")
    return outcome.status


def choose_rank_count(low: int, high: int, cores: int, left: int) -> int:
    """Return how many ranks to start.

    Args:
        low: The smallest number that is allowed.
        high: The largest.
        cores: Cores of this machine.
        left: Ranks of the last attempt that were not lost.

    Returns:
        The largest power of two that the cores and the range allow; without one the largest number.

    >>> choose_rank_count(1, 8, 6, 8), choose_rank_count(1, 8, 6, 3), choose_rank_count(3, 3, 2, 3)
    (4, 2, 3)
    """
    largest = max(low, min(high, cores, left))
    power: int = 1 << (largest.bit_length() - 1)
    return power if power >= low else largest


def find_mpiexec() -> str:
    """Return the path of mpiexec: the one beside the interpreter, or the first on PATH.

    Raises:
        DistributedError: there is none.
    """
    beside = shutil.which("mpiexec", path=os.path.dirname(sys.executable))
    found = beside or shutil.which("mpiexec")
    if found is None:
        raise DistributedError(
            "mpiexec, which starts ranks, was found neither beside the interpreter nor on PATH; "
            "pip install 'odyssey[dist]'"
        )
    return found


def _mpiexec_with_options(ranks: int) -> tuple[list[str], dict[str, str]]:
    """Return mpiexec with its options, and the environment that it needs."""
    mpiexec = find_mpiexec()
    try:
        version = subprocess.run(
            [mpiexec, "--version"], capture_output=True, text=True, errors="replace", timeout=30
        ).stdout
    except (OSError, subprocess.SubprocessError) as error:
        raise DistributedError(f"{mpiexec} does not run: {error}") from None
    command = [mpiexec]
    # In a job of Slurm or of another scheduler mpiexec would start ranks on all of its machines.
    environment = {"HYDRA_LAUNCHER": "fork", "HYDRA_RMK": "user"}
    if "Open MPI" in version or "OpenRTE" in version:
        # It binds ranks to single cores, and refuses more ranks than cores, or root.
        command += ["--oversubscribe", "--bind-to", "none"]
        for prefix in ("PRTE_MCA", "OMPI_MCA"):  # of Open MPI 5, and of 4
            environment[f"{prefix}_ras"] = "^slurm,tm,pbs,lsf,gridengine"
            environment[f"{prefix}_plm"] = "^slurm,tm,pbs,lsf"
        if os.geteuid() == 0:
            for name in ("OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"):
                environment[name] = "1"
    return [*command, "-n", str(ranks)], environment


def _core_count() -> int:
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:
        return os.cpu_count() or 1


def _open_standard_descriptors() -> None:
    """Open what is closed of the descriptors 0, 1 and 2, so that no pipe gets their number."""
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(descriptor)


def _say(text: str) -> None:
    with contextlib.suppress(OSError, ValueError):
        print(f"odyssey launch: {text}", file=sys.stderr, flush=True)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return "unknown"


# ------------------------------------------------------------------ one start of all ranks


class _Run:
    """One start of all ranks: their processes, and the run folder.

    The folder has, for rank R: ``pid.R``; ``ready.R`` when it met the others; ``failed.R`` with its
    status and the error in one line; ``done.R`` when it reached the end; ``ended.R`` with the time
    and its status when it ended without; the pipes ``out.R`` and ``err.R``; ``shared.R``, names of
    shared memory; and for all ranks ``board`` and ``command``.
    """

    def __init__(
        self,
        options: LaunchOptions,
        ranks: int,
        attempt: int,
        signals: _Signals,
        guardian: _Guardian,
    ) -> None:
        self.options, self.ranks, self.attempt = options, ranks, attempt
        self.signals, self.guardian = signals, guardian
        try:
            parent = os.path.realpath(tempfile.gettempdir())
        except OSError as error:
            raise DistributedError(
                f"the ranks cannot be started: {error.strerror}; TMPDIR names another"
            ) from None
        self.folder = os.path.join(parent, f"odyssey-run-{token_hex(8)}")
        self.process: subprocess.Popen[bytes] | None = None
        self.output: _Output | None = None
        self.board: Board | None = None
        self.marks: set[str] = set()
        self.reason = ""  # why the launcher ended all, if no rank had failed by itself

    def run(self) -> _Outcome:
        command, environment = self._mpiexec_command()
        self.guardian.tell(f"run {self.folder}")
        try:
            try:
                os.mkdir(self.folder, 0o700)
                self.board = Board(self.folder, self.ranks, 0)
                with open(os.path.join(self.folder, "command"), "wb") as file:
                    file.write(b"\0".join(map(os.fsencode, self._rank_command())))
                self.output = output = _Output(self.folder, self.ranks)
                self.process = subprocess.Popen(
                    command,
                    env=environment,
                    stdin=None if self.ranks == 1 else subprocess.DEVNULL,
                    stdout=output.mpiexec_end,
                    stderr=output.mpiexec_end,
                    start_new_session=True,
                )
            except OSError as error:
                raise DistributedError(
                    f"the ranks cannot be started: {error}; the run folder is made in "
                    f"{os.path.dirname(self.folder)}, and TMPDIR names another place"
                ) from None
            self.guardian.tell(f"group {self.process.pid}")
            self._watch(self.process, output)
            failures, lines = self._failures(), dict(self._board_lines())
            status = self._end_run()
            output.drain()
            return self._outcome(output, status, failures, lines)
        finally:
            self._end_run()
            if self.output is not None:
                self.output.close()
            remove_run_folder(self.folder)
            self.guardian.tell("over")

    def _rank_command(self) -> list[str]:
        """Return the command of a rank, which its supervisor runs."""
        options = self.options
        flags = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
        module = ["-m"] if options.module else []
        runner = [sys.executable, *flags, "-m", "odyssey.distributed"]
        return [*runner, *module, options.target, *options.arguments]

    def _mpiexec_command(self) -> tuple[list[str], dict[str, str]]:
        """Return the command that starts a supervisor for each rank, and its environment."""
        threads = str(self.options.blas_threads)
        given = self.options.resume or os.environ.get("ODYSSEY_RESUME", "")
        environment = {
            **{k: v for k, v in os.environ.items() if not _OF_A_RANK.match(k)},
            **dict.fromkeys(BLAS_VARIABLES, threads),
            "ODYSSEY_BLAS_THREADS": threads,
            "ODYSSEY_RUN": self.folder,
            "ODYSSEY_SIZE": str(self.ranks),
            "ODYSSEY_TIMEOUT": repr(self.options.timeout),
            "ODYSSEY_ATTEMPT": str(self.attempt),
            "ODYSSEY_RESUME": given if self.attempt == 1 else "auto",
        }
        command = [sys.executable, "-I", "-S", run_processes.__file__, "supervise"]
        if self.ranks > 1:
            mpiexec, needed = _mpiexec_with_options(self.ranks)
            command, environment = mpiexec + command, environment | needed
        return command, environment

    # ------------------------------------------------------------------ while it runs

    def _watch(self, process: subprocess.Popen[bytes], output: _Output) -> None:
        """Pass on output until all ranks have ended, or until all must be ended."""
        begin, limit, done_at, forwarded = time.monotonic(), math.inf, math.inf, 0
        start_limit = START_LIMIT + self.options.timeout
        overrun = self.options.timeout + OVERDUE
        kept = begin
        while process.poll() is None and time.monotonic() < limit and not output.status:
            output.wait(0.02)
            self.marks.update(list_folder(self.folder))
            now = time.monotonic()
            if self.signals.count > forwarded:
                self._forward_signal(process, self.signals.number)
                limit = min(limit, now + (0.0 if forwarded else SIGNAL_GRACE))
                forwarded = self.signals.count
            if now - kept > KEEPING:
                self._keep_files()
                kept = now
            if self._with("failed", "ended"):
                if not forwarded:
                    limit = min(limit, now + FAILED_TOGETHER)
                elif len(self._with("ended", "done")) == self.ranks:
                    return
            elif now - begin > start_limit and len(self._with("ready")) < self.ranks:
                late = sorted(set(range(self.ranks)) - set(self._with("ready")))
                self.reason = f"{_ranks(late)} did not start within {start_limit:g} s"
                return
            elif self._with("done"):
                done_at = min(done_at, now)
                if now - done_at > overrun:
                    self.reason = f"the script ended, but not mpiexec, for {overrun:g} s"
                    return
            else:
                for rank, line in self._board_lines():
                    if line.state == WAITING and now - line.since > overrun:
                        self.reason = f"rank {rank} did not raise an error at its deadline"
                        return

    def _keep_files(self) -> None:
        """Make files look new: systems remove old ones from folders of temporary files."""
        for name in list_folder(self.folder):
            with contextlib.suppress(OSError):
                os.utime(os.path.join(self.folder, name))

    def _with(self, *kinds: str) -> list[int]:
        """Return the ranks that have left one of these marks."""
        return [r for r in range(self.ranks) if any(f"{k}.{r}" in self.marks for k in kinds)]

    def _board_lines(self) -> Iterator[tuple[int, BoardLine]]:
        for rank in range(self.ranks):
            line = self.board.read(rank) if self.board is not None else None
            if line is not None:
                yield rank, line

    def _forward_signal(self, process: subprocess.Popen[bytes], number: int) -> None:
        """Send a signal to all ranks; to mpiexec's group if some have not started."""
        pids, _ = rank_processes(self.folder)
        for pid in pids:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, number)
        if len(pids) < self.ranks:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGTERM)

    # ------------------------------------------------------------------ when it has ended

    def _end_run(self) -> int:
        """End all processes of the run, and return mpiexec's status."""
        if self.process is None:
            return 0
        if self.process.poll() is None and self.ranks > 1:
            end_ranks(self.folder, self.process.pid)  # mpiexec removes its files, and ends
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(MPIEXEC_GRACE)
        end_processes(self.folder, self.process.pid if self.process.poll() is None else None)
        return self.process.wait()

    def _failures(self) -> list[_Failure]:
        """Return the failures of ranks, the first one first."""
        self.marks.update(list_folder(self.folder))
        failures = []
        for rank in self._with("failed", "ended"):
            number, _, error = self._read(f"failed.{rank}").partition(" ")
            when, _, status = self._read(f"ended.{rank}").partition(" ")
            failures.append(_Failure(float(when or math.inf), rank, int(status or number), error))
        return sorted(failures, key=lambda failure: failure.when)

    def _read(self, name: str) -> str:
        try:
            with open(os.path.join(self.folder, name), errors="replace") as file:
                return file.read().strip()
        except OSError:
            return ""

    def _outcome(
        self,
        output: _Output,
        mpiexec_status: int,
        failures: list[_Failure],
        lines: Mapping[int, BoardLine],
    ) -> _Outcome:
        """Say what has failed, and return the status of the run."""
        if len(self._with("done")) == self.ranks and not failures and not mpiexec_status:
            return _Outcome(0)
        # A rank that waited for another is less of a reason than any other error.
        first = min(failures, key=lambda f: (f.status == STATUS_DISTRIBUTED, f.when), default=None)
        if self.signals.number:
            number = self.signals.number
            _say(f"ended by signal {number} ({_signal_name(number)})")
            return _Outcome(128 + number)
        if output.status:
            if output.error:
                _say(f"the output of ranks cannot be written: {output.error}; all were ended")
            return _Outcome(output.status)
        told = [f for f in failures if f is first or f.error]
        for failure in told:
            last = "" if failure.error else _last_call(lines.get(failure.rank))
            _say(f"rank {failure.rank} {failure.describe()}{last and '; it '}{last}")
        if self.reason:
            _say(f"{self.reason}, so all ranks were ended")
        elif first is None:
            # mpiexec has not started ranks, or was ended itself, or a rank failed at its very end.
            if text := output.mpiexec_text():
                sys.stderr.write(text)
            reached = "every rank reached the end of the script, but " * (
                len(self._with("done")) == self.ranks
            )
            starter = "mpiexec" if self.ranks > 1 else "its supervisor"
            _say(f"{reached}{starter} ended with status {mpiexec_status}")
        ended = set(range(self.ranks)) - {f.rank for f in told} - set(self._with("done"))
        why = "was ended, since another rank failed" if told else "was ended"
        for rank in sorted(ended):
            last = _last_call(lines.get(rank))
            _say(f"rank {rank} {why}{last and '; it '}{last}")
        if first is None:
            unexplained = STATUS_DISTRIBUTED if self.reason else STATUS_UNEXPLAINED
            return _Outcome(unexplained)
        lost = sum(f.status <= 0 for f in told)
        status = 128 - first.status if first.status < 0 else first.status or STATUS_UNEXPLAINED
        return _Outcome(status, lost)


def _ranks(numbers: Iterable[int]) -> str:
    """Return "rank 1", or "ranks 0, 2 and 3"."""
    *most, last = map(str, sorted(numbers))
    return f"ranks {', '.join(most)} and {last}" if most else f"rank {last}"


def _last_call(line: BoardLine | None) -> str:
    """Return what a rank did last, in words."""
    if line is None or not line.number:
        return ""
    call = f"{line.call} (collective {line.number})"
    return f"waited in {call}" if line.state == WAITING else f"computed after {call}"


# ------------------------------------------------------------------ output of ranks


class _Output:
    """Output of all ranks, by named pipes: a tag before each line of ranks other than 0.

    A group of one rank writes to the launcher's own output.
    """

    def __init__(self, folder: str, ranks: int) -> None:
        self.status, self.error = 0, ""  # of a write that failed
        self.mpiexec_end: int | None = None
        self._sources: dict[int, tuple[int, int]] = {}  # pipe: descriptor written to, rank
        self._unfinished: dict[int, bytes] = {}
        self._latest: dict[int, float] = {}  # pipe: when something came
        self._within_line = {1: False, 2: False}
        self._mpiexec, self._poll = bytearray(), select.poll()
        if ranks == 1:
            return
        for rank in range(ranks):
            for target, name in ((1, "out"), (2, "err")):
                path = os.path.join(folder, f"{name}.{rank}")
                os.mkfifo(path, 0o600)
                # Opened for writing too, so that it does not end when a rank closes it.
                pipe = os.open(path, os.O_RDWR | os.O_NONBLOCK)
                self._sources[pipe] = target, rank
                self._poll.register(pipe, select.POLLIN)
        pipe, self.mpiexec_end = os.pipe()
        os.set_blocking(pipe, False)
        self._sources[pipe] = 0, 0
        self._poll.register(pipe, select.POLLIN)

    def wait(self, seconds: float) -> bool:
        """Pass on what has come; if nothing has, wait. Return whether something came."""
        ready = [pipe for pipe, _ in self._poll.poll(seconds * 1000)]
        for pipe in ready:
            with contextlib.suppress(BlockingIOError):
                self._take(pipe, os.read(pipe, 65536))
        now = time.monotonic()
        for pipe, (target, rank) in self._sources.items():
            if pipe in ready:
                self._latest[pipe] = now
            elif not rank and self._unfinished.get(pipe) and now - self._latest[pipe] > HELD_BACK:
                # Such as a prompt or a progress bar.
                self._write_pieces(target, self._unfinished.pop(pipe))
                self._within_line[target] = True
        return bool(ready)

    def drain(self) -> None:
        """Pass on what is left after all ranks have ended."""
        while not self.status and self.wait(0):
            pass
        for pipe, rest in self._unfinished.items():
            if rest:
                self._write_lines(*self._sources[pipe], rest + b"\n")
        self._unfinished.clear()

    def mpiexec_text(self) -> str:
        """Return what mpiexec itself has written."""
        return self._mpiexec.decode(errors="replace")

    def close(self) -> None:
        for pipe in [*self._sources, *([self.mpiexec_end] if self.mpiexec_end else [])]:
            os.close(pipe)
        self._sources.clear()
        self.mpiexec_end = None

    def _take(self, pipe: int, data: bytes) -> None:
        target, rank = self._sources[pipe]
        if not target:
            self._mpiexec = (self._mpiexec + data)[-MPIEXEC_BYTES:]
            return
        data = self._unfinished.get(pipe, b"") + data
        lines, newline, rest = data.rpartition(b"\n")
        if len(rest) > LONGEST_LINE:
            lines, newline, rest = data, b"\n" if rank else b"", b""
        self._unfinished[pipe] = rest
        if lines or newline:
            self._write_lines(target, rank, lines + newline)

    def _write_lines(self, target: int, rank: int, lines: bytes) -> None:
        if rank:
            tag = b"rank %d: " % rank
            lines = b"".join(tag + line + b"\n" for line in lines[:-1].split(b"\n"))
            if self._within_line[target]:
                lines = b"\n" + lines  # below the unfinished line of rank 0
        self._within_line[target] = False
        self._write_pieces(target, lines)

    def _write_pieces(self, target: int, data: bytes) -> None:
        """Write to the launcher's own output, in pieces that wait only in ``poll``."""
        poll, left = select.poll(), memoryview(data)
        poll.register(target, select.POLLOUT)
        while left and not self.status:
            try:
                if poll.poll(100):
                    left = left[os.write(target, left[:WRITTEN_AT_ONCE]) :]
            except BlockingIOError:
                continue
            except OSError as error:
                closed = isinstance(error, BrokenPipeError)
                self.status = 128 + signal.SIGPIPE if closed else STATUS_OUTPUT
                self.error = "" if closed else str(error)


# ------------------------------------------------------------------ signals, and the guardian


class _Signals:
    """Signals that came to the launcher while ranks run."""

    def __init__(self) -> None:
        self.number, self.count = 0, 0
        self._before: dict[int, object] = {}

    def __enter__(self) -> _Signals:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                if signal.getsignal(number) != signal.SIG_IGN:  # as nohup sets
                    self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, *error: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.number = self.number or number
        self.count += 1


class _Guardian:
    """A process that ends the ranks if the launcher is killed."""

    def __enter__(self) -> _Guardian:
        environment = {k: v for k, v in os.environ.items() if k != "ODYSSEY_RUN"}
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", run_processes.__file__, "guard"],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=environment,
            start_new_session=True,
        )
        return self

    def tell(self, line: str) -> None:
        """Send a line; see ``run_processes.guard``."""
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.write(os.fsencode(line) + b"\n")
            self._process.stdin.flush()

    def __exit__(self, *error: object) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        self._process.wait()
