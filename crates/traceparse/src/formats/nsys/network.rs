//! Metrics of network devices.

use super::capture::Feature;
use super::recording::{Builder, Source};
use crate::formats::sqlite::cells::Cells;
use crate::formats::sqlite::source::columns;
use crate::schema::{CounterRow, Tables};

columns! { Metric {
    START = "start" Required,
    END = "end" Required,
    DEVICE = "globalId" Usual,
    LIST = "metricsListId" Usual,
    INDEX = "metricsIdx" Usual,
    VALUE = "value" Required,
} }

/// Metrics of network interfaces.
pub(super) static INTERFACES: Source =
    Source::new("NET_NIC_METRIC", "counters", Feature::Any, Metric::ALL, |builder, cells, tables| {
        push_metric(builder, cells, tables, "NIC")
    });

/// Metrics of switches, which have a GUID and no name.
pub(super) static SWITCHES: Source =
    Source::new("NET_IB_SWITCH_METRIC", "counters", Feature::Any, Metric::ALL, |builder, cells, tables| {
        push_metric(builder, cells, tables, "switch")
    });

fn push_metric(
    builder: &mut Builder<'_, '_>,
    cells: &mut Cells<'_, '_>,
    tables: &mut Tables,
    kind: &'static str,
) -> bool {
    let Some((start_ns, dur_ns)) = cells.extent(Metric::START, Metric::END) else { return false };
    let id = cells.int(Metric::DEVICE).unwrap_or(0);
    let network = &builder.recorder.machine.network;
    let device = builder.coded(kind, id, |id| network.device(kind, id));
    let list = cells.int(Metric::LIST).unwrap_or(0);
    let index = cells.int(Metric::INDEX).unwrap_or(0);
    // Both numbers are small: together they are one code.
    let code = list.wrapping_mul(1 << 16).wrapping_add(index);
    let counter = builder.coded("network metric", code, |_| network.metric(list, index));
    tables.counters.push(CounterRow {
        row: cells.number,
        name: Some(device),
        category: Some(builder.label("network_metrics")),
        track: builder.tracks.named(device),
        start_ns,
        dur_ns,
        counter,
        value: cells.real(Metric::VALUE),
        ..Default::default()
    });
    true
}
