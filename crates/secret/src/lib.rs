//! Tacita: secret.
