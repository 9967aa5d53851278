//! Tacita: testkit.
