// SPDX-License-Identifier: GPL-2.0

//! Registrations without a device: the part of rust/rdma/mr.rs that the pool uses.

use crate::{
    box_list::{BoxList, BoxStack, Link, Node},
    prelude::KBox,
};
use std::{marker::PhantomData, mem::take};

/// The state of a registration that names no memory.
pub(crate) struct Idle;

struct Inner {
    link: Link<Inner>,
    pages: u32,
}

// SAFETY: the link is only used by the list.
unsafe impl Node for Inner {
    const LINK: usize = std::mem::offset_of!(Inner, link);
}

/// A registration.
pub(crate) struct Mr<S> {
    inner: KBox<Inner>,
    _state: PhantomData<S>,
}

impl Mr<Idle> {
    /// Makes a registration.
    pub(crate) fn new(pages: u32) -> Self {
        let link = Link::new();
        Self {
            inner: KBox::new(Inner { link, pages }),
            _state: PhantomData,
        }
    }

    /// Returns the most pages.
    pub(crate) fn pages(&self) -> u32 {
        self.inner.pages
    }
}

/// A list of registrations.
pub(crate) struct MrList<S> {
    inners: BoxList<Inner>,
    _state: PhantomData<S>,
}

impl<S> MrList<S> {
    /// Makes an empty list.
    pub(crate) const fn new() -> Self {
        Self {
            inners: BoxList::new(),
            _state: PhantomData,
        }
    }

    /// Returns whether the list is empty.
    pub(crate) fn is_empty(&self) -> bool {
        self.inners.is_empty()
    }
}

impl<S> Default for MrList<S> {
    fn default() -> Self {
        Self::new()
    }
}

impl MrList<Idle> {
    /// Adds a registration.
    pub(crate) fn push(&mut self, mr: Mr<Idle>) {
        self.inners.push(mr.inner);
    }

    /// Takes a registration.
    pub(crate) fn pop(&mut self) -> Option<Mr<Idle>> {
        Some(Mr {
            inner: self.inners.pop()?,
            _state: PhantomData,
        })
    }

    /// Moves all registrations of `other` here.
    pub(crate) fn append(&mut self, mut other: Self) {
        self.inners.append(take(&mut other.inners));
    }
}

/// A stack of registrations without a lock.
pub(crate) struct IdleStack(BoxStack<Inner>);

impl IdleStack {
    /// Makes an empty stack.
    pub(crate) const fn new() -> Self {
        Self(BoxStack::new())
    }

    /// Adds a registration.
    pub(crate) fn push(&self, mr: Mr<Idle>) {
        self.0.push(mr.inner);
    }

    /// Takes all registrations.
    pub(crate) fn take_all(&self) -> MrList<Idle> {
        MrList {
            inners: self.0.take_all(),
            _state: PhantomData,
        }
    }
}
