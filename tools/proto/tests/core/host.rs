// SPDX-License-Identifier: GPL-2.0

//! Hosts, as an administrator names them.

use rpcrdma_proto::proto::connection::host::{hosts, Address, Demand, Fit, KeyName, Prefix};

fn address(text: &str) -> Address {
    Address::parse(text).expect(text)
}

//= V2-197, D-50 (test)
#[test]
fn spellings_of_an_address_are_the_same() {
    for spelling in [
        "2001:db8::1",
        "2001:DB8::1",
        "2001:db8:0::1",
        "2001:0db8:0000:0000:0000:0000:0000:0001",
        "2001:db8::0.0.0.1",
    ] {
        assert_eq!(address(spelling), address("2001:db8::1"), "{spelling}");
    }
    let mapped = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 192, 0, 2, 1];
    for spelling in ["192.0.2.1", "::ffff:192.0.2.1", "::FFFF:C000:201"] {
        assert_eq!(address(spelling).0, mapped, "{spelling}");
    }
    for wrong in [
        "",
        "192.0.2",
        "192.0.2.01",
        "192.0.2.256",
        "192.0.2.1 ",
        " ::1",
        "[::1]",
        "::1%eth0",
        "2001:db8::g",
        "1::2::3",
        "any",
        "::1/128",
    ] {
        assert_eq!(Address::parse(wrong), None, "{wrong}");
    }
}

//= V2-135, D-50 (test)
#[test]
fn prefixes_contain_what_begins_with_them() {
    let contains = |prefix, other| {
        Prefix::parse(prefix)
            .expect(prefix)
            .contains(address(other))
    };
    for (prefix, inside, outside) in [
        ("192.0.2.1", "192.0.2.1", "192.0.2.2"),
        ("192.0.2.1", "::ffff:192.0.2.1", "::192.0.2.1"),
        ("192.0.2.77/24", "192.0.2.1", "192.0.3.1"),
        ("192.0.2.128/25", "192.0.2.255", "192.0.2.127"),
        ("10.0.0.0/8", "10.255.0.1", "11.0.0.1"),
        ("0.0.0.0/0", "203.0.113.1", "2001:db8::1"),
        ("2001:db8::/32", "2001:DB8:ffff::1", "2001:db9::"),
        ("2001:db8::/31", "2001:db9::", "2001:dba::"),
        ("2001:db8::7/128", "2001:db8::7", "2001:db8::6"),
        ("fe80::/10", "febf::1", "fec0::1"),
        ("::ffff:0:0/96", "192.0.2.1", "2001:db8::1"),
    ] {
        assert!(contains(prefix, inside), "{prefix} {inside}");
        assert!(!contains(prefix, outside), "{prefix} {outside}");
    }
    assert!(contains("::/0", "192.0.2.1") && contains("::/0", "2001:db8::1"));
    for wrong in [
        "192.0.2.0/33",
        "192.0.2.0/",
        "192.0.2.0/+8",
        "192.0.2.0/0008",
        "2001:db8::/129",
        "2001:db8::/300",
        "/8",
        "192.0.2.0/8/8",
        "fe80::1%eth0",
    ] {
        assert_eq!(Prefix::parse(wrong), None, "{wrong}");
    }
}

fn demands(text: &str, peer: Option<&str>, armed: bool) -> bool {
    let demand = Demand::parse(text).expect(text);
    demand.includes(peer.map(address), hosts(text).flatten(), armed)
}

//= V2-135, D-50 (test)
#[test]
fn a_setting_says_who_has_to_prove_it() {
    let peer = Some("192.0.2.1");
    for armed in [false, true] {
        assert!(!demands("none", peer, armed));
        assert!(!demands("none", None, armed));
        assert_eq!(demands("auto", peer, armed), armed);
        assert_eq!(demands("auto", None, armed), armed);
        assert!(demands("any", peer, armed));
        assert!(demands("any", None, armed));
        let list = "198.51.100.0/24, 2001:db8::1,,192.0.2.1";
        assert!(demands(list, peer, armed));
        assert!(demands(list, Some("198.51.100.9"), armed));
        assert!(!demands(list, Some("203.0.113.1"), armed));
        // It could be each of them.
        assert!(demands(list, None, armed));
    }
    for wrong in [
        "",
        " ",
        ",",
        "Any",
        "any,192.0.2.1",
        "192.0.2.1 none",
        "192.0.2.l",
    ] {
        assert_eq!(Demand::parse(wrong), None, "{wrong}");
    }
}

//= V2-197, D-50 (test)
#[test]
fn the_key_with_the_best_name_is_taken() {
    let fit = |name, peer: Option<&str>, link: &str| {
        let name = KeyName::parse(name).expect(name);
        name.fit(peer.map(address), |other| other == link)
    };
    let peer = Some("fe80::1");
    assert_eq!(fit("rpcrdma:any", peer, "eth0"), Some(Fit::Any));
    assert_eq!(fit("rpcrdma:any", None, "eth0"), Some(Fit::Any));
    assert_eq!(fit("rpcrdma:FE80:0::1", peer, "eth0"), Some(Fit::Address));
    assert_eq!(fit("rpcrdma:fe80::1%eth0", peer, "eth0"), Some(Fit::Link));
    assert_eq!(fit("rpcrdma:fe80::1%eth0", peer, "eth1"), None);
    assert_eq!(fit("rpcrdma:fe80::1", Some("fe80::2"), "eth0"), None);
    assert_eq!(fit("rpcrdma:fe80::1", None, "eth0"), None);
    let mapped = fit("rpcrdma:192.0.2.1", Some("::ffff:192.0.2.1"), "eth0");
    assert_eq!(mapped, Some(Fit::Address));
    assert!(Fit::Link > Fit::Address && Fit::Address > Fit::Any);
    for wrong in [
        "any",
        "rpcrdma:",
        "rpcrdma:Any",
        "rpcrdma:192.0.2.l",
        "rpcrdma:192.0.2.0/24",
        "rpcrdma:fe80::1%",
        "rpcrdma:2001:db8::1%eth0",
        "rpcrdma:192.0.2.1%eth0",
        "RPCRDMA:192.0.2.1",
    ] {
        assert_eq!(KeyName::parse(wrong), None, "{wrong}");
    }
}
