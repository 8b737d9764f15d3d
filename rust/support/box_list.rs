// SPDX-License-Identifier: GPL-2.0

//! A list of boxes that are linked through themselves: it never allocates, and moving a box, or a
//! whole list, takes the same few instructions however long the lists are.
//!
//! `kernel::list::List` requires reference counted items. Here the list that a box is in owns the
//! box.

use core::{
    marker::PhantomData,
    mem::ManuallyDrop,
    ptr, //
};
use kernel::{
    prelude::*,
    sync::atomic::{
        Atomic,
        Full,
        Relaxed, //
    },
};

/// The link to the next box. Only the list reads and writes it.
pub(crate) struct Link<N>(*mut N);

// SAFETY: a link is used through the list only, and the list is `Send` only if its boxes are.
unsafe impl<N> Send for Link<N> {}
// SAFETY: a shared `Link` gives access to nothing without the list.
unsafe impl<N> Sync for Link<N> {}

impl<N> Link<N> {
    /// Creates the link of a box that is in no list.
    pub(crate) const fn new() -> Self {
        Self(ptr::null_mut())
    }
}

/// A box's content that can be in one [`BoxList`].
///
/// # Safety
///
/// `LINK` bytes from its start, the type has a field of type `Link<Self>`, and nothing else is
/// done with that field.
pub(crate) unsafe trait Node: Sized {
    /// The offset of the link.
    const LINK: usize;
}

/// A list of boxes.
///
/// # Invariants
///
/// `head` is null, or the first of a chain of boxes that belong to the list, each linked to the
/// next. If `head` is not null, `tail` is the last of them, and its link is null.
pub(crate) struct BoxList<N: Node> {
    head: *mut N,
    tail: *mut N,
    _owned: PhantomData<KBox<N>>,
}

// SAFETY: type invariant: the list owns its boxes as a vector would, so it may go where they may.
unsafe impl<N: Node + Send> Send for BoxList<N> {}
// SAFETY: a shared `BoxList` gives out shared references to its boxes only.
unsafe impl<N: Node + Sync> Sync for BoxList<N> {}

impl<N: Node> BoxList<N> {
    /// Makes an empty list.
    pub(crate) const fn new() -> Self {
        // INVARIANT: there is no box.
        Self {
            head: ptr::null_mut(),
            tail: ptr::null_mut(),
            _owned: PhantomData,
        }
    }

    /// Returns whether the list is empty.
    pub(crate) fn is_empty(&self) -> bool {
        self.head.is_null()
    }

    /// Returns the first box.
    pub(crate) fn first(&self) -> Option<&N> {
        // SAFETY: null, or a box of the list (type invariant), which is borrowed.
        unsafe { self.head.as_ref() }
    }

    fn link(node: *mut N) -> *mut Link<N> {
        node.wrapping_byte_add(N::LINK).cast()
    }

    /// Returns the box behind `node`.
    ///
    /// # Safety
    ///
    /// `node` must be a box of a list that is borrowed.
    unsafe fn next(node: *mut N) -> *mut N {
        // SAFETY: the caller's box is valid, and has its link there (`Node`).
        unsafe { (*Self::link(node)).0 }
    }

    /// Links `node` to `next`.
    ///
    /// # Safety
    ///
    /// `node` must be a box of the list that is being changed.
    unsafe fn set_next(node: *mut N, next: *mut N) {
        // SAFETY: the caller's box is valid, and has its link there (`Node`).
        unsafe { (*Self::link(node)).0 = next };
    }

    /// Adds a box in front of all others.
    pub(crate) fn push(&mut self, node: KBox<N>) {
        let node = KBox::into_raw(node);
        // SAFETY: `node` is the pointer of a box that was given to the list just now (KBox::into_raw).
        unsafe { Self::set_next(node, self.head) };
        if self.head.is_null() {
            self.tail = node;
        }
        // INVARIANT: `node` is linked to the first box so far, or is the only box.
        self.head = node;
    }

    /// Adds a box behind all others.
    pub(crate) fn push_last(&mut self, node: KBox<N>) {
        let node = KBox::into_raw(node);
        // SAFETY: `node` is the pointer of a box that was given to the list just now (KBox::into_raw).
        unsafe { Self::set_next(node, ptr::null_mut()) };
        if self.head.is_null() {
            self.head = node;
        } else {
            // SAFETY: `tail` is the last box of the list (type invariant).
            unsafe { Self::set_next(self.tail, node) };
        }
        // INVARIANT: the last box so far is linked to `node`, or `node` is the only box.
        self.tail = node;
    }

    /// Takes the first box.
    pub(crate) fn pop(&mut self) -> Option<KBox<N>> {
        if self.head.is_null() {
            return None;
        }
        let node = self.head;
        // INVARIANT: the chain begins behind `node` from now on.
        // SAFETY: `node` is a box of this list, which is borrowed.
        self.head = unsafe { Self::next(node) };
        // SAFETY: `node` came from `KBox::into_raw`, and is in the list no more.
        Some(unsafe { KBox::from_raw(node) })
    }

    /// Moves all boxes of `other` behind the boxes of this list.
    pub(crate) fn append(&mut self, other: Self) {
        let other = ManuallyDrop::new(other);
        if other.head.is_null() {
            return;
        }
        if self.head.is_null() {
            self.head = other.head;
        } else {
            // SAFETY: `tail` is the last box of the list (type invariant).
            unsafe { Self::set_next(self.tail, other.head) };
        }
        // INVARIANT: the chain of `other` follows, and `other` does not own its boxes any more.
        self.tail = other.tail;
    }

    /// Gives up the ownership of all boxes: the holder of their addresses owns them.
    pub(crate) fn leak(self) {
        let _ = ManuallyDrop::new(self);
    }

    /// Returns all boxes from the first on.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &N> + Clone {
        let mut at = self.head;
        core::iter::from_fn(move || {
            // SAFETY: null, or a box of the list (type invariant), which is borrowed.
            let node = unsafe { at.as_ref() }?;
            // SAFETY: type invariant: a box of the list, whose links do not change while the list is borrowed.
            at = unsafe { Self::next(at) };
            Some(node)
        })
    }

    /// Calls `f` for each box from the first on.
    ///
    /// # Safety
    ///
    /// `f` must leave the links as they are: it must not exchange whole nodes.
    pub(crate) unsafe fn for_each(&mut self, mut f: impl FnMut(&mut N)) {
        let mut at = self.head;
        // SAFETY: null, or a box of the list (type invariant), which is borrowed for writing.
        while let Some(node) = unsafe { at.as_mut() } {
            f(node);
            // SAFETY: a box of the list still, as the caller promises.
            at = unsafe { Self::next(at) };
        }
    }

    /// Takes the box if the list has exactly one box, and `f` returns true for it.
    #[inline]
    pub(crate) fn take_only(&mut self, f: impl FnOnce(&N) -> bool) -> Option<KBox<N>> {
        if !ptr::eq(self.head, self.tail) || !f(self.first()?) {
            return None;
        }
        let node = self.head;
        // INVARIANT: `node` was the first and the last.
        self.head = ptr::null_mut();
        // SAFETY: `node` came from `KBox::into_raw`, and is in the list no more.
        Some(unsafe { KBox::from_raw(node) })
    }

    /// Takes the first box for which `f` returns true.
    pub(crate) fn take(&mut self, f: impl Fn(&N) -> bool) -> Option<KBox<N>> {
        if f(self.first()?) {
            return self.pop();
        }
        let mut before = self.head;
        loop {
            // SAFETY: `before` is a box of the list.
            let at = unsafe { Self::next(before) };
            // SAFETY: null, or a box of the list (type invariant), which is borrowed.
            if f(unsafe { at.as_ref() }?) {
                // SAFETY: `at` is a box of the list.
                let behind = unsafe { Self::next(at) };
                // SAFETY: `before` is a box of the list.
                unsafe { Self::set_next(before, behind) };
                if behind.is_null() {
                    // INVARIANT: `at` was the last box; now it is the one before.
                    self.tail = before;
                }
                // SAFETY: `at` came from `KBox::into_raw`, and is in the list no more.
                return Some(unsafe { KBox::from_raw(at) });
            }
            before = at;
        }
    }

    /// Frees the boxes. Out of line, because most lists are empty when they are dropped.
    #[cold]
    fn clear(&mut self) {
        while self.pop().is_some() {}
    }
}

impl<N: Node> Default for BoxList<N> {
    fn default() -> Self {
        Self::new()
    }
}

impl<N: Node> Drop for BoxList<N> {
    fn drop(&mut self) {
        if !self.is_empty() {
            self.clear();
        }
    }
}

/// A stack of boxes without a lock. Any task may add a box; all boxes are taken at once.
///
/// # Invariants
///
/// `head` is null, or the first of a chain of boxes that belong to the stack, each linked to the
/// next, and the last to null.
pub(crate) struct BoxStack<N: Node> {
    head: Atomic<*mut N>,
    _owned: PhantomData<KBox<N>>,
}

// SAFETY: type invariant: the stack owns its boxes as a vector would, so it may go where they may.
unsafe impl<N: Node + Send> Send for BoxStack<N> {}
// SAFETY: a shared `BoxStack` gives boxes away and takes them, but gives out no reference to any.
unsafe impl<N: Node + Send> Sync for BoxStack<N> {}

impl<N: Node> BoxStack<N> {
    /// Makes an empty stack.
    pub(crate) const fn new() -> Self {
        // INVARIANT: there is no box.
        Self {
            head: Atomic::new(ptr::null_mut()),
            _owned: PhantomData,
        }
    }

    /// Adds a box. A full barrier.
    #[inline]
    pub(crate) fn push(&self, node: KBox<N>) {
        let node = KBox::into_raw(node);
        let mut head = self.head.load(Relaxed);
        loop {
            // SAFETY: the box was given to the stack just now, and `head` does not lead to it yet.
            unsafe { BoxList::set_next(node, head) };
            // INVARIANT: `node` is linked to the first box. Boxes are never taken one by one, so the
            // first box is linked to the others, even if it was taken and added meanwhile.
            match self.head.cmpxchg(head, node, Full) {
                Ok(_) => return,
                Err(first) => head = first,
            }
        }
    }

    /// Takes all boxes, the one that was added last in front. A full barrier.
    pub(crate) fn take_all(&self) -> BoxList<N> {
        // INVARIANT: there is no box left.
        let head = self.head.xchg(ptr::null_mut(), Full);
        let mut tail = head;
        let mut at = head;
        while !at.is_null() {
            tail = at;
            // SAFETY: type invariant: a box of the chain that was taken by an exchange of `head`, which this
            // function owns.
            at = unsafe { BoxList::next(at) };
        }
        // INVARIANT: the chain that was taken, and its last.
        BoxList {
            head,
            tail,
            _owned: PhantomData,
        }
    }
}

impl<N: Node> Drop for BoxStack<N> {
    fn drop(&mut self) {
        drop(self.take_all());
    }
}
