//! Limits of a bake's memory.

/// The least memory of a bake. With less, a bake would spend its time on its smallest buffers. cargo-fuzz builds with a
/// lower limit, so that small inputs spill.
pub const MEMORY_MIN_BYTES: u64 = if cfg!(fuzzing) { 32 << 10 } else { 16 << 20 };
/// By default a bake uses this fraction (one half) of the memory of the machine or the control group.
pub const MEMORY_SHARE: u64 = 2;
