use super::tiny::{Tiny, all, texts};
use crate::schema::{DeviceRow, MetadataRow};
use crate::tracks::Ident;

fn metadata(t: &mut Tiny, track: u32, name: &str, value: &str) {
    let (row, name, value) = (t.next_row(), Some(t.text(name)), Some(t.text(value)));
    t.trace.tables.metadata.push(MetadataRow { row, name, track, start_ns: None, value });
}

#[test]
fn threads_take_the_last_name_of_each_kind() {
    let mut t = Tiny::default();
    let (first, second) = (t.track(7), t.track(8));
    metadata(&mut t, first, "process_name", "old");
    metadata(&mut t, second, "process_name", "python");
    metadata(&mut t, first, "process_labels", "CPU");
    metadata(&mut t, first, "thread_name", "thread 7");
    metadata(&mut t, first, "thread_sort_index", "-3");
    metadata(&mut t, first, "process_sort_index", "9");
    let text = t.text("stream 7");
    let odd = t.trace.tracks.number((Ident::Int(0), Ident::Text(text)));
    metadata(&mut t, odd, "thread_sort_index", "no number");
    let trace = t.link();
    let threads = &trace.tables.threads;
    assert_eq!(texts(&trace, &threads.process_name), [Some("python"), Some("python"), None]);
    assert_eq!(texts(&trace, &threads.process_label), [Some("CPU"), Some("CPU"), None]);
    assert_eq!(texts(&trace, &threads.thread_name), [Some("thread 7"), None, None]);
    assert_eq!(all(&threads.sort_index), [Some(-3), None, None]);
    assert_eq!(all(&threads.pid), [Some(1), Some(1), Some(0)]);
    assert_eq!(all(&threads.tid), [Some(7), Some(8), None]);
    assert_eq!(texts(&trace, &threads.tid_text), [None, None, Some("stream 7")]);
    assert_eq!(all(&trace.tables.metadata.tid)[5..], [Some(7), None]);
}

#[test]
fn devices_that_only_events_mention_are_added() {
    let mut t = Tiny::default();
    t.trace.tables.devices.push(DeviceRow { device: 0, sm_count: Some(80), ..Default::default() });
    t.kernel("k", 0..1, 1, 0);
    for device in [Some(3), Some(-1), None, Some(2), Some(3)] {
        let mut row = crate::schema::SyncRow { row: t.next_row(), ..Default::default() };
        row.device = device;
        t.trace.tables.syncs.push(row);
    }
    let trace = t.link();
    assert_eq!(all(&trace.tables.devices.device), [Some(0), Some(2), Some(3)]);
    assert_eq!(all(&trace.tables.devices.sm_count), [Some(80), None, None]);
}
