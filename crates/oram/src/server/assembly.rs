//! Objects that come in pieces.

use std::collections::HashMap;

use bytes::{Bytes, BytesMut};
use tokio::sync::OwnedSemaphorePermit;

use super::{Core, labels};
use crate::blob::Put;
use crate::geometry::{Geometry, PAGE_LEN};
use crate::object::Object;
use crate::wire::{Answer, Refusal};

/// Bytes of a manifest at most: far more than generations can be told in.
const MANIFEST_LEN_MAX: u64 = 1 << 20;
/// Bytes of an object that passes hand on within a build at most.
const BUILD_LEN_MAX: u64 = 256 << 20;

/// Objects of which a connection has begun pieces.
#[derive(Debug, Default)]
pub(super) struct Assembly {
    objects: HashMap<Object, Part>,
}

#[derive(Debug)]
struct Part {
    total: u64,
    bytes: BytesMut,
    room: OwnedSemaphorePermit,
}

/// A whole object, which takes its room until it is put.
#[derive(Debug)]
pub(super) struct Whole {
    object: Object,
    bytes: Bytes,
    _room: OwnedSemaphorePermit,
}

impl Assembly {
    /// Takes a piece; returns the object when it is whole, else the answer.
    pub(super) fn take(
        &mut self,
        core: &Core,
        object: Object,
        (total, offset): (u64, u64),
        piece: &Bytes,
    ) -> Result<Whole, Answer> {
        if offset == 0 {
            let part = self.begin(core, object, total).map_err(Answer::Refused)?;
            self.objects.insert(object, part);
        }
        let fits = |part: &Part| part.total == total && part.bytes.len() as u64 == offset;
        let Some(part) = self.objects.get_mut(&object).filter(|part| fits(part)) else {
            self.objects.remove(&object);
            return Err(Answer::Refused(Refusal::Malformed));
        };
        part.bytes.extend_from_slice(piece);
        if (part.bytes.len() as u64) < total {
            return Err(Answer::Done);
        }
        let part = self.objects.remove(&object).expect("it was just there");
        let bytes = part.bytes.freeze();
        if let (Object::Items { generation, .. }, Some(geometry)) = (object, core.geometry.get())
            && !labels::is_sound(&bytes, geometry.shape(generation).slots, geometry.item_len())
        {
            return Err(Answer::Refused(Refusal::Malformed));
        }
        Ok(Whole { object, bytes, _room: part.room })
    }

    fn begin(&self, core: &Core, object: Object, total: u64) -> Result<Part, Refusal> {
        if !is_length(core.geometry.get(), object, total) {
            return Err(Refusal::Malformed);
        }
        if self.objects.len() >= core.limits.puts_max && !self.objects.contains_key(&object) {
            return Err(Refusal::Overloaded);
        }
        let len = u32::try_from(total).map_err(|_| Refusal::Overloaded)?;
        let capacity = len as usize;
        let room = core.assembling.clone().try_acquire_many_owned(len);
        let room = room.map_err(|_| Refusal::Overloaded)?;
        Ok(Part { total, bytes: BytesMut::with_capacity(capacity), room })
    }
}

impl Whole {
    /// The period that it opens.
    pub(super) const fn opens(&self) -> Option<u64> {
        match self.object {
            Object::Manifest { period } => Some(period),
            _ => None,
        }
    }
}

impl Core {
    pub(super) async fn put(&self, whole: Whole) -> Answer {
        self.metrics.objects.add(1);
        match self.store.put_if_absent(whole.object, whole.bytes).await {
            Ok(put) => Answer::Kept { created: put == Put::Created },
            Err(_) => Answer::Refused(Refusal::Storage),
        }
    }
}

/// Whether clients may put an object of this length: not the log and results, which the server makes.
fn is_length(geometry: Option<&Geometry>, object: Object, total: u64) -> bool {
    let shape = |generation| {
        let geometry = geometry.filter(|geometry| geometry.has(generation))?;
        Some((geometry.shape(generation), geometry.item_len()))
    };
    match object {
        Object::Log { .. } | Object::Results { .. } => false,
        Object::Manifest { .. } => total <= MANIFEST_LEN_MAX,
        Object::Items { generation, bucket } => shape(generation)
            .is_some_and(|(s, item_len)| bucket < s.buckets && total == s.items_len(item_len)),
        Object::Filter { generation, part } => shape(generation).is_some_and(|(s, _)| {
            part < s.parts && total == u64::from(s.pages_in(part)) * PAGE_LEN as u64
        }),
        Object::Cells { generation, .. } | Object::Entries { generation, .. } => {
            shape(generation).is_some() && total <= BUILD_LEN_MAX
        }
    }
}
