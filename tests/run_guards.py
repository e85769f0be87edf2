"""Switches each guard of the product off and shows that a test notices: ``make guards``.

Each worker has a copy of the project in a temporary folder; the project itself is never changed. In the copy one guard
at a time is switched off, and only the tests that are meant to notice run there. A guard counts as noticed where one of
its tests fails in its own code. A set-up that fails, a patch that does not compile, a name that does not exist, and a
run that takes too long are broken runs, not proof. One run of all these tests without a patch is part of it: they must
pass. Exits with 0 only if every guard was noticed.
"""

import argparse
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from tempfile import TemporaryDirectory
from xml.etree import ElementTree as ET

import psutil

from tests.guards import GUARDS
from tests.guards.guard import Guard, StaleGuardError

ROOT = Path(__file__).resolve().parents[1]
LIMIT_S = 500.0  # of one guard: a test that hangs for longer has noticed nothing
BASELINE_LIMIT_S = 1200.0
STOP_S = 60.0
TAIL_LINES = 40
# Errors of the patch itself: code that cannot run protects nothing, and proves nothing.
_BROKEN_CODE = ("NameError", "UnboundLocalError", "ImportError", "ModuleNotFoundError", "SyntaxError")
BASELINE = "baseline"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What a pytest run says. ``noticed_by`` is the test that failed in its own code, with the first line of ``why``;
    ``problem`` says why a run proves nothing. Both are None where every test passed."""

    noticed_by: str | None = None
    why: str | None = None
    problem: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """A run's verdict, its time and the end of its output; ``name`` is the guard's, or ``BASELINE``."""

    name: str
    verdict: Verdict
    seconds: float
    tail: str


def judged(code: int, report: str | None) -> Verdict:
    """The verdict from pytest's exit code and its JUnit report."""
    if code == 0:
        return Verdict()
    if code != 1 or report is None:
        return Verdict(problem=f"pytest ended with {code}, expected 0 or 1")
    for case in ET.fromstring(report).iter("testcase"):  # noqa: S314 - pytest has just written it
        # A failed set-up or collection is an <error>.
        failure = case.find("failure")
        if failure is None:
            continue
        why = (failure.get("message") or "").strip().partition("\n")[0]
        if why.startswith(_BROKEN_CODE):
            return Verdict(problem=f"the patch breaks the code: {why}")
        if why.startswith("Failed: Timeout"):
            return Verdict(problem=f"a test took too long: {why}")
        test = f"{case.get('classname', '').replace('.', '/')}.py::{case.get('name')}"
        return Verdict(noticed_by=test, why=why)
    return Verdict(problem="no test failed in its own code, only around it")


class Copy:
    """A copy of the project, and the pytest run in it; used by one thread at a time, but for ``stop``."""

    def __init__(self, folder: Path) -> None:
        self.project = folder / "project"
        self._report, self._log, self._temporary = (folder / name for name in ("report.xml", "output.txt", "tmp"))
        self._process: subprocess.Popen[bytes] | None = None
        self._stopped = False
        _copy_project(self.project)
        self._require_own_package()

    def check(self, name: str, tests: Sequence[str], limit_s: float) -> Outcome:
        """Run the tests as the copy is now."""
        started = time.monotonic()
        self._report.unlink(missing_ok=True)
        options = ["-x", "-q", "--no-header", "-p", "no:cacheprovider"]
        places = [f"--junitxml={self._report}", f"--basetemp={self._temporary}"]
        code = self._run([self._python, "-m", "pytest", *options, *places, *tests], limit_s)
        seconds = time.monotonic() - started
        if code is None:
            verdict = Verdict(problem=f"not done after {seconds:.0f} s")
        else:
            verdict = judged(code, self._report.read_text(encoding="utf-8") if self._report.exists() else None)
        lines = self._log.read_text(encoding="utf-8", errors="replace").splitlines()
        return Outcome(name=name, verdict=verdict, seconds=seconds, tail="\n".join(lines[-TAIL_LINES:]))

    def check_guard(self, guard: Guard) -> Outcome:
        """Run the guard's tests without it, and put the file back."""
        path = self.project / guard.path
        original = path.read_text(encoding="utf-8")
        try:
            _write(path, guard.switched_off(original))
            return self.check(guard.name, guard.tests, LIMIT_S)
        finally:
            _write(path, original)

    def stop(self) -> None:
        """End the run for good; its verdict counts for nothing."""
        self._stopped = True
        self._end()

    @property
    def _python(self) -> str:
        return str(self.project / ".venv" / "bin" / "python")

    @property
    def _env(self) -> dict[str, str]:
        """This process's variables, without those that lead to another deployment or to the project's own package."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("TIDEMARK_", "PYTEST_"))}
        return {**kept, "PYTHONPATH": os.pathsep.join((str(self.project / "include"), str(self.project)))}

    def _run(self, argv: Sequence[str], limit_s: float) -> int | None:
        """The exit code; None where the limit passed."""
        with self._log.open("wb") as log:
            # A session of its own: Ctrl-C reaches this process alone, which then stops the runs in order.
            self._process = process = subprocess.Popen(
                argv,
                cwd=self.project,
                env=self._env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        if self._stopped:  # while it started
            self._end()
        try:
            return process.wait(limit_s)
        except subprocess.TimeoutExpired:
            self._end()
            return None

    def _end(self) -> None:
        """Interrupt pytest, so that its fixtures stop what they started; kill what is left after a minute."""
        process = self._process
        if process is None or process.poll() is not None:
            return
        with suppress(psutil.NoSuchProcess):
            family = [*psutil.Process(process.pid).children(recursive=True), psutil.Process(process.pid)]
            process.send_signal(signal.SIGINT)
            for alive in psutil.wait_procs(family, timeout=STOP_S)[1]:
                with suppress(psutil.NoSuchProcess):
                    alive.kill()

    def _require_own_package(self) -> None:
        """The copy's code must be what its tests run, also in processes that they start."""
        argv = [self._python, "-c", "import tidemark; print(tidemark.__file__)"]
        found = subprocess.run(argv, env=self._env, cwd="/", capture_output=True, text=True, check=True).stdout.strip()
        if not Path(found).is_relative_to(self.project):
            raise SystemExit(f"the copy does not run its own code: expected {self.project}, found {found}")


def _copy_project(to: Path) -> None:
    """Every file that git tracks or would track, and links to what is installed."""
    argv = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).is_file():  # else it was deleted, and that is not committed yet
            (to / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, to / name)
    (to / ".tidemark").mkdir()
    (to / ".tidemark" / "jars").symlink_to(ROOT / ".tidemark" / "jars")
    (to / ".venv").symlink_to(ROOT / ".venv")


def _write(path: Path, text: str) -> None:
    """Write a module and forget its bytecode: Python compares times in seconds, and sizes, which may be equal."""
    path.write_text(text, encoding="utf-8")
    for compiled in (path.parent / "__pycache__").glob(f"{path.stem}.*.pyc"):
        compiled.unlink()


def stale(guards: Iterable[Guard]) -> list[str]:
    """What is wrong with the guards' edits, one text per guard."""
    problems = []
    for guard in guards:
        try:
            compile(guard.switched_off((ROOT / guard.path).read_text(encoding="utf-8")), guard.path, "exec")
        except (StaleGuardError, FileNotFoundError, SyntaxError) as error:
            problems.append(str(error) if isinstance(error, StaleGuardError) else f"guard {guard.name}: {error}")
    return problems


@dataclass(kw_only=True)
class _Progress:
    """Prints a line per run as it ends."""

    guards: int
    show_why: bool
    done: int = 0
    runs: int = 0  # the baseline among them
    failed: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        self._began = time.monotonic()

    def baseline(self, outcome: Outcome) -> bool:
        """Print how the run without a patch went; whether it was good."""
        self.runs += 1
        if outcome.verdict == Verdict():
            _say(f"[{BASELINE}] without a patch all of these tests pass ({outcome.seconds:.0f} s)")
            return True
        problem = outcome.verdict.problem or f"{outcome.verdict.noticed_by}: {outcome.verdict.why}"
        _say(f"[{BASELINE}] a test fails without any patch: {problem}\n{_indented(outcome.tail)}")
        return False

    def guard(self, outcome: Outcome) -> None:
        self.done += 1
        self.runs += 1
        verdict = outcome.verdict
        if verdict.noticed_by is not None:
            result, details = f"noticed by {verdict.noticed_by}", (verdict.why or "") if self.show_why else ""
        else:
            self.failed += (outcome.name,)
            result = f"broken run: {verdict.problem}" if verdict.problem else "NOBODY NOTICED"
            details = outcome.tail
        left = (time.monotonic() - self._began) / self.runs * (self.guards - self.done) / 60
        times = f"({outcome.seconds:.0f} s; about {left:.0f} min left)"
        _say(f"[{self.done}/{self.guards}] {outcome.name}  {result} {times}")
        if details:
            _say(_indented(details))

    def summary(self) -> int:
        """Print the sum; the exit code."""
        minutes = (time.monotonic() - self._began) / 60
        noticed = self.done - len(self.failed)
        _say(f"{noticed} of {self.guards} guards noticed in {minutes:.0f} min")
        if self.failed:
            _say(f"not noticed: {', '.join(self.failed)}")
        return 0 if noticed == self.guards else 1


def run(guards: Sequence[Guard], copies: Sequence[Copy], *, baseline: bool, show_why: bool) -> int:
    """Check every guard, one at a time in each copy; the exit code."""
    progress = _Progress(guards=len(guards), show_why=show_why)
    free: SimpleQueue[Copy] = SimpleQueue()
    for copy in copies:
        free.put(copy)

    def job(guard: Guard | None) -> Outcome:
        copy = free.get()
        try:
            if guard is not None:
                return copy.check_guard(guard)
            tests = dict.fromkeys(test for item in guards for test in item.tests)
            return copy.check(BASELINE, tuple(tests), BASELINE_LIMIT_S)
        finally:
            free.put(copy)

    with ThreadPoolExecutor(len(copies), thread_name_prefix="guards") as pool:
        try:
            # The baseline is the longest: it comes first, beside the first guards.
            jobs: list[Future[Outcome]] = [pool.submit(job, item) for item in ([None] if baseline else []) + [*guards]]
            for future in as_completed(jobs):
                outcome = future.result()
                if outcome.name != BASELINE:
                    progress.guard(outcome)
                elif not progress.baseline(outcome):
                    return 1
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
            _stop_all(copies)
    return progress.summary()


def _stop_all(copies: Sequence[Copy]) -> None:
    """Stop what still runs, all at once; a second Ctrl-C does not cut that short."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    with ThreadPoolExecutor(len(copies)) as pool:
        for done in [pool.submit(copy.stop) for copy in copies]:
            done.result()
    signal.signal(signal.SIGINT, before)


def _say(text: str) -> None:
    print(text, flush=True)  # noqa: T201 - a command


def _indented(text: str) -> str:
    return "\n".join(f"    {line}" for line in text.splitlines())


def _interrupt(number: int, _: object) -> None:
    raise KeyboardInterrupt(signal.Signals(number).name)


def main() -> int:
    """See ``--help``; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="GUARD", help="names of guards (all)")
    parser.add_argument("--workers", type=int, default=2, help="how many at once, each with a copy (2); 0 is one")
    parser.add_argument("--skip-baseline", action="store_true", help="do not run the tests once without a patch")
    parser.add_argument("--why", action="store_true", help="show the first line of what each test said")
    options = parser.parse_args()
    known = {guard.name: guard for guard in GUARDS}
    unknown = [name for name in options.names if name not in known]
    if unknown:
        parser.error(f"no such guard: expected some of {', '.join(known)}; found {', '.join(unknown)}")
    guards = [known[name] for name in options.names] or list(GUARDS)
    problems = stale(guards)
    if problems:
        _say("\n\n".join(problems))
        return 1
    for number in (signal.SIGINT, signal.SIGTERM):  # a shell's background job, and all it starts, ignores the first
        signal.signal(number, _interrupt)
    try:
        with TemporaryDirectory(prefix="tidemark-guards-", ignore_cleanup_errors=True) as folder:
            copies = [Copy(Path(folder) / str(number)) for number in range(min(max(options.workers, 1), len(guards)))]
            return run(guards, copies, baseline=not options.skip_baseline, show_why=options.why)
    except KeyboardInterrupt as interrupt:
        _say(f"stopped by {interrupt}")
        return 130


if __name__ == "__main__":
    sys.exit(main())
