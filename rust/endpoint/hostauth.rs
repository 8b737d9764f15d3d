// SPDX-License-Identifier: GPL-2.0

//! Host authentication: which peers have to prove that they have our key, with which key, and for which
//! connection.
//!
//! A [`Setting`] of each role demands the proof. It does not depend on the keys: a peer that has to give a
//! proof is refused while there is no key to verify the proof with. The setting `auto` demands a proof of
//! each peer after the first key. The keyring `.rpcrdma` calls [`Arming`] before it links a key, and later
//! changes of the keyring do not revoke the demand.
//!
//! A server proves itself to each client for which it has a key. A client sends material only to a server of
//! which it demands a proof, because other servers may not answer it.
//!
//! A connection without a proof ends when the setting or a new key demands the proof of its peer
//! ([`Standing`]).

use super::{
    EndReason,
    Role,
    Shared, //
};
use crate::{
    proto::connection::{
        self,
        host::{
            hosts,
            Address,
            Demand,
            Fit,
            KeyName,
            Prefix, //
        },
        hostauth::{
            Policy,
            Verdict, //
        },
        shared_key::{
            Channel,
            End,
            Handshake,
            MIN_KEY_LEN, //
        },
        Config,
        Side, //
    },
    support::{
        errno,
        global::Global,
        key::{
            self,
            Key,
            Keyring,
            Purpose, //
        },
        memalloc::{
            NofsScope,
            GFP_NORETRY, //
        },
        net::{
            self,
            NetInterface,
            SockAddr, //
        },
        sysctl::Text, //
    },
};
use kernel::{
    prelude::*,
    str::CStr,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc, //
    },
};

/// The setting that selects the peers of a role that have to prove their identity.
pub(crate) struct Setting {
    side: Side,
    /// The name of the setting below `/proc/sys`.
    name: &'static str,
    /// The module's parameter with the initial value.
    parameter: &'static str,
}

/// The servers that this machine connects to.
pub(crate) static SERVERS: Setting = Setting {
    side: Side::Client,
    name: "sunrpc.rdma_host_auth",
    parameter: "host_auth",
};

/// The clients that connect to this machine.
pub(crate) static CLIENTS: Setting = Setting {
    side: Side::Server,
    name: "sunrpc.svc_rdma.host_auth",
    parameter: "svc_host_auth",
};

impl Setting {
    /// Returns the setting for the peers of `side`.
    fn of(side: Side) -> &'static Self {
        match side {
            Side::Client => &SERVERS,
            Side::Server => &CLIENTS,
        }
    }

    /// Parses the module's parameter.
    ///
    /// # Errors
    ///
    /// `EINVAL`: the text is not a valid setting, which the log reports. `ENOMEM`: there is no
    /// memory.
    fn begin(&self, text: &CStr) -> Result<Said> {
        let said = text.to_str().map_err(|_| EINVAL).and_then(Said::parse);
        said.inspect_err(|_| {
            let name = self.parameter;
            pr_err!("{name}: has to be auto, none, any or a list of addresses and prefixes\n");
        })
    }
}

impl Text for Setting {
    fn get(&self) -> Result<KVec<u8>> {
        let mut text = KVec::new();
        let copied = STATE.with(|state| {
            let _nofs = NofsScope::enter();
            text.extend_from_slice(&state.said(self.side).text, GFP_NORETRY)
        });
        copied.ok_or(ENODEV)??;
        Ok(text)
    }

    fn set(&self, text: &str) -> Result {
        let said = Said::parse(text)?;
        let before = STATE.with(|state| core::mem::replace(state.said_mut(self.side), said));
        drop(before.ok_or(ENODEV)?);
        review();
        Ok(())
    }
}

/// A parsed setting.
struct Said {
    demand: Demand,
    listed: KVec<Prefix>,
    text: KVec<u8>,
}

impl Said {
    /// Parses the text of a setting.
    ///
    /// # Errors
    ///
    /// `EINVAL`: the text is not a valid setting. `ENOMEM`: there is no memory.
    fn parse(text: &str) -> Result<Self> {
        let demand = Demand::parse(text).ok_or(EINVAL)?;
        let mut listed = KVec::new();
        if demand == Demand::Hosts {
            for prefix in hosts(text).flatten() {
                listed.push(prefix, GFP_KERNEL)?;
            }
        }
        let mut copy = KVec::new();
        copy.extend_from_slice(text.as_bytes(), GFP_KERNEL)?;
        Ok(Self {
            demand,
            listed,
            text: copy,
        })
    }
}

/// Not zero after the first key: the setting `auto` demands proofs.
static ARMED: Atomic<i32> = Atomic::new(0);

/// Reacts to keys that enter the keyring.
struct Arming;

impl Purpose for Arming {
    const LEAST: usize = MIN_KEY_LEN;

    fn entering() {
        ARMED.store(1, Relaxed);
    }

    fn entered() {
        review();
        if let Err(error) = report_names() {
            pr_err!("the keys in .rpcrdma: error {}\n", error.to_errno());
        }
    }
}

/// Logs each key whose name is not the name of a peer. A key is logged once.
///
/// # Errors
///
/// `ENOMEM`: there is no memory.
fn report_names() -> Result {
    let mut nameless = KVec::new();
    for key in Keyring::keys()? {
        let name = key.name();
        if name.and_then(KeyName::parse).is_some() {
            continue;
        }
        let known = STATE.with(|state| state.nameless.contains(&key.serial()));
        if known == Some(false) {
            let name = name.unwrap_or("with a name that is no text");
            pr_err!("the key {name} is for no peer: it has to be rpcrdma:ADDRESS or rpcrdma:any\n");
        }
        nameless.push(key.serial(), GFP_KERNEL)?;
    }
    let before = STATE.with(|state| core::mem::replace(&mut state.nameless, nameless));
    drop(before);
    Ok(())
}

/// The endpoint of a connection, of any role.
trait Unproven: Send + Sync {
    /// Ends the connection unless the peer has proven itself. Context: process, may sleep.
    fn end(&self, peer: &SockAddr);
}

impl<R: Role> Unproven for Shared<R> {
    fn end(&self, peer: &SockAddr) {
        let is_over = self.closing.load(Relaxed) != 0;
        if is_over
            || self
                .lock()
                .protocol()
                .is_some_and(|protocol| protocol.is_authenticated())
        {
            return;
        }
        report(peer);
        if self.progress.failed(errno::not_connected()) {
            let why = connection::CloseReason::NotAuthenticated;
            self.request_close(EndReason::Protocol(why));
        }
    }
}

/// A connection that was made without a demand for a proof.
struct UnprovenConnection {
    side: Side,
    peer: SockAddr,
    endpoint: Arc<dyn Unproven>,
    number: u64,
}

struct AuthState {
    servers: Said,
    clients: Said,
    standing: KVec<UnprovenConnection>,
    /// The number of the newest entry.
    number: u64,
    /// Counts the events that may demand more proofs than before. A connection is judged and entered in
    /// the same epoch, or is not made.
    epoch: u64,
    /// The serial numbers of the keys that [`report_names`] has reported.
    nameless: KVec<i32>,
}

static STATE: Global<AuthState> = Global::new();

impl AuthState {
    fn said(&self, side: Side) -> &Said {
        match side {
            Side::Client => &self.servers,
            Side::Server => &self.clients,
        }
    }

    fn said_mut(&mut self, side: Side) -> &mut Said {
        match side {
            Side::Client => &mut self.servers,
            Side::Server => &mut self.clients,
        }
    }

    fn demands(&self, side: Side, peer: &SockAddr) -> bool {
        let said = self.said(side);
        let armed = ARMED.load(Relaxed) != 0;
        let listed = said.listed.iter().copied();
        said.demand.includes(address(peer), listed, armed)
    }
}

/// Ends the connections without a proof whose peers have to give one now. Context: process, may sleep.
fn review() {
    STATE.with(|state| {
        state.epoch += 1;
        for entry in &state.standing {
            if state.demands(entry.side, &entry.peer) {
                entry.endpoint.end(&entry.peer);
            }
        }
    });
}

fn address(peer: &SockAddr) -> Option<Address> {
    peer.socket().map(|peer| peer.ip().into())
}

/// The keyring and the settings; dropping it removes them.
pub(crate) struct AuthRegistration {
    _keyring: Keyring,
}

impl AuthRegistration {
    /// Makes the keyring `name` and the settings with the initial values `servers` and `clients`.
    /// Context: process, may sleep.
    ///
    /// # Errors
    ///
    /// `EINVAL`: a value cannot be parsed; the kernel's log names it. `EEXIST`, `ENOMEM`.
    pub(crate) fn new(name: &CStr, servers: &CStr, clients: &CStr) -> Result<Self> {
        let state = AuthState {
            servers: SERVERS.begin(servers)?,
            clients: CLIENTS.begin(clients)?,
            standing: KVec::new(),
            number: 0,
            epoch: 0,
            nameless: KVec::new(),
        };
        let keyring = Keyring::new::<Arming>(name)?;
        STATE.set(state)?;
        Ok(Self { _keyring: keyring })
    }
}

impl Drop for AuthRegistration {
    fn drop(&mut self) {
        drop(STATE.take());
    }
}

/// The demand on the peer of a connection that is about to be made.
pub(crate) struct Judgement {
    side: Side,
    peer: SockAddr,
    policy: Policy,
    epoch: u64,
    key: Option<KBox<SharedKey>>,
}

impl Judgement {
    /// Judges `peer`, to which `link` leads. Context: process, may sleep.
    ///
    /// # Errors
    ///
    /// `ENOTCONN`: `peer` has to give a proof, and there is no key for it; the kernel's log has the
    /// reason. `ENOMEM`.
    //= V2-134, V2-135, V2-197
    //= D-50
    pub(crate) fn new(side: Side, peer: SockAddr, link: &NetInterface) -> Result<Self> {
        if !Keyring::is_usable() {
            // The keyring was revoked or invalidated, and may have had keys.
            ARMED.store(1, Relaxed);
        }
        let judged = STATE.with(|state| (state.epoch, state.demands(side, &peer)));
        let (epoch, demanded) = judged.unwrap_or((0, true));
        let key = if demanded || side == Side::Server {
            find(&peer, link)?
        } else {
            None
        };
        let policy = match (demanded, &key) {
            (false, None) => Policy::Ignore,
            (false, Some(_)) => Policy::Optional,
            (true, Some(_)) => Policy::Require,
            (true, None) => {
                if net::may_log_hostauth() {
                    let setting = Setting::of(side).name;
                    pr_err!("{peer} has to prove that it has our key ({setting}), and there is none to judge by\n");
                }
                return Err(errno::not_connected());
            }
        };
        let key = match key {
            Some(key) => Some(KBox::new(SharedKey::new(side, peer, key), GFP_NORETRY)?),
            None => None,
        };
        Ok(Self {
            side,
            peer,
            policy,
            epoch,
            key,
        })
    }

    /// Returns whether the peer has to give a proof.
    pub(crate) fn is_demanding(&self) -> bool {
        self.policy == Policy::Require
    }

    /// Sets the policy of a connection.
    pub(crate) fn apply(&self, config: &mut Config) {
        config.auth = self.policy;
    }

    /// Enters the connection if its peer need not give a proof. Returns the entry and the key. Context:
    /// process, may sleep.
    ///
    /// # Errors
    ///
    /// `ENOTCONN`: the settings or the keys have changed since the judgement. `ENOMEM`.
    pub(super) fn enter<R: Role>(
        self,
        endpoint: &Arc<Shared<R>>,
    ) -> Result<(Standing, Option<KBox<SharedKey>>)> {
        let Self {
            side,
            peer,
            epoch,
            key,
            ..
        } = self;
        if self.policy == Policy::Require {
            return Ok((Standing(None), key));
        }
        let endpoint: Arc<dyn Unproven> = endpoint.clone();
        let entered = STATE.with(|state| {
            if state.epoch != epoch {
                return Err(errno::not_connected());
            }
            state.number += 1;
            let number = state.number;
            let entry = UnprovenConnection {
                side,
                peer,
                endpoint,
                number,
            };
            let _nofs = NofsScope::enter();
            state.standing.push(entry, GFP_NORETRY)?;
            Ok(number)
        });
        let number = entered.ok_or(errno::not_connected())??;
        Ok((Standing(Some(number)), key))
    }
}

/// Returns the number of connections without a proof, of both sides. Context: process, may sleep.
pub(super) fn unproven() -> usize {
    STATE.with(|state| state.standing.len()).unwrap_or(0)
}

/// The entry of a connection without a proof, by number; dropping it removes the entry.
pub(super) struct Standing(Option<u64>);

impl Drop for Standing {
    fn drop(&mut self) {
        let Some(number) = self.0 else { return };
        let entry = STATE.with(|state| {
            let standing = &mut state.standing;
            let place = standing.iter().position(|entry| entry.number == number)?;
            standing.remove(place).ok()
        });
        drop(entry);
    }
}

/// Finds the usable key with the best name for `peer`.
///
/// # Errors
///
/// `ENOMEM`.
fn find(peer: &SockAddr, link: &NetInterface) -> Result<Option<Key>> {
    let mut best: Option<(Fit, bool, Key)> = None;
    for key in Keyring::keys()? {
        let name = key.name().and_then(KeyName::parse);
        let fit = name.and_then(|name| name.fit(address(peer), |name| link.has_name(name)));
        let Some(fit) = fit else { continue };
        let usable = key.check(MIN_KEY_LEN).is_ok();
        let better = best
            .as_ref()
            .is_none_or(|(other, was_usable, _)| (fit, usable) > (*other, *was_usable));
        if better {
            best = Some((fit, usable, key));
        }
    }
    let Some((_, usable, key)) = best else {
        return Ok(None);
    };
    if !usable && net::may_log_hostauth() {
        let name = key.name().unwrap_or_default();
        pr_err!("the key {name} cannot be used: it has expired, was revoked or has fewer than {MIN_KEY_LEN} octets\n");
    }
    Ok(usable.then_some(key))
}

/// Reports in the kernel's log that a peer has not given the proof. Context: any.
#[cold]
fn report(peer: &SockAddr) {
    if net::may_log_hostauth() {
        pr_err!("{peer} has not proven that it has our key: the connection ends\n");
    }
}

/// The exchange of proofs on one connection.
pub(crate) struct SharedKey {
    side: Side,
    peer: SockAddr,
    key: Key,
    /// This end and the peer's end, the latter without the queue pair.
    ends: Option<(End, End)>,
    /// `None` until the peer's queue pair is known.
    handshake: Option<Handshake>,
    reported: bool,
}

impl SharedKey {
    fn new(side: Side, peer: SockAddr, key: Key) -> Self {
        Self {
            side,
            peer,
            key,
            ends: None,
            handshake: None,
            reported: false,
        }
    }

    /// Sets the ends of the connection. `queue_pair` is this end's; it is none where the connection
    /// manager does not send it to the peer.
    pub(super) fn connects(&mut self, own: &SockAddr, peer: &SockAddr, queue_pair: Option<u32>) {
        let end = |address: &SockAddr, queue_pair| {
            let socket = address.socket()?;
            Some(End {
                address: socket.ip().into(),
                port: socket.port(),
                queue_pair,
            })
        };
        self.ends = end(own, queue_pair.unwrap_or(0)).zip(end(peer, 0));
    }

    /// Begins the exchange. `queue_pair` is the peer's; it is 0 where the connection manager does not
    /// receive it.
    pub(super) fn begin(&mut self, queue_pair: u32) {
        let Some((own, peer)) = self.ends else { return };
        let peer = End { queue_pair, ..peer };
        let (client, server) = match self.side {
            Side::Client => (own, peer),
            Side::Server => (peer, own),
        };
        let channel = Channel { client, server };
        self.handshake = Some(Handshake::new(self.side, channel, key::random()));
    }

    /// Returns the material to be sent next, if there is any.
    pub(super) fn pending(&self) -> Option<&[u8]> {
        self.handshake.as_ref()?.pending()
    }

    /// Notes that the material was sent.
    pub(super) fn sent(&mut self) {
        if let Some(handshake) = &mut self.handshake {
            handshake.sent();
        }
    }

    /// Judges material of the peer. Context: softirq or process, does not sleep.
    pub(super) fn judge(&mut self, material: &[u8]) -> Verdict {
        let Self { handshake, key, .. } = self;
        let mac = |octets: &[u8]| key.hmac_sha256(octets);
        let verdict = handshake
            .as_mut()
            .map(|handshake| handshake.handle(material, mac));
        verdict.unwrap_or(Verdict::Refuse)
    }

    /// Reports in the kernel's log, once, that the peer has not given the proof. Context: any.
    #[cold]
    pub(super) fn report(&mut self) {
        if !core::mem::replace(&mut self.reported, true) {
            report(&self.peer);
        }
    }
}
