//! Receipts of purges: what each has destroyed, in a chain.

use tacita_secret::{CheckValue, Digest, digest};

use crate::fields::{Fields, Malformed, Put};
use crate::record::Time;

/// What a purge has destroyed. Design note, 3.2.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Receipt {
    /// The purging epoch that began with the purge.
    pub epoch: u64,
    /// When it was over.
    pub time: Time,
    /// Whether unused keys were replaced too, in all erase blocks of keys.
    pub of_all: bool,
    /// Erase blocks of keys that were changed since the receipt before.
    pub key_lebs: u32,
    /// Keys that were destroyed since the receipt before.
    pub keys: u64,
    /// What [`destroyed`] makes of their check values.
    pub destroyed: Digest,
    /// Physical blocks that were out of use before what was replaced was erased.
    pub bad_before: u32,
    /// The same afterwards: what is in blocks that went bad meanwhile may not be erased.
    pub bad_after: u32,
    /// Pages of keys that could not be read, and were left as they were for the keys in use in them:
    /// deleted keys in them may be there still.
    pub damaged_pages: u32,
    /// The digest of the receipt before, zero in the first.
    pub previous: Digest,
}

impl Receipt {
    /// As payload.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(112);
        out.put_u64(self.epoch);
        self.time.put(&mut out);
        out.put_u32(self.of_all.into());
        out.put_u32(self.key_lebs);
        out.put_u64(self.keys);
        out.put(&self.destroyed);
        out.put_u32(self.bad_before);
        out.put_u32(self.bad_after);
        out.put_u32(self.damaged_pages);
        out.put(&self.previous);
        out
    }

    /// From a payload.
    ///
    /// # Errors
    /// [`Malformed`].
    pub fn decode(payload: &[u8]) -> Result<Self, Malformed> {
        let mut fields = Fields(payload);
        let receipt = Self {
            epoch: fields.u64()?,
            time: Time::read(&mut fields)?,
            of_all: match fields.u32()? {
                0 => false,
                1 => true,
                _ => return Err(Malformed("its scope is unknown")),
            },
            key_lebs: fields.u32()?,
            keys: fields.u64()?,
            destroyed: fields.array()?,
            bad_before: fields.u32()?,
            bad_after: fields.u32()?,
            damaged_pages: fields.u32()?,
            previous: fields.array()?,
        };
        fields.end()?;
        Ok(receipt)
    }

    /// What the next receipt calls this one.
    pub fn digest(&self) -> Digest {
        digest(&self.encode())
    }

    /// Whether all deleted keys are destroyed and every block that they were in is erased, as far as the
    /// device tells.
    pub const fn is_complete(&self) -> bool {
        self.bad_after <= self.bad_before && self.damaged_pages == 0
    }
}

/// The digest of check values: BLAKE3, which is a hash tree, of all of them in order.
pub fn destroyed(check_values: &mut [CheckValue]) -> Digest {
    check_values.sort_unstable();
    digest(&check_values.concat())
}

/// Whether receipts, in order, are a chain that ends in `last`: the first that does not follow from the
/// one before it, or the end if `last` does not.
pub fn first_break(receipts: &[Receipt], last: &Digest) -> Option<usize> {
    let next = receipts.iter().skip(1).map(|receipt| &receipt.previous);
    let mut linked = receipts.iter().zip(next.chain([last]));
    linked.position(|(receipt, next)| receipt.digest() != *next)
}

/// Before the first receipt.
pub const NO_RECEIPT: Digest = [0; 32];

#[cfg(test)]
mod tests {
    use super::*;

    fn receipt(epoch: u64, previous: Digest) -> Receipt {
        Receipt {
            epoch,
            time: Time { secs: -1, nanos: 5 },
            of_all: epoch % 2 == 1,
            key_lebs: 3,
            keys: 4,
            destroyed: [7; 32],
            bad_before: 1,
            bad_after: 2,
            damaged_pages: 3,
            previous,
        }
    }

    #[test]
    fn receipts_come_back_from_their_bytes() {
        let receipt = receipt(9, [8; 32]);
        let bytes = receipt.encode();
        assert_eq!(bytes.len(), 112);
        assert_eq!(Receipt::decode(&bytes), Ok(receipt));
        Receipt::decode(&bytes[1..]).unwrap_err();
        Receipt::decode(&[&bytes[..], &[0]].concat()).unwrap_err();
        Receipt::decode(&[0xff; 112]).unwrap_err();
    }

    #[test]
    fn a_chain_breaks_where_a_receipt_was_changed_or_left_out() {
        let mut chain = vec![receipt(1, NO_RECEIPT)];
        for epoch in 2..6 {
            chain.push(receipt(epoch, chain.last().unwrap().digest()));
        }
        let last = chain.last().unwrap().digest();
        assert_eq!(first_break(&chain, &last), None);
        assert_eq!(first_break(&[], &NO_RECEIPT), None);
        assert_eq!(first_break(&chain[2..], &last), None, "the oldest need not be there");
        assert_eq!(first_break(&chain[..4], &last), Some(3));
        let mut forged = chain.clone();
        forged[2].keys += 1;
        assert_eq!(first_break(&forged, &last), Some(2));
        forged = chain;
        forged.remove(1);
        assert_eq!(first_break(&forged, &last), Some(0));
    }

    #[test]
    fn the_order_of_check_values_does_not_matter() {
        let (mut one, mut two) = ([[1; 8], [2; 8]], [[2; 8], [1; 8]]);
        assert_eq!(destroyed(&mut one), destroyed(&mut two));
        assert_ne!(destroyed(&mut one), destroyed(&mut [[1; 8]]));
        assert_eq!(destroyed(&mut []), digest(&[]));
    }
}
