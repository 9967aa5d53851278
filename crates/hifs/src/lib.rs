//! Tacita: hifs.
