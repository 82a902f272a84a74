//! Texts of codes, as CUPTI numbers them.

/// Kinds of synchronisation (`CUpti_ActivitySynchronizationType`), by number.
pub(crate) const SYNC_KINDS: [&str; 5] =
    ["Unknown", "Event sync", "Stream wait sync", "Stream sync", "Context sync"];

/// The text of `code` in `list`; one that is newer than the list is what it is and its number.
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
