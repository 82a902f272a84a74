//! Small graphs, and work that is theirs, nearly theirs, or another's.

use super::choosing::{Choice, choose};
use super::fitting::{COPY, NAMED, Pattern, UNNAMED, Work, fit_in_part, fit_whole};
use super::graphs::Graph;
use super::replays::{Replay as Launch, Replays};
use crate::link::NONE;
use crate::link::names::Replay;
use crate::schema::{CapturedNodeRow, CapturedOpRow, Symbol, SymbolTable};

/// Tokens of the letters of a text; `.` is a kernel without a name, `=` a copy.
fn tokens(text: &str) -> Vec<u32> {
    let token = |c: char| match c {
        '.' => UNNAMED,
        '=' => COPY,
        c => NAMED + u32::from(c),
    };
    text.chars().map(token).collect()
}

fn work(text: &str, streams: Option<&[u32]>) -> Work {
    Work { tokens: tokens(text), streams: streams.map(<[u32]>::to_vec), grids: Vec::new() }
}

fn pattern(text: &str) -> Pattern {
    let expected = vec![Vec::new(); text.len()];
    Pattern { tokens: tokens(text), expected, grids: Vec::new(), is_complete: true }
}

/// The nodes of work as text: a digit or letter for each, `-` where it is not sure.
fn nodes(nodes: &[u32]) -> String {
    let digit = |&node: &u32| if node == NONE { '-' } else { char::from_digit(node, 36).unwrap() };
    nodes.iter().map(digit).collect()
}

#[test]
fn equal_work_is_the_graph_node_for_node() {
    let fit = fit_whole(&work("abab=", None), &pattern("abab="), 7).unwrap();
    assert_eq!((fit.graph, fit.how, nodes(&fit.nodes).as_str()), (7, Replay::Exact, "01234"));
    for other in ["abab", "abba=", "abab=a", "ababa"] {
        assert!(fit_whole(&work(other, None), &pattern("abab="), 0).is_none(), "{other}");
    }
    let mut cut = pattern("abab=");
    cut.is_complete = false;
    assert!(fit_whole(&work("abab=", None), &cut, 0).is_none());
}

#[test]
fn another_grid_is_another_node() {
    let mut replayed = work("ab", None);
    replayed.grids = vec![Some([8, 1, 1]), None];
    let mut captured = pattern("ab");
    captured.grids = vec![Some([8, 1, 1]), Some([4, 1, 1])];
    assert!(fit_whole(&replayed, &captured, 0).is_some());
    captured.grids[0] = Some([4, 1, 1]);
    assert!(fit_whole(&replayed, &captured, 0).is_none());
}

#[test]
fn on_several_streams_only_what_has_one_place_is_sure() {
    // Stream 0 runs a, b and d, stream 1 runs c: whenever c starts.
    let fit = fit_whole(&work("cabd", Some(&[1, 0, 0, 0])), &pattern("abcd"), 0).unwrap();
    assert_eq!((fit.how, nodes(&fit.nodes).as_str()), (Replay::Exact, "2013"));
    // Both run an x, and either may be either, also where time has the order of the capture.
    let fit = fit_whole(&work("xxab", Some(&[0, 1, 0, 1])), &pattern("xxab"), 0).unwrap();
    assert_eq!((fit.how, nodes(&fit.nodes).as_str()), (Replay::Aligned, "--23"));
    // What is before a on its stream is the first x.
    let fit = fit_whole(&work("xaxb", Some(&[0, 0, 1, 1])), &pattern("xaxb"), 0).unwrap();
    assert_eq!(nodes(&fit.nodes), "0123");
    // A stream keeps the order of the capture.
    assert!(fit_whole(&work("bacd", Some(&[0, 0, 1, 0])), &pattern("abcd"), 0).is_none());
}

#[test]
fn what_is_missing_leaves_the_rest_sure() {
    let whole = "abcdefghijklmnopqrstuvwxyz";
    let fit = fit_in_part(&work(&whole.replace('k', ""), None), &pattern(whole), 0).unwrap();
    assert_eq!((fit.how, fit.edits, fit.nodes[9], fit.nodes[10]), (Replay::Aligned, 1, 9, 11));
    // One of three equal neighbours is missing: nobody knows which.
    let fit =
        fit_in_part(&work("abcdexxfghijklmnopqrst", None), &pattern("abcdexxxfghijklmnopqrst"), 0).unwrap();
    assert_eq!(nodes(&fit.nodes), "01234--89abcdefghijklm");
    // Another graph that has much in common.
    assert!(
        fit_in_part(&work("abcabcabcabcabcabcabcabcabc", None), &pattern("ababababababababab"), 0).is_none()
    );
    assert!(fit_in_part(&work("abc", None), &pattern("abcd"), 0).is_none());
}

#[test]
fn alignments_are_those_of_all_ways() {
    // A slow twin: every common subsequence of the greatest length.
    fn ways(
        a: &[u32],
        b: &[u32],
        from: (usize, usize),
        way: &mut Vec<(usize, usize)>,
        found: &mut Vec<Vec<(usize, usize)>>,
    ) {
        found.push(way.clone());
        for x in from.0..a.len() {
            for y in from.1..b.len() {
                if a[x] == b[y] {
                    way.push((x, y));
                    ways(a, b, (x + 1, y + 1), way, found);
                    way.pop();
                }
            }
        }
    }
    let mut state = 1_u32;
    let mut random = |below: u32| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 16) % below
    };
    for _ in 0..300 {
        let graph: String = (0..9).map(|_| char::from(b'a' + random(5) as u8)).collect();
        let mut replayed: Vec<char> = graph.chars().collect();
        match random(3) {
            0 => drop(replayed.remove(random(9) as usize)),
            1 => replayed.insert(random(9) as usize, char::from(b'a' + random(5) as u8)),
            _ => {}
        }
        let replayed: String = replayed.into_iter().collect();
        let (a, b) = (tokens(&replayed), tokens(&graph));
        let mut found = Vec::new();
        ways(&a, &b, (0, 0), &mut Vec::new(), &mut found);
        let longest = found.iter().map(Vec::len).max().unwrap();
        found.retain(|way| way.len() == longest);
        let fit = fit_in_part(&work(&replayed, None), &pattern(&graph), 0).unwrap();
        for at in 0..a.len() {
            let of = |way: &Vec<(usize, usize)>| way.iter().find(|(x, _)| *x == at).map(|&(_, y)| y as u32);
            let first = of(&found[0]);
            let is_sure = found.iter().all(|way| of(way) == first);
            assert_eq!(
                fit.nodes[at],
                first.filter(|_| is_sure).unwrap_or(NONE),
                "{replayed} in {graph} at {at}"
            );
        }
    }
}

#[test]
fn of_a_capture_that_was_cut_off_the_beginning_is_known() {
    let mut cut = pattern("abcdefghijklmnop");
    cut.is_complete = false;
    let fit = fit_in_part(&work("abcdefghijklmnopqrs", None), &cut, 0).unwrap();
    assert_eq!(nodes(&fit.nodes), "0123456789abcdef---");
    assert!(fit_in_part(&work("xbcdefghijklmnopqrs", None), &cut, 0).is_none());
    assert!(fit_in_part(&work(&"abcdefghijklmnop".repeat(9), None), &cut, 0).is_none(), "too little of it");
}

#[test]
fn nameless_nodes_fit_by_what_their_operators_launch() {
    let mut nameless = pattern("..=.");
    let name = |c: char| vec![(NAMED + u32::from(c), None)];
    nameless.expected = vec![name('a'), name('b'), Vec::new(), Vec::new()];
    let fit = fit_whole(&work("ab=c", None), &nameless, 0).unwrap();
    assert_eq!((fit.how, nodes(&fit.nodes).as_str()), (Replay::Inferred, "0123"));
    for other in ["ba=c", "abc=", "ab=", "ab=="] {
        assert!(fit_whole(&work(other, None), &nameless, 0).is_none(), "{other}");
    }
    nameless.expected = vec![Vec::new(); 4];
    assert!(fit_whole(&work("ab=c", None), &nameless, 0).is_none(), "so few may be any");
    assert!(fit_whole(&work(&"a".repeat(40), None), &pattern(&".".repeat(40)), 0).is_some());
}

#[test]
fn nameless_nodes_fit_by_the_grids_that_their_operators_launch() {
    let mut nameless = pattern("..");
    let kernel = |c: char, grid: i32| (NAMED + u32::from(c), Some([grid, 1, 1]));
    nameless.expected = vec![vec![kernel('a', 8), kernel('a', 4), kernel('c', 2)], vec![kernel('b', 1)]];
    let fits = |name: &str, grids: [Option<i32>; 2]| {
        let mut replayed = work(name, None);
        replayed.grids = grids.map(|grid| grid.map(|grid| [grid, 1, 1])).to_vec();
        fit_whole(&replayed, &nameless, 0).is_some()
    };
    assert!(fits("ab", [Some(8), Some(1)]) && fits("ab", [Some(4), None]) && fits("cb", [Some(2), Some(1)]));
    assert!(
        !fits("ab", [Some(2), Some(1)]) && !fits("cb", [Some(8), Some(1)]) && !fits("ab", [None, Some(2)])
    );
}

#[test]
fn nameless_nodes_fit_on_several_streams_if_each_has_one_name() {
    let name = |c: char| vec![(NAMED + u32::from(c), None)];
    let mut nameless = pattern("...=");
    nameless.expected = vec![name('a'), name('b'), name('c'), Vec::new()];
    let fit = fit_whole(&work("cab=", Some(&[1, 0, 0, 0])), &nameless, 0).unwrap();
    assert_eq!((fit.how, nodes(&fit.nodes).as_str()), (Replay::Inferred, "2013"));
    nameless.expected[2].push((NAMED + u32::from('d'), None));
    assert!(fit_whole(&work("cab=", Some(&[1, 0, 0, 0])), &nameless, 0).is_none(), "c or d");
}

/// A captured graph of kernels named by the letters of `kernels`, each with an operator with `dims`.
fn graph(symbols: &mut SymbolTable, name: &str, size: Option<i64>, kernels: &str, dims: &str) -> Graph {
    let mut graph = Graph::default();
    (graph.row.name, graph.row.batch_size, graph.row.dur_ns) = (Some(symbols.intern(name)), size, Some(1));
    for (at, kernel) in (0_u32..).zip(kernels.chars()) {
        let op = CapturedOpRow { row: at, input_dims: Some(symbols.intern(dims)), ..Default::default() };
        graph.ops.push(op);
        let (kind, name): (Symbol, _) = (symbols.intern("kernel"), Some(symbols.intern(&kernel.to_string())));
        graph.nodes.push(CapturedNodeRow {
            kind: Some(kind),
            name,
            captured_op_row: Some(at),
            ..Default::default()
        });
    }
    graph.expected = vec![Vec::new(); graph.nodes.len()];
    graph
}

/// The graphs that launches with work, and sizes around them, replayed; none where it is not sure.
fn chosen(graphs: &[(&str, Option<i64>, &str, &str)], launches: &[(&str, &[i64])]) -> Vec<Option<u32>> {
    let mut symbols = SymbolTable::default();
    let captured: Vec<Graph> = graphs
        .iter()
        .map(|(name, size, kernels, dims)| graph(&mut symbols, name, *size, kernels, dims))
        .collect();
    let patterns: Vec<Pattern> = graphs.iter().map(|(_, _, kernels, _)| pattern(kernels)).collect();
    let mut replays = Replays::default();
    for (at, (kernels, sizes)) in (0_u32..).zip(launches) {
        replays.replays.push(Launch {
            track: 0,
            start: i64::from(at),
            work: Vec::new(),
            kind: at,
            sizes: at,
        });
        replays.works.push(work(kernels, None));
        replays.sizes.push(sizes.to_vec());
    }
    let graph = |choice| if let Choice::One(fit) = choice { Some(fit.graph) } else { None };
    choose(&replays, &captured, &patterns).into_iter().map(graph).collect()
}

#[test]
fn the_batch_size_decides_between_graphs_that_fit() {
    let graphs = [("g16", Some(16), "abc", "[16]"), ("g32", Some(32), "abc", "[32]")];
    assert_eq!(chosen(&graphs, &[("abc", &[32]), ("abc", &[16]), ("abc", &[])]), [Some(1), Some(0), None]);
    // Padded to the next size, where the smaller one was captured; else the right one may be missing.
    assert_eq!(chosen(&graphs, &[("abc", &[20])]), [Some(1)]);
    assert_eq!(chosen(&graphs[1..], &[("abc", &[20])]), [None]);
    assert_eq!(chosen(&graphs, &[("abc", &[40])]), [None]);
    // A capture of which the size is not known may be the one.
    assert_eq!(chosen(&[("g", None, "abc", "[32]")], &[("abc", &[32])]), [Some(0)]);
}

#[test]
fn graphs_that_say_the_same_are_one() {
    let twice = [("g", None, "abc", "[32]"), ("other", None, "abc", "[32]")];
    assert_eq!(chosen(&twice, &[("abc", &[])]), [Some(0)]);
    let differing = [("g", None, "abc", "[32]"), ("other", None, "abc", "[16]")];
    assert_eq!(chosen(&differing, &[("abc", &[])]), [None]);
}

#[test]
fn pieces_are_replayed_in_turn() {
    let pieces = [
        ("g", None, "ab", "[1]"),
        ("g", None, "cd", "[2]"),
        ("g", None, "cd", "[3]"),
        ("g", None, "e", "[4]"),
    ];
    let step: [(&str, &[i64]); 4] = [("ab", &[]), ("cd", &[]), ("cd", &[]), ("e", &[])];
    let twice: Vec<_> = step.iter().chain(&step).copied().collect();
    let turn = [Some(0), Some(1), Some(2), Some(3)];
    assert_eq!(chosen(&pieces, &twice), [turn, turn].concat());
    // A recording that begins in the middle.
    assert_eq!(chosen(&pieces, &twice[2..]), [&turn[2..], &turn].concat());
    // Two sizes whose pieces are alike but for one: of a turn without it nobody knows.
    let sizes = [
        ("g", None, "ab", "[1]"),
        ("g", None, "c", "[2]"),
        ("h", None, "ab", "[3]"),
        ("h", None, "d", "[4]"),
    ];
    let launches: [(&str, &[i64]); 5] = [("ab", &[]), ("c", &[]), ("ab", &[]), ("d", &[]), ("ab", &[])];
    assert_eq!(chosen(&sizes, &launches[..2]), [Some(0), Some(1)]);
    assert_eq!(chosen(&sizes, &[launches[0], launches[1], launches[4]]), [Some(0), Some(1), None]);
    // One alone of two that are alike is not known.
    assert_eq!(chosen(&pieces, &step[1..2]), [None]);
}
