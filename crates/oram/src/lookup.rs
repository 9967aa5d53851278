//! The lookups of one query: which page and which item it asks of each generation that lives.
//!
//! Whatever it looks for, if anything, it asks every generation for one page and one item, the newest
//! first, and nothing twice: the items it finds move to the log, so that later queries find them there
//! or in what is built from it, before they come to this generation again.

use std::sync::Arc;

use crate::error::Result;
use crate::faults::{Fault, planted};
use crate::filter;
use crate::geometry::Generation;
use crate::item::{Item, forged, open_item};
use crate::keys::{GenerationKeys, Id, Label};
use crate::record::Found;
use crate::wire::{ItemAddress, PageAddress};

/// A generation that a query asks.
#[derive(Debug, Clone)]
pub struct Asked {
    /// Which one.
    pub generation: Generation,
    /// Its keys.
    pub keys: Arc<GenerationKeys>,
    /// Number of queries that had asked it before: no other query has this number.
    pub index: u64,
}

/// What a step asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    /// A page, but in the last step.
    pub page: Option<PageAddress>,
    /// An item, but in the first step.
    pub item: Option<ItemAddress>,
}

/// A query under way.
#[derive(Debug)]
pub struct Lookup {
    target: Option<Id>,
    asked: Vec<Asked>,
    /// Steps that have been taken.
    taken: usize,
    /// What the last page promised: the item of this label is the target's.
    expects: bool,
    label: Label,
    page: u32,
    found: Option<Item>,
}

impl Lookup {
    /// A query that looks for `target`, or for nothing, in `asked`, newest content first.
    pub fn new(target: Option<Id>, mut asked: Vec<Asked>) -> Self {
        if target.is_none() && planted(Fault::DummySkipped) {
            asked.clear();
        }
        Self { target, asked, taken: 0, expects: false, label: [0; 16], page: 0, found: None }
    }

    /// The next step, until there is none.
    pub fn step(&mut self) -> Option<Step> {
        if self.asked.is_empty() || self.taken > self.asked.len() {
            return None;
        }
        if self.found.is_some() && planted(Fault::HitReturnsEarly) {
            return None;
        }
        let item = self.taken.checked_sub(1).map(|above| {
            let asked = &self.asked[above];
            ItemAddress { generation: asked.generation, label: self.label }
        });
        let page = self.asked.get(self.taken).map(|asked| {
            // What the page before promised is taken for found: its item comes with this page.
            let page = match self.seeks().filter(|_| !self.expects) {
                Some(id) => filter::page_of(&asked.keys, &id),
                None => asked.keys.fake_page(asked.index),
            };
            PageAddress { generation: asked.generation, page }
        });
        self.page = page.map_or(0, |address| address.page);
        Some(Step { page, item })
    }

    /// What the server gave for the last step.
    ///
    /// # Errors
    /// [`crate::Kind::Hostile`] if it is not what was sealed; there is no going on then.
    pub fn take(&mut self, page: Option<&[u8]>, item: Option<&[u8]>) -> Result<()> {
        if let (Some(above), Some(item)) = (self.taken.checked_sub(1), item) {
            let opened = open_item(&self.asked[above].keys, &self.label, item)?;
            if self.expects {
                let item = opened.filter(|item| Some(item.id) == self.target);
                self.found = Some(item.ok_or_else(|| forged("an item"))?);
                self.expects = false;
            }
        }
        if let (Some(asked), Some(page)) = (self.asked.get(self.taken), page) {
            let id = self.seeks();
            self.expects = filter::probe(&asked.keys, self.page, page, id.as_ref())?;
            self.label = match id.filter(|_| self.expects) {
                Some(id) => asked.keys.label(&id),
                None => asked.keys.fake_label(asked.index),
            };
        }
        self.taken += 1;
        Ok(())
    }

    /// What was found, when there are no more steps.
    pub fn finish(self) -> Found {
        match self.target {
            None => Found::Nothing,
            Some(_) => Found::Block(self.found.and_then(|item| item.block)),
        }
    }

    /// What the query is still looking for.
    fn seeks(&self) -> Option<Id> {
        self.target.filter(|_| self.found.is_none())
    }
}
