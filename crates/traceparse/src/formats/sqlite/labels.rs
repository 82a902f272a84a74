//! Texts of codes, as CUPTI numbers them.

/// Kinds of synchronisation (`CUpti_ActivitySynchronizationType`), by number.
pub(crate) const SYNC_KINDS: [&str; 5] =
    ["Unknown", "Event sync", "Stream wait sync", "Stream sync", "Context sync"];

/// What stands for no stream and no event in synchronisations.
pub(crate) const NO_ID: i64 = u32::MAX as i64;

/// Directions of copies (`CUpti_ActivityMemcpyKind`, and behind them the migrations of
/// `ENUM_CUDA_MEMCPY_OPER`), by number.
pub(crate) const DIRECTIONS: [&str; 14] = [
    "Unknown",
    "Host-to-Device",
    "Device-to-Host",
    "Host-to-Array",
    "Array-to-Host",
    "Array-to-Array",
    "Array-to-Device",
    "Device-to-Array",
    "Device-to-Device",
    "Host-to-Host",
    "Peer-to-Peer",
    "Unified Host-to-Device",
    "Unified Device-to-Host",
    "Unified Device-to-Device",
];

/// The text of `code` in `list`; one that is newer than the list is `what` and its number.
pub(crate) fn listed(list: &[&str], code: i64, what: &str) -> String {
    let known = usize::try_from(code).ok().and_then(|code| list.get(code));
    known.map_or_else(|| format!("{what} {code}"), |&text| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_code_is_its_number() {
        assert_eq!(listed(&SYNC_KINDS, 4, "sync type"), "Context sync");
        assert_eq!(listed(&SYNC_KINDS, 5, "sync type"), "sync type 5");
        assert_eq!(listed(&SYNC_KINDS, -1, "sync type"), "sync type -1");
    }
}
