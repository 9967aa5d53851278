//! Tacita: cli.
fn main() {}
