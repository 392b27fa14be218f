//! Limits for the memory of a bake.

/// The minimum memory of a bake. With less memory, buffers would be so short that the bake would be slow. The minimum
/// is lower in fuzzing builds, so that even small inputs are spilled to temporary files.
pub const MEMORY_MIN_BYTES: u64 = if cfg!(fuzzing) { 32 << 10 } else { 16 << 20 };
/// The divisor in the default memory limit of a bake, which is the memory of the machine or control group, divided by
/// this number.
pub const MEMORY_SHARE: u64 = 2;
