//! Systems on one another, as users build them: what the upper one promises is looked for at the lowest
//! place where it can be seen, and where a stack promises less than its parts, that is shown, too.

#![allow(clippy::unwrap_used, reason = "helpers of tests, too")]

mod bench;
mod on_dnefs;
mod on_oram;
mod on_pddm;
