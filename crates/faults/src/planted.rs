//! A fault while it is planted.

use std::cell::Cell;
use std::fmt::Debug;
use std::marker::PhantomData;
use std::thread::LocalKey;

/// A fault that is planted in this thread until this is dropped.
#[derive(Debug)]
#[must_use = "it is planted for as long as this lives"]
pub struct Planted<F: Copy + 'static> {
    place: &'static LocalKey<Cell<Option<F>>>,
    before: Option<F>,
    /// It stays in its thread.
    _here: PhantomData<*const ()>,
}

impl<F: Copy + 'static> Planted<F> {
    /// Plants a fault in a place that holds one at a time.
    pub fn new(place: &'static LocalKey<Cell<Option<F>>>, fault: F) -> Self {
        Self { place, before: place.replace(Some(fault)), _here: PhantomData }
    }
}

impl<F: Copy + 'static> Drop for Planted<F> {
    fn drop(&mut self) {
        self.place.set(self.before);
    }
}
