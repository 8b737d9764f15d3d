// SPDX-License-Identifier: GPL-2.0

//! Names of hosts: in the names of keys, and in the settings that demand proofs of peers.
//!
//! An address is compared as 16 octets. An IPv4 address has its IPv4-mapped form (RFC 4291, 2.5.5.2),
//! so that neither the spelling nor the family of a peer's socket matters.

use core::net::{
    IpAddr,
    Ipv4Addr,
    Ipv6Addr, //
};

/// The address of a host.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Address(pub [u8; 16]);

impl Address {
    const LEN: usize = 16;
    const BITS: u8 = 128;
    /// The bits of the IPv4-mapped form before the IPv4 address.
    const BITS_BEFORE_V4: u8 = 96;

    /// Reads any spelling of an IPv4 or IPv6 address, without a scope.
    pub fn parse(text: &str) -> Option<Self> {
        text.parse().ok().map(|address: IpAddr| address.into())
    }

    /// Returns whether the address has a meaning on one link only.
    fn is_link_local(self) -> bool {
        matches!(self.0, [0xfe, second, ..] if second & 0xc0 == 0x80)
    }
}

impl From<IpAddr> for Address {
    fn from(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(address) => address.into(),
            IpAddr::V6(address) => address.into(),
        }
    }
}

impl From<Ipv4Addr> for Address {
    fn from(address: Ipv4Addr) -> Self {
        address.to_ipv6_mapped().into()
    }
}

impl From<Ipv6Addr> for Address {
    fn from(address: Ipv6Addr) -> Self {
        Self(address.octets())
    }
}

/// An address of which only the first bits count.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Prefix {
    address: Address,
    bits: u8,
}

impl Prefix {
    /// Reads `ADDRESS` or `ADDRESS/BITS`.
    pub fn parse(text: &str) -> Option<Self> {
        let (address, bits) = match text.split_once('/') {
            None => (text, None),
            Some((address, bits)) => (address, Some(decimal(bits)?)),
        };
        let is_v4 = address.parse::<Ipv4Addr>().is_ok();
        let before = if is_v4 { Address::BITS_BEFORE_V4 } else { 0 };
        let bits = match bits {
            None => Address::BITS,
            Some(bits) => bits.checked_add(before)?,
        };
        (bits <= Address::BITS).then_some(Self {
            address: Address::parse(address)?,
            bits,
        })
    }

    /// Returns whether `address` begins with the bits of this prefix.
    pub fn contains(&self, address: Address) -> bool {
        let mut left = u32::from(self.bits);
        let pairs = self.address.0.iter().zip(&address.0);
        pairs.take(Address::LEN).all(|(own, other)| {
            let bits = left.min(u8::BITS);
            left = left.saturating_sub(bits);
            let mask = !u8::MAX.checked_shr(bits).unwrap_or(0);
            (own ^ other) & mask == 0
        })
    }
}

/// Reads a number of at most three decimal digits.
fn decimal(text: &str) -> Option<u8> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    if digits && text.len() <= 3 {
        text.parse().ok()
    } else {
        None
    }
}

/// The peers that have to give a proof.
//= V2-135, D-50
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Demand {
    /// No peer.
    None,
    /// No peer before the first key, and each peer from then on.
    Auto,
    /// Each peer.
    Any,
    /// The peers in a list of [`hosts`].
    Hosts,
}

impl Demand {
    /// Reads `none`, `auto`, `any` or a list of addresses and prefixes. Each word has to be valid.
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "none" => Some(Self::None),
            "auto" => Some(Self::Auto),
            "any" => Some(Self::Any),
            list => {
                let mut all = hosts(list).peekable();
                all.peek()?;
                all.all(|prefix| prefix.is_some()).then_some(Self::Hosts)
            }
        }
    }

    /// Returns whether `peer` has to give a proof. `listed` are the prefixes of a list, and `armed` says
    /// whether there has been a key. A peer without an address counts as listed.
    pub fn includes(
        self,
        peer: Option<Address>,
        mut listed: impl Iterator<Item = Prefix>,
        armed: bool,
    ) -> bool {
        match (self, peer) {
            (Self::None, _) => false,
            (Self::Auto, _) => armed,
            (Self::Any, _) | (Self::Hosts, None) => true,
            (Self::Hosts, Some(peer)) => listed.any(|prefix| prefix.contains(peer)),
        }
    }
}

/// Returns the prefixes of a list, which commas or spaces separate; `None` is for a wrong one.
pub fn hosts(list: &str) -> impl Iterator<Item = Option<Prefix>> + '_ {
    list.split([',', ' ', '\t'])
        .filter(|word| !word.is_empty())
        .map(Prefix::parse)
}

/// The peers that a key is for, as its name says.
//= V2-197, D-50
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum KeyName<'a> {
    /// All peers without a key of their own.
    Any,
    /// One host, on one link or, without the name of a link, on each link.
    Host {
        /// The host.
        address: Address,
        /// The name of the interface to the link.
        link: Option<&'a str>,
    },
}

/// The match of a key with a peer; the greatest is the best.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Fit {
    /// The key is for any peer.
    Any,
    /// The key is for the address.
    Address,
    /// The key is for the address on the peer's link.
    Link,
}

impl<'a> KeyName<'a> {
    /// The beginning of each name.
    const PREFIX: &'static str = "rpcrdma:";

    /// Reads `rpcrdma:any`, `rpcrdma:ADDRESS` or, of a link-local address,
    /// `rpcrdma:ADDRESS%INTERFACE`.
    pub fn parse(name: &'a str) -> Option<Self> {
        let name = name.strip_prefix(Self::PREFIX)?;
        if name == "any" {
            return Some(Self::Any);
        }
        let (address, link) = match name.split_once('%') {
            None => (name, None),
            Some((address, link)) => (address, Some(link)),
        };
        let address = Address::parse(address)?;
        let is_meant = link.is_none_or(|link| address.is_link_local() && !link.is_empty());
        is_meant.then_some(Self::Host { address, link })
    }

    /// Returns how well the key fits a peer. `is_link` says whether an interface leads to the peer.
    pub fn fit(&self, peer: Option<Address>, is_link: impl FnOnce(&'a str) -> bool) -> Option<Fit> {
        match *self {
            Self::Any => Some(Fit::Any),
            Self::Host { address, .. } if peer != Some(address) => None,
            Self::Host { link: None, .. } => Some(Fit::Address),
            Self::Host {
                link: Some(link), ..
            } => is_link(link).then_some(Fit::Link),
        }
    }
}
