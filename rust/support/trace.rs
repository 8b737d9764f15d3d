// SPDX-License-Identifier: GPL-2.0

//! Trace events, of the system `rpcrdma` (include/trace/events/rpcrdma_rs.h).
//!
//! An event that nobody listens to costs one instruction that does nothing where the kernel has
//! jump labels, and the test of a counter elsewhere (User Mode Linux).

use super::net::SockAddr;
use crate::bindings;

/// A value that an event takes, and what C gets of it.
trait Field {
    /// What lives until C has returned.
    type Held;
    /// What C is called with.
    type Passed;

    fn hold(self) -> Self::Held;
    fn pass(held: &Self::Held) -> Self::Passed;
}

macro_rules! numbers {
    ($($number:ty)*) => {$(
        impl Field for $number {
            type Held = Self;
            type Passed = Self;

            fn hold(self) -> Self {
                self
            }

            fn pass(held: &Self) -> Self {
                *held
            }
        }
    )*};
}

numbers!(i32);

impl Field for &SockAddr {
    type Held = SockAddr;
    type Passed = *const bindings::__kernel_sockaddr_storage;

    fn hold(self) -> SockAddr {
        *self
    }

    fn pass(held: &SockAddr) -> Self::Passed {
        held.as_ptr()
    }
}

macro_rules! events {
    ($($(#[$doc:meta])* fn $name:ident = $event:ident($($arg:ident: $ty:ty),* $(,)?);)*) => {
        kernel::macros::paste! {$(
            $(#[$doc])*
            ///
            /// Context: any.
            #[inline(always)]
            pub(crate) fn $name($($arg: $ty),*) {
                // SAFETY: the key is that of a tracepoint that C defines (rpcrdma_events.c).
                let enabled = unsafe {
                    kernel::jump_label::static_branch_unlikely!(
                        bindings::[<__tracepoint_ $event>],
                        kernel::bindings::tracepoint,
                        key
                    )
                };
                if enabled {
                    $(let $arg = Field::hold($arg);)*
                    // SAFETY: the event copies what its arguments point to (`TP_fast_assign`
                    // there) before it returns, and until then they are borrowed.
                    unsafe { bindings::[<rust_do_trace_ $event>]($(<$ty as Field>::pass(&$arg)),*) };
                }
            }
        )*}
    };
}

events! {
    /// An attempt to connect has ended, with 0 or an error number.
    fn connect = xprtrdma_connect(peer: &SockAddr, rc: i32);
}
