"""What a machine must have before any other test means something; these run first, each with what to do."""

import os
import shutil
import stat
import subprocess
import tempfile
from pathlib import Path

from tidemark.spark.java_command import java_command
from tidemark.stack.files import PORTS

FREE_GB = 10


def test_there_is_enough_free_disk_space() -> None:
    for folder in (tempfile.gettempdir(), "."):
        free_gb = shutil.disk_usage(folder).free / 1e9
        assert free_gb >= FREE_GB, f"make room: {free_gb:.1f} GB are free for {folder}, a run needs up to {FREE_GB}"


def test_any_user_may_enter_the_folder_for_temporary_files() -> None:
    folder = Path(tempfile.gettempdir()).resolve()
    closed = [str(path) for path in (folder, *folder.parents) if not path.stat().st_mode & stat.S_IXOTH]
    assert closed == [], f"set TMPDIR to another folder: PostgreSQL runs as user nobody, who can't enter {closed}"


def test_javas_file_names_are_in_utf_8() -> None:
    command = [java_command(), "-XshowSettings:properties", "-version"]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    (encoding,) = (line.partition("=")[2].strip() for line in shown.splitlines() if "sun.jnu.encoding" in line)
    variables = {name: text for name, text in os.environ.items() if name.startswith(("LANG", "LC_"))}
    assert encoding == "UTF-8", f"set LC_ALL=C.UTF-8: Java's file names are in {encoding}, by {variables}"


def test_outgoing_connections_take_no_port_of_a_server() -> None:
    first = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text(encoding="ascii").split()[0])
    assert first >= PORTS.stop, f"set net.ipv4.ip_local_port_range to begin at {PORTS.stop} or above: it is {first}"
