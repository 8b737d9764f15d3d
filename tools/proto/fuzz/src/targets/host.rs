// SPDX-License-Identifier: GPL-2.0

//! Names of keys and settings: any text is an address, a prefix, a list or invalid, and has the
//! same meaning after formatting.

use std::net::Ipv6Addr;

use rpcrdma_proto::proto::connection::host::{hosts, Address, Demand, Fit, KeyName, Prefix};

use crate::source::Source;

pub fn run(input: &[u8]) {
    let mut source = Source::new(input);
    let peer = Address(std::array::from_fn(|_| source.u8()));
    let text = String::from_utf8_lossy(source.rest());
    if let Some(address) = Address::parse(&text) {
        assert_eq!(
            Address::parse(&Ipv6Addr::from(address.0).to_string()),
            Some(address)
        );
        let prefix = Prefix::parse(&text).expect("an address is a prefix");
        assert!(prefix.contains(address));
        assert_eq!(prefix.contains(peer), peer == address);
    }
    if let Some(prefix) = Prefix::parse(&text) {
        let bits: u32 = text
            .split_once('/')
            .map_or(128, |(_, bits)| bits.parse().expect("digits"));
        let is_v4 = bits <= 32 && text.contains('.') && !text.contains(':');
        let bits = if is_v4 { bits + 96 } else { bits };
        let (address, _) = text.split_once('/').unwrap_or((&text, ""));
        let own = u128::from_be_bytes(Address::parse(address).expect("checked").0);
        let differ = own ^ u128::from_be_bytes(peer.0);
        assert_eq!(prefix.contains(peer), differ.leading_zeros() >= bits);
    }
    let listed = || hosts(&text).flatten();
    if let Some(demand) = Demand::parse(&text) {
        let known = match demand {
            Demand::None => false,
            Demand::Auto => false,
            Demand::Any => true,
            Demand::Hosts => listed().any(|prefix| prefix.contains(peer)),
        };
        assert_eq!(demand.includes(Some(peer), listed(), false), known);
        assert_eq!(
            demand.includes(None, listed(), true),
            demand != Demand::None
        );
    }
    let name = format!("rpcrdma:{text}");
    if let Some(name) = KeyName::parse(&name) {
        let fit = name.fit(Some(peer), |_| true);
        match name {
            KeyName::Any => assert_eq!(fit, Some(Fit::Any)),
            KeyName::Host { address, .. } => assert_eq!(fit.is_some(), address == peer),
        }
    }
}
