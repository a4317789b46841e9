//! What a component may hold before anything compiles it.
//!
//! Wasmtime's and wasmparser's own limits are those of the specification: a million functions, 50,000 locals each. A file of a
//! third of a megabyte within them takes 16 s and 850 MiB to compile. The caps here are what an honest plugin stays far below,
//! and what bounds the compiler's work.

use wasmparser::{
    CompositeInnerType, Encoding, FuncValidatorAllocations, FunctionBody, Operator, Parser, Payload, ValidPayload,
    Validator, WasmFeatures,
};

use super::engine::{MEMORY_MAX, TABLE_ELEMENTS_MAX};

/// The largest component, in bytes.
pub const BYTES_MAX: usize = 2 << 20;
/// Functions in all modules together.
pub const FUNCTIONS_MAX: u32 = 10_000;
/// Bytes of one function's body.
pub const BODY_BYTES_MAX: u64 = 256 << 10;
/// Locals of one function.
pub const LOCALS_MAX: u32 = 2_000;
/// Blocks times locals of one function: what the compiler's longest pass grows with.
pub const BLOCKS_BY_LOCALS_MAX: u64 = 2_000_000;
/// Parameters, and results, of one function.
pub const PARAMS_MAX: usize = 32;
/// Data segments in all modules together.
pub const DATA_SEGMENTS_MAX: u32 = 1_000;
/// Core modules in the component.
pub const MODULES_MAX: u32 = 16;

/// What a component was found to hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Contents {
    /// Functions with a body.
    pub functions: u32,
    /// The longest body, in bytes.
    pub longest_body: u64,
    /// Core modules.
    pub modules: u32,
    /// Data segments.
    pub data_segments: u32,
    /// The initial memory of the modules together, in bytes.
    pub memory: u64,
}

/// Why a component is not compiled at all.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CapFault {
    /// Broken, or it uses a proposal that the host leaves out.
    #[error("this component is not valid here: {0}")]
    Invalid(String),
    /// More of something than a plugin may have.
    #[error("this component has {used} {what}{place}; a plugin may have {max}{}", hint(.what))]
    TooMuch {
        /// Of what.
        what: &'static str,
        /// Where, with a leading space; empty for the component as a whole.
        place: String,
        /// How much it has.
        used: u64,
        /// How much it may have.
        max: u64,
    },
}

fn hint(what: &str) -> &'static str {
    match what {
        "bytes" | "functions" => {
            ": build it in release mode with `opt-level = \"s\"`, `lto = true` and `panic = \"abort\"`, and leave out what it does not use"
        }
        "bytes in one function" | "locals in one function" | "blocks times locals in one function" => {
            ": split the function, or build without so much inlining (`opt-level = \"s\"`)"
        }
        "bytes of initial memory" => ": link it with a smaller stack and less static data",
        _ => "",
    }
}

/// The proposals that guests may use: those of the engine, no more.
fn features() -> WasmFeatures {
    WasmFeatures::MUTABLE_GLOBAL
        | WasmFeatures::SATURATING_FLOAT_TO_INT
        | WasmFeatures::SIGN_EXTENSION
        | WasmFeatures::REFERENCE_TYPES
        | WasmFeatures::MULTI_VALUE
        | WasmFeatures::BULK_MEMORY
        | WasmFeatures::SIMD
        | WasmFeatures::FLOATS
        | WasmFeatures::COMPONENT_MODEL
        | WasmFeatures::GC_TYPES
}

/// Validates a component whole, and holds it against the caps. The work is linear in its size.
///
/// # Errors
/// [`CapFault`]: what is wrong, with used and limit.
pub fn check(wasm: &[u8]) -> Result<Contents, CapFault> {
    at_most("bytes", "", wasm.len() as u64, BYTES_MAX as u64)?;
    let mut validator = Validator::new_with_features(features());
    let mut allocations = FuncValidatorAllocations::default();
    let mut contents = Contents::default();
    for payload in Parser::new(0).parse_all(wasm) {
        let payload = payload.map_err(invalid)?;
        // Before the validator, which would allocate for what is declared here.
        contents.count(&payload)?;
        match validator.payload(&payload).map_err(invalid)? {
            ValidPayload::Func(function, body) => {
                check_body(&body, contents.functions)?;
                let mut function = function.into_validator(allocations);
                function.validate(&body).map_err(invalid)?;
                allocations = function.into_allocations();
            }
            ValidPayload::Ok | ValidPayload::Parser(_) | ValidPayload::End(_) => {}
        }
    }
    Ok(contents)
}

impl Contents {
    fn count(&mut self, payload: &Payload<'_>) -> Result<(), CapFault> {
        match payload {
            Payload::Version { encoding: Encoding::Module, .. } => {
                self.modules += 1;
                at_most("core modules", "", self.modules.into(), MODULES_MAX.into())
            }
            Payload::CodeSectionStart { count, .. } => {
                let functions = self.functions.saturating_add(*count);
                at_most("functions", "", functions.into(), FUNCTIONS_MAX.into())
            }
            Payload::CodeSectionEntry(body) => {
                self.functions += 1;
                let length = body.range().end - body.range().start;
                self.longest_body = self.longest_body.max(length);
                at_most("bytes in one function", &place(self.functions), length, BODY_BYTES_MAX)
            }
            Payload::DataSection(section) => {
                self.data_segments = self.data_segments.saturating_add(section.count());
                at_most("data segments", "", self.data_segments.into(), DATA_SEGMENTS_MAX.into())
            }
            Payload::MemorySection(section) => {
                for memory in section.clone() {
                    let pages = memory.map_err(invalid)?.initial;
                    self.memory = self.memory.saturating_add(pages.saturating_mul(64 << 10));
                }
                at_most("bytes of initial memory", "", self.memory, MEMORY_MAX as u64)
            }
            Payload::TableSection(section) => {
                for table in section.clone() {
                    let initial = table.map_err(invalid)?.ty.initial;
                    at_most("elements in one table", "", initial, TABLE_ELEMENTS_MAX as u64)?;
                }
                Ok(())
            }
            Payload::TypeSection(section) => {
                for group in section.clone() {
                    for kind in group.map_err(invalid)?.types() {
                        let CompositeInnerType::Func(function) = &kind.composite_type.inner else { continue };
                        let most = function.params().len().max(function.results().len());
                        at_most("parameters or results in one function", "", most as u64, PARAMS_MAX as u64)?;
                    }
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

fn check_body(body: &FunctionBody<'_>, number: u32) -> Result<(), CapFault> {
    let mut locals = 0_u32;
    for group in body.get_locals_reader().map_err(invalid)? {
        let (count, _) = group.map_err(invalid)?;
        locals = locals.saturating_add(count);
    }
    at_most("locals in one function", &place(number), locals.into(), LOCALS_MAX.into())?;
    let mut blocks = 1_u64;
    for operator in body.get_operators_reader().map_err(invalid)? {
        if matches!(operator.map_err(invalid)?, Operator::Block { .. } | Operator::Loop { .. } | Operator::If { .. }) {
            blocks += 1;
        }
    }
    let product = blocks.saturating_mul(locals.into());
    at_most("blocks times locals in one function", &place(number), product, BLOCKS_BY_LOCALS_MAX)
}

fn at_most(what: &'static str, place: &str, used: u64, max: u64) -> Result<(), CapFault> {
    if used <= max { Ok(()) } else { Err(CapFault::TooMuch { what, place: place.to_owned(), used, max }) }
}

/// Where a function stands: by the order of the file, as disassemblers show it.
fn place(number: u32) -> String {
    format!(" (the function number {number} of the file)")
}

fn invalid(error: wasmparser::BinaryReaderError) -> CapFault {
    CapFault::Invalid(error.to_string())
}
