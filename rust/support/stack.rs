// SPDX-License-Identifier: GPL-2.0

//! A stack of boxes that are linked through themselves, so that it never allocates.

use kernel::prelude::*;

/// A box's content that can be in one [`Stack`].
pub(crate) trait Node: Sized {
    /// The link; nobody but the stack uses it.
    fn link(&self) -> &Option<KBox<Self>>;

    /// The place for the link.
    fn link_mut(&mut self) -> &mut Option<KBox<Self>>;
}

/// A stack of boxes.
pub(crate) struct Stack<N: Node> {
    head: Option<KBox<N>>,
}

impl<N: Node> Stack<N> {
    /// An empty stack.
    pub(crate) const fn new() -> Self {
        Self { head: None }
    }

    /// Whether there is none.
    pub(crate) fn is_empty(&self) -> bool {
        self.head.is_none()
    }

    /// Adds a box in front of all others.
    pub(crate) fn push(&mut self, mut node: KBox<N>) {
        *node.link_mut() = self.head.take();
        self.head = Some(node);
    }

    /// Adds a box behind all others, which takes as long as there are many.
    pub(crate) fn push_last(&mut self, node: KBox<N>) {
        let mut place = &mut self.head;
        while let Some(node) = place {
            place = node.link_mut();
        }
        *place = Some(node);
    }

    /// Takes the first box.
    pub(crate) fn pop(&mut self) -> Option<KBox<N>> {
        let mut node = self.head.take()?;
        self.head = node.link_mut().take();
        Some(node)
    }

    /// Moves all of `other` here.
    pub(crate) fn append(&mut self, mut other: Self) {
        while let Some(node) = other.pop() {
            self.push(node);
        }
    }

    /// All of them from the first on.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &N> + Clone {
        core::iter::successors(self.head.as_deref(), |node| node.link().as_deref())
    }

    /// Calls `f` for each from the first on.
    pub(crate) fn for_each(&mut self, mut f: impl FnMut(&mut N)) {
        let mut next = self.head.as_deref_mut();
        while let Some(node) = next {
            f(node);
            next = node.link_mut().as_deref_mut();
        }
    }
}

impl<N: Node> Default for Stack<N> {
    fn default() -> Self {
        Self::new()
    }
}

impl<N: Node> Drop for Stack<N> {
    fn drop(&mut self) {
        // One by one: dropping a long chain of boxes would recurse too deep for a kernel stack.
        while self.pop().is_some() {}
    }
}
