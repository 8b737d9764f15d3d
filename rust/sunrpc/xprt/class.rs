// SPDX-License-Identifier: GPL-2.0

//! The class `rdma` of the client's transports.

use super::{
    connect,
    instance::{
        Instance,
        InstanceShared, //
    },
    ops,
    owed,
    transport::Transport,
    XprtHandle, //
};
use crate::{
    bindings,
    sunrpc::{
        address,
        class::{
            self,
            set,
            Class,
            Netids,
            NewXprt,
            RegisteredClass, //
        },
    },
};
use core::marker::PhantomData;
use kernel::{
    ffi::c_int,
    prelude::*,
    sync::atomic::Atomic, //
};

/// The registration of `T` as transport class `rdma` with netids `rdma` and `rdma6`.
pub(crate) type XprtRegistration<T> = class::ClassRegistration<Requester<T>>;

/// The class of the transports of type `T`.
pub(crate) struct Requester<T: Transport>(PhantomData<T>);

static REGISTERED: RegisteredClass = Atomic::new(core::ptr::null_mut());

impl<T: Transport> Class for Requester<T> {
    const IDENT: c_int = bindings::xprt_transports_XPRT_TRANSPORT_RDMA;
    const NAME: &'static CStr = c"rdma";
    //= V1-115, V2-177
    const NETIDS: Netids = [address::NETID, address::NETID6, c""];

    fn registered() -> &'static RegisteredClass {
        &REGISTERED
    }

    fn setup(args: &bindings::xprt_create) -> Result<NewXprt> {
        let slots = T::slot_count();
        // SAFETY: these are the arguments of `setup`; an `Instance` begins with the `rpc_xprt`.
        let new = unsafe { NewXprt::new::<Self>(args, size_of::<Instance<T>>(), 0, slots) }?;
        let xprt = new.as_raw();
        let raw = xprt.as_ptr();
        set! { raw,
            ops: ops::XprtVTable::<T>::get(),
            timeout: connect::default_timeout(),
            connect_timeout: connect::TIMEOUT,
            max_reconnect_timeout: connect::TIMEOUT,
            bind_timeout: connect::BIND_TIMEOUT,
            reestablish_timeout: connect::FIRST_BACKOFF,
            idle_timeout: connect::IDLE_TIMEOUT,
            // Side protocols that look at the transport's address shall use TCP.
            prot: bindings::IPPROTO_TCP as i32,
            max_payload: T::MAX_PAYLOAD,
        }
        // SAFETY: `dstaddr` is of a family that has a port, as `format_strings` has seen.
        if unsafe { bindings::rpc_get_port(args.dstaddr) } != 0 {
            // SAFETY: an atomic operation on `state` of the new transport.
            unsafe { bindings::xprt_set_bound(raw) };
        }

        let this: *mut Instance<T> = raw.cast();
        // SAFETY: xprt_alloc allocated an `Instance<T>`, which stays where it is.
        unsafe { connect::init_work::<T>(this) };
        // SAFETY: xprt_alloc allocated an `Instance<T>`, which stays where it is.
        unsafe { owed::init::<T>(this) };
        // SAFETY: the transport is valid from here on; `destroy` drops the `T` before it frees it.
        let transport = T::create(unsafe { XprtHandle::new(xprt) })?;
        // SAFETY: `id` is set by xprt_alloc and never changes.
        let id = unsafe { (*raw).id };
        let shared = InstanceShared::new(transport, slots, id)?;
        // SAFETY: `setup` has not returned the transport yet, so no other code has it.
        unsafe { Instance::provide(this, shared) };

        Ok(new)
    }
}
