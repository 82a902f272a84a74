//! Steps of serving engines: what the names of the annotations around them, and around captures of their graphs,
//! tell. No other place knows how such names are written.

use super::names::Work;

impl Work {
    fn of(prompts: i64, decoding: i64) -> Option<Self> {
        match (prompts > 0, decoding > 0) {
            (true, true) => Some(Self::Mixed),
            (true, false) => Some(Self::Prefill),
            (false, true) => Some(Self::Decode),
            (false, false) => None,
        }
    }
}

/// What the name of an annotation tells of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct ServingStep {
    pub(super) work: Option<Work>,
    pub(super) requests: Option<i64>,
    /// Tokens that go through the model.
    pub(super) tokens: Option<i64>,
    /// Keys of all requests, those of earlier steps included.
    pub(super) key_tokens: Option<i64>,
    /// The lengths of prompts and of decoding requests, where the name has them all.
    pub(super) lengths: Option<[Lengths; 2]>,
}

/// Sums over requests: of queries q, of keys k, of q * q and of q * k.
pub type Lengths = [i64; 4];

impl ServingStep {
    /// What either of two annotations of one step tells.
    pub(super) fn or(self, other: Self) -> Self {
        Self {
            work: self.work.or(other.work),
            requests: self.requests.or(other.requests),
            tokens: self.tokens.or(other.tokens),
            key_tokens: self.key_tokens.or(other.key_tokens),
            lengths: self.lengths.or(other.lengths),
        }
    }
}

/// What a name tells, if it is that of a step of vLLM, SGLang, ATOM or TensorRT-LLM.
pub(super) fn serving_step(name: &str) -> Option<ServingStep> {
    if let Some(rest) = name.strip_prefix("execute_new_") {
        return of_counts(rest);
    }
    if let Some(rest) = name.strip_prefix("execute_") {
        return of_sums(rest);
    }
    if let Some(rest) = name.strip_prefix("step[") {
        return of_mode(rest.strip_suffix(']')?);
    }
    if let Some((phase, rest)) = name.split_once('[')
        && let "prefill" | "decode" = phase
    {
        return of_phase(phase, rest.strip_suffix(']')?);
    }
    if name.contains("_forward_step ") || name.contains("_forward_step:") {
        return of_executor(name);
    }
    None
}

/// vLLM before 0.11: `execute_new_3_cached_5`. Requests that are not new may still take in their prompt.
fn of_counts(rest: &str) -> Option<ServingStep> {
    let (new, cached) = rest.split_once("_cached_")?;
    let (new, cached): (i64, i64) = (new.parse().ok()?, cached.parse().ok()?);
    let work = Work::of(new, cached).filter(|_| new > 0);
    Some(ServingStep { work, requests: new.checked_add(cached), ..ServingStep::default() })
}

/// `execute_48_context_1(sq32sk32sqsq1024sqsk1024)_generation_16(sq16sk900sqsq16sqsk900)`, with sums over the
/// requests; the tokens in front, and all sums but the tokens, may be missing.
fn of_sums(rest: &str) -> Option<ServingStep> {
    let (before, rest) = rest.split_once("context_")?;
    let (prompts, decoding) = rest.strip_suffix(')')?.split_once(")_generation_")?;
    let (prompts, of_prompts) = prompts.split_once('(')?;
    let (decoding, of_decoding) = decoding.split_once('(')?;
    let (prompts, decoding): (i64, i64) = (prompts.parse().ok()?, decoding.parse().ok()?);
    let tokens = |text: &str| number(text.strip_prefix("sq").unwrap_or(text));
    let keys = |text: &str| number(text.split_once("sk")?.1);
    let both = |count: &dyn Fn(&str) -> Option<i64>| count(of_prompts)?.checked_add(count(of_decoding)?);
    let lengths = lengths(of_prompts).zip(lengths(of_decoding)).map(<[Lengths; 2]>::from);
    let told = before.strip_suffix('_').and_then(|count| count.parse().ok());
    Some(ServingStep {
        work: Work::of(prompts, decoding),
        requests: prompts.checked_add(decoding),
        tokens: told.or_else(|| both(&tokens)),
        key_tokens: both(&keys),
        lengths,
    })
}

/// SGLang: `step[DECODE bs=32]`, `step[EXTEND bs=15 toks=15360]`, in some versions with sums over the requests:
/// `step[MIXED bs=2 c=1 g=1 c_sq=5 c_sk=8 c_sqsq=25 c_sqsk=40 g_sq=1 g_sk=12 g_sqsq=1 g_sqsk=12]`.
fn of_mode(rest: &str) -> Option<ServingStep> {
    let mode = rest.split(' ').next()?;
    let work = match mode {
        "EXTEND" | "PREFILL" | "SPLIT_PREFILL" => Some(Work::Prefill),
        "DECODE" | "TARGET_VERIFY" => Some(Work::Decode),
        "MIXED" => Some(Work::Mixed),
        _ => None,
    };
    let requests = value(rest, "bs")?;
    let lengths = sums_of_groups(rest);
    let both = |at: usize| lengths.and_then(|[prompts, decoding]| prompts[at].checked_add(decoding[at]));
    // Without speculation a request decodes one token in a step; with it the mode is another, or sums tell.
    let tokens = value(rest, "toks").or_else(|| both(0)).or_else(|| (mode == "DECODE").then_some(requests));
    Some(ServingStep { work, requests: Some(requests), tokens, key_tokens: both(1), lengths })
}

/// The sums of prompts and of decoding requests; those of a group that is not there are 0.
fn sums_of_groups(rest: &str) -> Option<[Lengths; 2]> {
    let group = |keys: [&str; 4]| {
        let known = keys.map(|key| value(rest, key));
        match known {
            [None, None, None, None] => Some(None),
            [Some(q), Some(k), Some(qq), Some(qk)] => Some(Some([q, k, qq, qk])),
            _ => None,
        }
    };
    let prompts = group(["c_sq", "c_sk", "c_sqsq", "c_sqsk"])?;
    let decoding = group(["g_sq", "g_sk", "g_sqsq", "g_sqsk"])?;
    (prompts.is_some() || decoding.is_some())
        .then(|| [prompts.unwrap_or_default(), decoding.unwrap_or_default()])
}

/// ATOM: `prefill[bs=2 tok=14721 ctx=[7803, 6918]]`, `decode[bs=117/128 tok=117 d=117]` with the size of the graph
/// behind the requests, `decode[bs=128 tok=384 p=2 d=126 sqsq=132612 sqsk=1114112 sk=258048]` with prompts.
fn of_phase(phase: &str, rest: &str) -> Option<ServingStep> {
    let requests = value(rest, "bs")?;
    let work = match (phase, value(rest, "p")) {
        ("prefill", _) => Work::Prefill,
        (_, Some(1..)) => Work::Mixed,
        _ => Work::Decode,
    };
    Some(ServingStep {
        work: Some(work),
        requests: Some(requests),
        tokens: value(rest, "tok"),
        key_tokens: value(rest, "sk"),
        lengths: None,
    })
}

/// The number that begins the value of a key among words such as `bs=32`.
fn value(words: &str, key: &str) -> Option<i64> {
    words.split(' ').find_map(|word| number(word.strip_prefix(key)?.strip_prefix('=')?))
}

/// TensorRT-LLM: `[Executor] _forward_step 12: 3 ctx reqs, 5 gen reqs`, in some versions without the number of the step,
/// or with the tokens of prompts: `3 ctx reqs, 900 ctx tokens, 5 gen reqs`.
fn of_executor(name: &str) -> Option<ServingStep> {
    let count = |unit: &str| {
        let before = name.split_once(unit)?.0;
        before.rsplit(' ').next()?.parse::<i64>().ok()
    };
    let (prompts, decoding) = (count(" ctx reqs")?, count(" gen reqs")?);
    let requests = prompts.checked_add(decoding);
    // A decoding request takes more than one token with speculation, which the name does not tell.
    let tokens = count(" ctx tokens").filter(|_| decoding == 0);
    Some(ServingStep { work: Work::of(prompts, decoding), requests, tokens, ..ServingStep::default() })
}

/// The sums in `sq32sk900sqsq32sqsk900`, in `888_50000` (prompts without a past: tokens and their squares) and in `0`.
fn lengths(text: &str) -> Option<Lengths> {
    if text == "0" {
        return Some([0; 4]);
    }
    if let Some((tokens, squares)) = text.split_once('_') {
        let (tokens, squares) = (tokens.parse().ok()?, squares.parse().ok()?);
        return Some([tokens, tokens, squares, squares]);
    }
    let (q, rest) = text.strip_prefix("sq")?.split_once("sk")?;
    let (k, rest) = rest.split_once("sqsq")?;
    let (qq, qk) = rest.split_once("sqsk")?;
    let sums = [q, k, qq, qk].map(|sum| sum.parse().ok());
    Some([sums[0]?, sums[1]?, sums[2]?, sums[3]?])
}

/// The lengths of prompts and of decoding requests that the name of a step tells; empty if it is of the kind that
/// may tell them, and does not tell all.
#[must_use]
pub fn step_lengths(name: &str) -> Option<Vec<Lengths>> {
    match name.strip_prefix("execute_") {
        Some(rest) => Some(of_sums(rest)?.lengths.map(Vec::from).unwrap_or_default()),
        None => serving_step(name)?.lengths.map(Vec::from),
    }
}

/// The batch size that the name of an annotation around a capture tells, as `capture_32_DECODE` does.
pub(super) fn captured_size(name: &str) -> Option<i64> {
    let rest = name.strip_prefix("capture_").map(number);
    rest.unwrap_or_else(|| size_behind_mark(name))
}

/// The numbers of requests and tokens that the name of an annotation around a step tells: the batch size of the
/// graph that was launched in it is one of them, or the next larger one that was captured.
pub(super) fn step_sizes(name: &str) -> Vec<i64> {
    let mut sizes: Vec<i64> = size_behind_mark(name).into_iter().collect();
    if let Some(rest) = name.strip_prefix("execute_") {
        let told = number(rest).or_else(|| serving_step(name)?.tokens);
        sizes.extend(told);
    }
    sizes.retain(|&size| size > 0);
    sizes.dedup();
    sizes
}

/// The number behind `bs=`, as in `step[DECODE bs=32]`.
fn size_behind_mark(name: &str) -> Option<i64> {
    let (before, rest) = name.split_once("bs=")?;
    let begins_word = !before.ends_with(|c: char| c.is_alphanumeric() || c == '_');
    begins_word.then(|| number(rest)).flatten()
}

fn number(text: &str) -> Option<i64> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    text.get(..digits)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::{ServingStep, Work, captured_size, serving_step, step_lengths, step_sizes};

    fn step(work: Work, requests: i64, tokens: Option<i64>, key_tokens: Option<i64>) -> Option<ServingStep> {
        Some(ServingStep { work: Some(work), requests: Some(requests), tokens, key_tokens, lengths: None })
    }

    #[test]
    fn names_of_steps() {
        for (name, expected) in [
            (
                "execute_32_context_0(sq0sk0sqsq0sqsk0)_generation_32(sq32sk32785sqsq32sqsk32785)",
                step(Work::Decode, 32, Some(32), Some(32785)),
            ),
            ("execute_context_1(512)_generation_3(3)", step(Work::Mixed, 4, Some(515), None)),
            ("execute_context_2(888_50000)_generation_0(0)", step(Work::Prefill, 2, Some(888), None)),
            ("execute_new_2_cached_3", step(Work::Mixed, 5, None, None)),
            ("step[DECODE bs=32]", step(Work::Decode, 32, Some(32), None)),
            ("step[TARGET_VERIFY bs=4]", step(Work::Decode, 4, None, None)),
            ("step[EXTEND bs=15 toks=15360]", step(Work::Prefill, 15, Some(15360), None)),
            (
                "step[MIXED bs=2 c=1 g=1 c_sq=5 c_sk=8 c_sqsq=25 c_sqsk=40 g_sq=1 g_sk=12 g_sqsq=1 g_sqsk=12]",
                step(Work::Mixed, 2, Some(6), Some(20)),
            ),
            (
                "step[DECODE bs=64 g_sq=128 g_sqsq=256 g_sqsk=262144 g_sk=131072]",
                step(Work::Decode, 64, Some(128), Some(131_072)),
            ),
            ("step[DECODE bs=64 g_sq=128]", step(Work::Decode, 64, Some(64), None)),
            ("prefill[bs=2 tok=14721 ctx=[7803, 6918]]", step(Work::Prefill, 2, Some(14721), None)),
            ("prefill[bs=6 tok=17408 ctx=[4096, 4096]...+3]", step(Work::Prefill, 6, Some(17408), None)),
            ("decode[bs=117/128 tok=117 d=117]", step(Work::Decode, 117, Some(117), None)),
            (
                "decode[bs=128 tok=384 p=2 d=126 sqsq=132612 sqsk=1114112 sk=258048 tbo=1]",
                step(Work::Mixed, 128, Some(384), Some(258_048)),
            ),
            ("decode[batch]", None),
            ("prefill[", None),
            ("[Executor] _forward_step 12: 3 ctx reqs, 5 gen reqs", step(Work::Mixed, 8, None, None)),
            ("[Executor] _forward_step: 0 ctx reqs, 5 gen reqs", step(Work::Decode, 5, None, None)),
            (
                "[Executor] _forward_step 9: 2 ctx reqs, 90 ctx tokens, 0 gen reqs",
                step(Work::Prefill, 2, Some(90), None),
            ),
            (
                "[Executor] _forward_step 9: 2 ctx reqs, 90 ctx tokens, 1 gen reqs",
                step(Work::Mixed, 3, None, None),
            ),
            ("execute_model", None),
            ("execute_context_x(1)_generation_2(2)", None),
            ("step[12]", None),
            ("step[IDLE bs=0]", Some(ServingStep { requests: Some(0), ..ServingStep::default() })),
            ("_forward_step 3", None),
        ] {
            let found = serving_step(name).map(|step| ServingStep { lengths: None, ..step });
            assert_eq!(found, expected, "{name}");
        }
        let cached = ServingStep { requests: Some(3), ..ServingStep::default() };
        assert_eq!(serving_step("execute_new_0_cached_3"), Some(cached));
    }
    #[test]
    fn lengths_of_requests() {
        let told = "execute_33_context_1(sq1sk9sqsq1sqsk9)_generation_32(sq32sk90sqsq32sqsk90)";
        assert_eq!(step_lengths(told), Some(vec![[1, 9, 1, 9], [32, 90, 32, 90]]));
        let prompts = "execute_context_2(888_50000)_generation_0(0)";
        assert_eq!(step_lengths(prompts), Some(vec![[888, 888, 50_000, 50_000], [0; 4]]));
        let decoding = "step[DECODE bs=64 g_sq=128 g_sqsq=256 g_sqsk=262144 g_sk=131072]";
        assert_eq!(step_lengths(decoding), Some(vec![[0; 4], [128, 131_072, 256, 262_144]]));
        for some in ["execute_context_1(512)_generation_3(3)", "execute_context_1(sq1sk2)_generation_0(0)"] {
            assert_eq!(step_lengths(some), Some(vec![]), "{some}");
        }
        for other in ["execute_model", "step[DECODE bs=32]", "execute_new_2_cached_3"] {
            assert_eq!(step_lengths(other), None, "{other}");
        }
    }

    #[test]
    fn sizes_of_captures_and_steps() {
        assert_eq!(captured_size("capture_32_DECODE"), Some(32));
        assert_eq!(captured_size("capture_FULL"), None);
        assert_eq!(captured_size("graph bs=8"), Some(8));
        assert_eq!(captured_size("ProfilerStep#134"), None);
        assert_eq!(step_sizes("step[DECODE bs=32]"), [32]);
        assert_eq!(
            step_sizes("execute_48_context_1(sq32sk32sqsq1sqsk1)_generation_16(sq16sk9sqsq16sqsk9)"),
            [48]
        );
        assert_eq!(step_sizes("execute_context_1(32)_generation_16(16)"), [48]);
        assert!(step_sizes("execute_model").is_empty() && step_sizes("jobs=3").is_empty());
        assert!(step_sizes("execute_99999999999999999999_context").is_empty());
    }
}
