//! Stores what was found as columns.

use super::NONE;
use super::gpu::{GpuLinks, Link};
use super::names::module_name;
use super::phases::Phase;
use super::python::Callers;
use super::threads::{self, Idents};
use super::{CallLinks, OpLinks};
use crate::schema::{Column, PythonFrames, StepRow, Symbol, SymbolTable, Tables};
use crate::trace::Trace;

/// Fills the derived columns and tables.
pub(super) fn store(trace: &mut Trace, ops: OpLinks, calls: CallLinks, callers: &Callers) {
    let Trace { tables, symbols, tracks, .. } = trace;
    store_idents(tables, &Idents::new(tracks));
    tables.threads = threads::threads(&tables.metadata, tracks, symbols);
    threads::add_used_devices(tables);
    store_calls(tables, symbols, calls);
    store_ops(tables, symbols, ops);
    tables.python.parent_row = rows(&callers.parents, &tables.python.row);
}

fn store_idents(tables: &mut Tables, idents: &Idents) {
    macro_rules! fill {
        ($($table:ident),*) => {
            $( (tables.$table.pid, tables.$table.tid) = idents.columns(&tables.$table.track); )*
        };
    }
    fill!(ops, launches, python, memory, counters, instants, flows, spans, metadata);
}

/// Row numbers of indices; [`NONE`] becomes null.
fn rows(indices: &[u32], rows: &Column<u32>) -> Column<u32> {
    let numbers = rows.values();
    // No row has this number: a source has fewer events.
    Column::from_sentinel(
        indices.iter().map(|&i| numbers.get(i as usize).copied().unwrap_or(NONE)).collect(),
        NONE,
    )
}

fn store_ops(tables: &mut Tables, symbols: &mut SymbolTable, found: OpLinks) {
    let Tables { ops, python, .. } = tables;
    ops.parent_row = rows(&found.tree.parents, &ops.row);
    ops.depth = Column::from_values(found.tree.depths);
    ops.forward_row = rows(&found.forwards, &ops.row);
    let phases = Phase::intern(symbols);
    ops.phase = Column::from_values(found.phases.iter().map(|&phase| phases[phase as usize]).collect());
    ops.module = module_names(python, symbols, &found.modules);
    ops.module_row = rows(&found.modules, &python.row);
}

fn module_names(python: &PythonFrames, symbols: &mut SymbolTable, modules: &[u32]) -> Column<Symbol> {
    let mut shortened: Vec<Option<Symbol>> = vec![None; symbols.len()];
    let mut name = |frame: u32| {
        let full = python.name.get(frame as usize)?;
        let short = &mut shortened[full.index()];
        if short.is_none() {
            let text = module_name(symbols.text(full)).to_owned();
            *short = Some(symbols.intern(&text));
        }
        *short
    };
    modules.iter().map(|&frame| if frame == NONE { None } else { name(frame) }).collect()
}

fn store_calls(tables: &mut Tables, symbols: &mut SymbolTable, calls: CallLinks) {
    store_steps(tables, &calls);
    let Tables { ops, launches, gpu_ops, syncs, gpu_annotations, memory, .. } = tables;
    let CallLinks { steps, .. } = &calls;
    ops.step = steps.numbers(ops.start_ns.values().iter().map(|&start| steps.at(start)));
    memory.step = steps.numbers(memory.start_ns.values().iter().map(|&at| steps.at(at)));
    launches.step = steps.numbers(calls.launch_steps.iter().copied());
    launches.op_row = rows(&calls.launch_ops, &ops.row);
    gpu_ops.step = steps.numbers(calls.gpu_steps.iter().copied());
    syncs.launch_row = rows(&calls.sync_launches, &launches.row);
    gpu_annotations.op_row = rows(&calls.annotation_ops, &ops.row);
    let GpuLinks { launches: launch_indices, ops: op_indices, links } = calls.gpu;
    gpu_ops.launch_row = rows(&launch_indices, &launches.row);
    gpu_ops.op_row = rows(&op_indices, &ops.row);
    let names = Link::intern(symbols);
    gpu_ops.link = Column::from_values(links.into_iter().map(|link| names[link as usize]).collect());
    gpu_ops.is_communication = Column::from_values(calls.is_communication);
}

fn store_steps(tables: &mut Tables, calls: &CallLinks) {
    let rows = &tables.ops.row;
    for ((host, span), parts) in calls.steps.hosts.iter().zip(&calls.spans).zip(&calls.parts) {
        let &[
            kernel_ns,
            memcpy_ns,
            memset_ns,
            communication_ns,
            runtime_ns,
            dataloader_ns,
            cpu_exec_ns,
            other_ns,
        ] = parts;
        tables.steps.push(StepRow {
            step: host.number,
            name: host.name,
            row: host.op.and_then(|op| rows.get(op as usize)),
            start_ns: span.start,
            total_ns: span.end.saturating_sub(span.start),
            host_start_ns: host.start,
            host_dur_ns: host.end.saturating_sub(host.start),
            is_partial: span.is_partial,
            kernel_ns,
            memcpy_ns,
            memset_ns,
            communication_ns,
            runtime_ns,
            dataloader_ns,
            cpu_exec_ns,
            other_ns,
        });
    }
}
