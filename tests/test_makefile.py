"""Rust for machines that have none, or an older one."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
TOOLS = ("awk", "bash", "chmod", "cut", "date", "find", "make", "mkdir", "rm", "sort", "touch")
STAMP = ".venv/.stamps/rust"
MESSAGE = "Rust is needed: install a toolchain with cargo, version 1.88 or later.\n"
INSTALLER = """#!/usr/bin/env bash
# In place of Python: installs what puccinialin would, or has no network.
[ -n "${OFFLINE:-}" ] && { echo "no network" >&2; exit 1; }
case "$*" in *puccinialin*)
  mkdir -p .venv/rust/cargo/bin
  printf '#!/usr/bin/env bash\\necho "rustup $* $RUSTUP_HOME"\\n' >.venv/rust/cargo/bin/rustup
  printf '#!/usr/bin/env bash\\necho "cargo 1.99.1"\\n' >.venv/rust/cargo/bin/cargo
  chmod +x .venv/rust/cargo/bin/*
esac
"""

pytestmark = pytest.mark.skipif(
    any(shutil.which(tool) is None for tool in TOOLS), reason="make or a tool that it needs is not installed"
)


class Machine:
    """A checkout of the Makefile, with the tools that it needs and no others."""

    def __init__(self, root: Path) -> None:
        self.root, self.bin = root, root / "bin"
        for folder in (self.bin, root / "crates", root / "requirements", root / ".venv/bin"):
            folder.mkdir(parents=True)
        for tool in TOOLS:
            (self.bin / tool).symlink_to(str(shutil.which(tool)))
        for name in ("Makefile", "Cargo.toml", "requirements/rust.txt", "requirements/build.txt"):
            shutil.copy(ROOT / name, root / name)
        self.program(".venv/bin/python", INSTALLER)
        (root / ".venv/.stamps").mkdir()
        (root / ".venv/.stamps/venv").touch()

    def program(self, name: str, text: str) -> None:
        path = self.root / name
        path.write_text(text)
        path.chmod(0o755)

    def make(self, target: str = STAMP, **environment: str) -> subprocess.CompletedProcess[str]:
        shell = Path(str(shutil.which("bash"))).parent
        return subprocess.run(
            ["make", "SHELL=" + str(shell / "bash"), target],
            cwd=self.root,
            env={"PATH": f"{self.bin}", **environment},
            capture_output=True,
            text=True,
            check=False,
        )


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path / "checkout")


@pytest.mark.parametrize("version", [None, "1.70.0", "1.9.0", "1.87.2"])
def test_rust_is_installed_where_it_is_missing_or_too_old(machine: Machine, version: str | None) -> None:
    if version:
        machine.program("bin/cargo", f"#!/usr/bin/env bash\necho 'cargo {version} (abc 2024-01-01)'\n")
    done = machine.make()
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(
        "no Rust 1.88 or later is installed: downloading it into .venv/rust (155 MB;"
    )
    assert done.stdout.count("\n") == 1
    home = machine.root / ".venv/rust/rustup"
    assert (
        f"rustup component add clippy rustfmt {home}" in (machine.root / ".venv/.stamps/rust.log").read_text()
    )
    # Every later command finds it.
    with (machine.root / "Makefile").open("a") as makefile:
        makefile.write("\nprobe:\n\t@cargo --version; echo $$RUSTUP_HOME\n")
    assert machine.make("probe").stdout == f"cargo 1.99.1\n{home}\n"
    assert machine.make().stdout == f"make: '{STAMP}' is up to date.\n"


@pytest.mark.parametrize("version", ["1.88.0", "1.100.0", "2.0.0", "1.96.0-nightly"])
def test_rust_of_the_machine_is_used(machine: Machine, version: str) -> None:
    machine.program("bin/cargo", f"#!/usr/bin/env bash\necho 'cargo {version} (abc 2026-01-01)'\n")
    done = machine.make()
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert not (machine.root / ".venv/rust").exists()


def test_without_network_the_message_says_what_is_needed(machine: Machine) -> None:
    done = machine.make(OFFLINE="1")
    assert done.returncode != 0
    assert MESSAGE in done.stderr
    assert not (machine.root / STAMP).exists()
    assert machine.make().returncode == 0
