//! What kernels are called: one name for one kernel, whatever recorded it.
//!
//! CUPTI and ROCm give the name that the compiler made. nsys and Kineto demangle it, but for what their library
//! does not know yet, such as `DF16b` for bfloat16, and Kineto for what has more than 1,024 characters. ROCm's
//! newer recorders name the kernel's descriptor, which is the kernel's name and `.kd`.

use std::fmt;

use cpp_demangle::{DemangleOptions, DemangleWrite, Symbol as Mangled};
use hashbrown::HashMap;

use crate::schema::{Symbol, SymbolTable, Tables};

/// Longest mangled name that is demangled.
const LONGEST_MANGLED: usize = 1 << 14;

/// Longest demangled name: a name refers to its own parts, so a short one can stand for one without end.
const LONGEST_NAME: usize = 1 << 16;

/// Text that all demangled names of a trace may take. Thousands of long ones fit; the rest stay as recorded.
const MOST_TEXT: usize = 1 << 26;

/// What ends the name of a kernel's descriptor, as it stands and as demanglers write it.
const DESCRIPTOR_SUFFIXES: [&str; 2] = [".kd", " [clone .kd]"];

/// Gives kernels, and launches that name theirs, the name that people write where another was recorded. Of
/// kernels that becomes the mangled name.
pub(super) fn demangle(tables: &mut Tables, symbols: &mut SymbolTable) {
    let Tables { gpu_ops, launches, .. } = tables;
    let is_recorded_otherwise =
        symbols.classify(|text| is_mangled(text) || without_descriptor(text).is_some());
    if !is_recorded_otherwise.contains(&true) {
        return;
    }
    let mut room = MOST_TEXT;
    let mut names: HashMap<Symbol, Symbol> = HashMap::new();
    for recorded in gpu_ops.name.iter().chain(launches.kernel.iter()).flatten() {
        if is_recorded_otherwise.get(recorded.index()) == Some(&true) {
            names.entry(recorded).or_insert_with(|| {
                let name = plain_name(symbols.text(recorded), &mut room);
                name.map_or(recorded, |name| symbols.intern(&name))
            });
        }
    }
    names.retain(|recorded, name| recorded != name);
    if names.is_empty() {
        return;
    }
    let rows = gpu_ops.mangled_name.iter().zip(gpu_ops.name.iter());
    gpu_ops.mangled_name =
        rows.map(|(mangled, name)| mangled.or(name.filter(|name| names.contains_key(name)))).collect();
    let plain = |recorded: Symbol| names.get(&recorded).copied().unwrap_or(recorded);
    gpu_ops.name.map_in_place(plain);
    launches.kernel.map_in_place(plain);
}

fn is_mangled(name: &str) -> bool {
    name.starts_with("_Z")
}

fn without_descriptor(name: &str) -> Option<&str> {
    DESCRIPTOR_SUFFIXES
        .iter()
        .find_map(|suffix| name.strip_suffix(suffix))
        .filter(|kernel| !kernel.is_empty())
}

/// The name that people write for a recorded one, if it differs; `room` is what all names may still take.
fn plain_name(recorded: &str, room: &mut usize) -> Option<String> {
    let kernel = without_descriptor(recorded);
    demangled(kernel.unwrap_or(recorded), room).or_else(|| kernel.map(str::to_owned))
}

fn demangled(mangled: &str, room: &mut usize) -> Option<String> {
    if !is_mangled(mangled) || mangled.len() > LONGEST_MANGLED {
        return None;
    }
    let mut name = Bounded { text: String::new(), most: LONGEST_NAME.min(*room) };
    let written = Mangled::new(mangled).ok()?.structured_demangle(&mut name, &DemangleOptions::default());
    *room -= name.text.len();
    written.ok().map(|()| name.text)
}

/// Takes text up to a length, and then refuses.
struct Bounded {
    text: String,
    most: usize,
}

impl DemangleWrite for Bounded {
    fn write_string(&mut self, part: &str) -> fmt::Result {
        if part.len() > self.most - self.text.len() {
            return Err(fmt::Error);
        }
        self.text.push_str(part);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{LONGEST_NAME, demangle, plain_name};
    use crate::schema::{GpuOpRow, LaunchRow, SymbolTable, Tables};

    fn plain(recorded: &str) -> Option<String> {
        plain_name(recorded, &mut (1 << 20))
    }

    #[test]
    fn kernels_are_called_what_people_call_them() {
        for (recorded, name) in [
            ("_Z4gemmPf", "gemm(float*)"),
            ("_ZN12_GLOBAL__N_14gemmEPf", "(anonymous namespace)::gemm(float*)"),
            ("_Z4gemmIDF16bLi64ELb0EEvPKT_", "void gemm<std::bfloat16_t, 64, false>(std::bfloat16_t const*)"),
            (
                "_ZN3ops4fillIZNS_4zeroEvEUliE_EEvT_",
                "void ops::fill<ops::zero()::{lambda(int)#1}>(ops::zero()::{lambda(int)#1})",
            ),
            ("_Z4gemmPf.isra.0", "gemm(float*) [clone .isra.0]"),
            ("_Z4gemmPf.kd", "gemm(float*)"),
            ("gemm(float*) [clone .kd]", "gemm(float*)"),
            ("triton_poi_fused_add_0.kd", "triton_poi_fused_add_0"),
            ("_Znonsense.kd", "_Znonsense"),
        ] {
            assert_eq!(plain(recorded).as_deref(), Some(name), "{recorded}");
        }
    }

    #[test]
    fn what_cannot_be_demangled_stays_as_recorded() {
        let long = format!("_Z4gemm{}i", "P".repeat(20_000));
        let deep = format!("_Z4gemm{}i", "P".repeat(10_000));
        for recorded in ["volta_sgemm_128x64_nn", "_Znonsense", "_Z4gemmPf_kd", "_Z", ".kd", "", &long, &deep]
        {
            assert_eq!(plain(recorded), None, "{recorded}");
        }
    }

    #[test]
    fn names_that_would_not_end_stay_as_recorded() {
        // Each type is a pair of the one before: 2 to the power of 30 parts.
        let pairs: String = (2..32)
            .map(|before| char::from_digit(before, 36).unwrap().to_ascii_uppercase())
            .map(|before| format!("S1_IS{before}_S{before}_E"))
            .collect();
        let mut room = 1 << 20;
        assert_eq!(plain_name(&format!("_Z4gemm1aIiiE1bIS0_S0_E{pairs}"), &mut room), None);
        assert!(room < (1 << 20) - LONGEST_NAME + 100, "counted, so that many of them end, too");
        let mut room = 5;
        assert_eq!(plain_name("_Z4gemmPf", &mut room), None);
    }

    #[test]
    fn the_recorded_name_is_kept() {
        let mut symbols = SymbolTable::default();
        let mut tables = Tables::default();
        let [mangled, plain, nsys] = ["_Z4gemmPf", "copy", "_Z4gemm"].map(|text| symbols.intern(text));
        for (name, mangled_name) in [(mangled, None), (plain, None), (mangled, Some(nsys)), (mangled, None)] {
            tables.gpu_ops.push(GpuOpRow { name: Some(name), mangled_name, ..Default::default() });
        }
        tables.launches.push(LaunchRow { kernel: Some(mangled), ..Default::default() });
        demangle(&mut tables, &mut symbols);
        let Tables { gpu_ops, launches, .. } = tables;
        let names = |column: &crate::schema::Column<_>| -> Vec<_> {
            column.iter().map(|name| name.map(|name| symbols.text(name).to_owned())).collect()
        };
        let text = |text: &str| Some(text.to_owned());
        let gemm = || text("gemm(float*)");
        assert_eq!(names(&gpu_ops.name), [gemm(), text("copy"), gemm(), gemm()]);
        assert_eq!(names(&launches.kernel), [gemm()]);
        let recorded = || text("_Z4gemmPf");
        assert_eq!(names(&gpu_ops.mangled_name), [recorded(), None, text("_Z4gemm"), recorded()]);
    }
}
