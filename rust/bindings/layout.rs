// SPDX-License-Identifier: GPL-2.0

//! Sizes and offsets of the C structures that code here depends on, as Debian's kernels have
//! them (read from the debug information of its image and of its own rpcrdma.ko): a difference
//! fails the build instead of corrupting memory.
//!
//! The bindings come from the very headers that the module is built against, so a difference
//! means that libclang reads them otherwise than GCC did, or that a structure has changed and
//! its users here should be looked at. Kernels configured otherwise (User Mode Linux and the
//! sanitizers) have other layouts; for them there are the layout tests that bindgen writes.

#![cfg(all(
    CONFIG_X86_64,
    not(CONFIG_UML),
    not(CONFIG_DEBUG_SPINLOCK),
    not(CONFIG_DEBUG_LOCK_ALLOC)
))]

use super::*;
use core::mem::{
    offset_of,
    size_of, //
};

macro_rules! layout {
    ($($name:ident $size:literal { $($field:ident $offset:literal)* })*) => {
        $(
            kernel::static_assert!(size_of::<$name>() == $size);
            $(kernel::static_assert!(offset_of!($name, $field) == $offset);)*
        )*
    };
}

// What of sunrpc is embedded in our objects, or accessed by field.
layout! {
    rpc_xprt 1528 {
        ops 8 timeout 24 addr 32 addrlen 160 prot 168 cong 176 cwnd 184 max_payload 192
        pending 600 max_reqs 1016 state 1032 swapper 1044 bind_timeout 1072
        reestablish_timeout 1080 connect_cookie 1100 last_used 1176 idle_timeout 1184
        connect_timeout 1192 max_reconnect_timeout 1200 transport_lock 1216 queue_lock 1224
        snd_task 1232 bc_xprt 1264 bc_serv 1272 bc_alloc_count 1284 bc_pa_lock 1292
        bc_pa_list 1296 stat 1320 xprt_net 1416 address_strings 1432 xprt_class 1504
    }
    rpc_rqst 488 {
        rq_xprt 0 rq_snd_buf 8 rq_rcv_buf 80 rq_task 152 rq_cred 160 rq_xid 168 rq_cong 172
        rq_buffer 272 rq_callsize 280 rq_rbuffer 288 rq_rcvsize 296 rq_xmit_bytes_sent 304
        rq_reply_bytes_recvd 312 rq_private_buf 320 rq_connect_cookie 428 rq_pin 432
        rq_xtime 440 rq_bc_pa_state 464 rq_bc_pa_list 472
    }
    rpc_task 224 { tk_status 4 tk_msg 112 tk_client 160 tk_xprt 168 tk_rqstp 184 }
    xdr_buf 72 { head 0 tail 16 bvec 32 pages 40 page_base 48 page_len 52 flags 56 buflen 60 len 64 }
    xprt_class 72 { list 0 ident 16 setup 24 owner 32 name 40 netid 72 }
    rpc_xprt_ops 240 {}
}

// What of the verbs and the connection manager is built, or accessed by field.
layout! {
    ib_wc 72 { status 8 byte_len 20 ex 32 wc_flags 44 }
    ib_mr 216 { lkey 16 rkey 20 iova 24 length 32 }
    ib_send_wr 40 {}
    ib_reg_wr 56 {}
    ib_recv_wr 32 {}
    ib_sge 16 {}
    ib_cqe 8 {}
    ib_qp_init_attr 104 {}
    rdma_conn_param 24 {}
    rdma_cm_event 96 {}
    rdma_cm_id 512 {}
    ib_device_attr 304 {}
}

// What of the kernel's core is embedded in our objects.
layout! {
    scatterlist 32 {}
    work_struct 32 {}
    delayed_work 88 {}
    completion 32 {}
}

// By which the kernel itself converts jiffies to milliseconds (include/generated/timeconst.h).
kernel::static_assert!(
    HZ * HZ_TO_MSEC_NUM as kernel::ffi::c_ulong == 1000 * HZ_TO_MSEC_DEN as kernel::ffi::c_ulong
);

// `ib_device` is only read, at `attrs`; Linux 7.2 and 7.3 differ in what is before it.
kernel::static_assert!(matches!(
    (size_of::<ib_device>(), offset_of!(ib_device, attrs)),
    (3016, 2360) | (3080, 2416)
));
