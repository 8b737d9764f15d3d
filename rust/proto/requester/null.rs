// SPDX-License-Identifier: GPL-2.0

//! The Call that a Requester makes for itself.

use crate::proto::wire::types::Xid;

/// The RPC message version (RFC 5531, section 9).
const RPC_VERSION: u32 = 2;
/// The program and version of NFS version 3 (RFC 1813, section 3).
const NFS: [u32; 2] = [100_003, 3];

/// The length of the Call, in bytes.
const LEN: usize = 40;

/// Returns a Call of the procedure NULL, which has neither arguments nor results, without authentication (RFC 5531,
/// sections 9 and 12). Each server answers it at once: one that does not serve the program answers by an error.
pub fn null_call(xid: Xid) -> [u8; LEN] {
    let [program, version] = NFS;
    // XID, CALL, RPC version, program, its version, NULL, and flavor and length of credential and verifier.
    let words = [xid.0, 0, RPC_VERSION, program, version, 0, 0, 0, 0, 0];
    let mut call = [0; LEN];
    for (bytes, word) in call.chunks_exact_mut(4).zip(words) {
        bytes.copy_from_slice(&word.to_be_bytes());
    }
    call
}
