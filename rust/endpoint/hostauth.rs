// SPDX-License-Identifier: GPL-2.0

//! What is demanded of a peer: to have the key that the administrator has named after it.
//!
//! Policy is in the keyring `.rpcrdma` alone. With a key `rpcrdma:ADDRESS`, or else `rpcrdma:any`, of
//! the type `logon`, a peer has to prove that it has the same (version 2; [`shared_key`]), and this
//! side proves it, too. Without one, nothing is demanded and nothing proven.

use crate::{
    proto::{
        connection::{
            Config,
            Side, //
        },
        hostauth::{
            Policy,
            Verdict, //
        },
        shared_key::Handshake, //
    },
    support::{
        key::{
            self,
            Key,
            Keyring, //
        },
        memalloc::GFP_NORETRY,
        net::{
            self,
            SockAddr, //
        }, //
    }, //
};
use kernel::prelude::*;

/// What proves to a peer who this side is, and judges the peer's proof.
pub(crate) struct SharedKey {
    peer: SockAddr,
    handshake: Handshake,
    /// None: there is one that cannot be used, so that nobody can prove anything.
    key: Option<Key>,
}

impl SharedKey {
    /// What the administrator demands of `peer`; none: nothing. Context: process, may sleep.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    //= V2-134, V2-135, V2-197, D-50
    pub(crate) fn with(side: Side, peer: SockAddr) -> Result<Option<KBox<Self>>> {
        let Some(host) = peer.host() else {
            return Ok(None);
        };
        let found = Keyring::find(fmt!("rpcrdma:{host}")).transpose();
        let found = found.or_else(|| Keyring::find(fmt!("rpcrdma:any")).transpose());
        let key = match found {
            None => return Ok(None),
            Some(Ok(key)) => Some(key),
            Some(Err(error)) if error == ENOMEM => return Err(error),
            Some(Err(error)) => {
                if net::may_log() {
                    pr_err!(
                        "the key for {peer} cannot be used: error {}\n",
                        error.to_errno()
                    );
                }
                None
            }
        };
        let this = Self {
            peer,
            handshake: Handshake::new(side, key::random()),
            key,
        };
        Ok(Some(KBox::new(this, GFP_NORETRY)?))
    }

    /// Demands it of the peer of a connection.
    pub(crate) fn demand(&self, config: &mut Config) {
        config.auth = Policy::Require;
        config.mechanism = self.key.is_some();
    }

    /// The material to be sent next, if there is any.
    pub(super) fn pending(&self) -> Option<&[u8]> {
        self.handshake.pending()
    }

    /// It was sent.
    pub(super) fn sent(&mut self) {
        self.handshake.sent();
    }

    /// Judges material of the peer. Context: any but hard interrupts.
    pub(super) fn judge(&mut self, material: &[u8]) -> Verdict {
        let Self { handshake, key, .. } = self;
        handshake.handle(material, |octets| key.as_ref()?.hmac_sha256(octets))
    }

    /// Tells the administrator that the peer has not proven what it had to. Context: any.
    #[cold]
    pub(super) fn report(&self) {
        if net::may_log() {
            let peer = self.peer;
            pr_err!("{peer} has not proven that it has our key: the connection ends\n");
        }
    }
}
