//! Tacita: bench.
fn main() {}
