//! Rewriting of damaged objects: the scanner can read what comes out, and bytes behind the place up
//! to which the object was looked at have no part in it.
#![no_main]

use libfuzzer_sys::fuzz_target;
use traceparse::fuzzing;

fuzz_target!(|input: &[u8]| {
    let [boundaries, bytes @ ..] = input else { return };
    let boundaries = usize::from(boundaries % 4);
    let (json, reached) = fuzzing::rewrite_event(bytes, boundaries);
    assert!(reached <= bytes.len());
    if let Some(json) = &json {
        assert!(fuzzing::is_object(json), "{:?}", String::from_utf8_lossy(json));
    }
    let seen = &bytes[..bytes.len().min(reached + fuzzing::LOOKAHEAD)];
    assert_eq!(fuzzing::rewrite_event(seen, boundaries), (json, reached));
});
