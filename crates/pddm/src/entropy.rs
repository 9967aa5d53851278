//! Random bytes, handed in so that a run can be replayed. Public and hidden bytes come from two
//! sources: what one has given away says nothing of the other.

use tacita_secret::{Key, random};

/// A source of 32 random bytes.
pub type Source = Box<dyn FnMut() -> std::io::Result<[u8; 32]> + Send>;

/// Where random bytes come from.
pub struct Entropy {
    /// Salts of units and superblocks.
    pub public: Source,
    /// Keys of the noise in hidden slots, and of hidden volumes.
    pub hidden: Source,
}

impl Default for Entropy {
    /// Both from the operating system.
    fn default() -> Self {
        Self { public: Box::new(random), hidden: Box::new(random) }
    }
}

impl Entropy {
    /// The key of one unit's noise.
    pub(crate) fn noise_key(&mut self) -> std::io::Result<Key> {
        Ok(Key::take(&mut (self.hidden)()?))
    }

    pub(crate) fn hidden_key(&mut self) -> std::io::Result<Key> {
        Ok(Key::take(&mut (self.hidden)()?))
    }
}

impl std::fmt::Debug for Entropy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("[secret]")
    }
}
