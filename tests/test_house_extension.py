"""A new table is one declaration and one attribute, a new format one folder and one line."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

TABLE = """
table! {
    /// A line of a file of notes.
    Notes, NoteRow, "notes";
    recorded {
        /// Position of the line.
        row: u32 as row,
        /// Number of the track that the note is of.
        track: u32 as track,
        /// The line.
        text: Symbol,
    }
    derived {}
}
"""

FORMAT = """//! Files of notes: a first line `#notes`, then one note a line.

use super::format::{Format, Opened};
use crate::error::Result;
use crate::options::ReadOptions;
use crate::schema::NoteRow;
use crate::trace::Trace;
use crate::tracks::Ident;

pub(crate) const FORMAT: NotesFile = NotesFile;

pub(crate) struct NotesFile;

impl Format for NotesFile {
    fn name(&self) -> &'static str {
        "notes"
    }

    fn takes(&self, file: &Opened<'_>) -> bool {
        file.head().starts_with(b"#notes\\n")
    }

    fn read(&self, file: Opened<'_>, _: &ReadOptions) -> Result<Trace> {
        let bytes = file.into_bytes()?;
        let mut trace = Trace::default();
        for (row, line) in String::from_utf8_lossy(&bytes.head).lines().skip(1).enumerate() {
            let text = trace.symbols.intern(line);
            let track = trace.tracks.number((Ident::Int(9 - row as i64), Ident::Missing));
            trace.tables.notes.push(NoteRow { row: row as u32, track, text });
        }
        // What the declaration alone says about the columns: rows shift, tracks are renumbered.
        trace.tables.shift_rows(100);
        trace.tables.renumber_tracks(&trace.tracks.sort(&trace.symbols));
        Ok(trace)
    }
}
"""


def _add_line(path: Path, before: str, line: str) -> None:
    text = path.read_text()
    assert text.count(before) == 1
    path.write_text(text.replace(before, line + before))


@pytest.fixture(scope="module")
def extended(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the project with a new table and a new format, built."""
    copy = tmp_path_factory.mktemp("extended")
    for name in ("Cargo.toml", "Cargo.lock"):
        shutil.copy(ROOT / name, copy)
    ignored = shutil.ignore_patterns("target", "*.so", "__pycache__")
    for name in ("crates", "python"):
        shutil.copytree(ROOT / name, copy / name, ignore=ignored)
    source = copy / "crates/traceparse/src"
    with (source / "schema/context.rs").open("a") as tables:
        tables.write(TABLE)
    _add_line(source / "schema/mod.rs", "    diagnostics: Diagnostics,", "    notes: Notes,\n")
    _add_line(
        copy / "python/kernelscope/trace.py", "    diagnostics: pl.DataFrame\n", "    notes: pl.DataFrame\n"
    )
    (source / "formats/notes").mkdir()
    (source / "formats/notes/mod.rs").write_text(FORMAT)
    _add_line(source / "formats/mod.rs", "    nvprof,\n", "    notes,\n")
    # Under a name of its own, beside the library of the project, whose compiled dependencies it takes.
    binding = copy / "crates/traceparse-py/Cargo.toml"
    binding.write_text(binding.read_text().replace('name = "_traceparse"', 'name = "extended"'))
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    build = "cargo build --quiet --offline --profile checked --package traceparse-py".split()
    crates = [path.name for path in (copy / "crates").iterdir() if path.name != "fuzz"]
    quickly = [f"--config=profile.checked.package.{name}.opt-level=0" for name in crates]
    subprocess.run([*build, *quickly, "--target-dir", target], cwd=copy, check=True)
    library = max(target.glob("checked/libextended.*"), key=lambda path: path.suffix in {".so", ".dylib"})
    shutil.copy(library, copy / "python/kernelscope/_traceparse.abi3.so")
    return copy


def _answer(extended: Path, tmp_path: Path, question: str) -> str:
    path = tmp_path / "a.notes"
    path.write_text("#notes\nfirst\nsecond\n")
    program = f"import kernelscope as ks\ntrace = ks.read({str(path)!r})\nprint({question})"
    environment = {**os.environ, "PYTHONPATH": str(extended / "python")}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program],
        env=environment, cwd=tmp_path, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return done.stdout.strip()


@pytest.mark.slow
def test_a_new_table_is_one_declaration_and_one_attribute(extended: Path, tmp_path: Path) -> None:
    assert _answer(extended, tmp_path, "trace.notes.rows()") == "[(100, 1, 'first'), (101, 0, 'second')]"
    roles = "[(c.name, c.role) for c in ks.schema.table('notes').columns]"
    assert _answer(extended, tmp_path, roles) == "[('row', 'row'), ('track', 'track'), ('text', None)]"


@pytest.mark.slow
def test_a_new_format_is_one_folder_and_one_line(extended: Path, tmp_path: Path) -> None:
    question = "trace.meta.format, trace.threads['pid'].to_list()"
    assert _answer(extended, tmp_path, question) == "notes [8, 9]"
