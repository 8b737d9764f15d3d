// SPDX-License-Identifier: GPL-2.0

//! Transport properties (version 2), which each side announces to the other.

use crate::proto::wire::{
    error::{
        BadHeader,
        NoRoom, //
    },
    xdr::{
        is_pad,
        padded_len,
        Reader,
        Writer, //
    },
};

//= V2-127, V2-128, V2-130
//= V2-131, V2-132, V2-134
const SBSIZ: u32 = 1;
const RBSIZ: u32 = 2;
const RSSIZ: u32 = 3;
const RCSIZ: u32 = 4;
const BRS: u32 = 5;
const HOSTAUTH: u32 = 6;

/// The length of an encoded property set with every property but HOSTAUTH.
pub const SET_LEN: usize = 64;

/// The bytes that authentication material takes in a property set beside its own padded length.
pub const HOSTAUTH_LEN: usize = 12;

/// The RPCs that a client takes in the reverse direction.
//= V2-132
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum ReverseSupport {
    /// No reverse RPCs.
    None,
    /// Reverse RPCs without chunks.
    Inline,
    /// The same as in the forward direction.
    General,
}

impl ReverseSupport {
    const fn number(self) -> u32 {
        match self {
            Self::None => 0,
            Self::Inline => 1,
            Self::General => 2,
        }
    }

    /// Converts a number. A value that cannot be interpreted stands for the default.
    //= V2-132, D-28
    const fn from_number(number: u32) -> Self {
        match number {
            0 => Self::None,
            2 => Self::General,
            _ => Self::Inline,
        }
    }

    /// Returns whether a reverse Call may be sent to this client.
    //= V2-170
    pub fn allows(self, with_chunks: bool) -> bool {
        if with_chunks {
            self >= Self::General
        } else {
            self >= Self::Inline
        }
    }
}

/// The properties of one side.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Properties {
    /// SBSIZ: the most bytes it puts into one Send.
    pub send_size: u32,
    /// RBSIZ: the most bytes it takes in one Receive.
    pub recv_size: u32,
    /// RSSIZ: the longest Segment it reads or writes.
    pub segment_size: u32,
    /// RCSIZ: the most Segments it takes in one header.
    pub segments: u32,
    /// BRS: which reverse RPCs it takes.
    pub reverse: ReverseSupport,
}

impl Properties {
    /// The values before a side announces others.
    //= V2-057, V2-119, V2-121
    //= V2-127, V2-128, V2-130
    //= V2-131, V2-132, V2-138
    pub const DEFAULT: Self = Self {
        send_size: 4096,
        recv_size: 4096,
        segment_size: 1_048_576,
        segments: 16,
        reverse: ReverseSupport::Inline,
    };

    /// The smallest receive buffer a peer can be served with.
    //= D-24
    pub const MIN_RECV_SIZE: u32 = 1024;

    /// Writes the property set, with every property there is but HOSTAUTH.
    //= V2-019, V2-120, V2-136
    pub fn encode(&self, out: &mut Writer<'_>) -> Result<(), NoRoom> {
        self.encode_some(out, 0)
    }

    /// Writes the property set with authentication material. The other properties are repeated: a
    /// property that is left out has its default value (6.4.4).
    ///
    /// The value of HOSTAUTH is XDR of its own, so the material has two lengths.
    //= V2-134, V2-136, V2-138
    //= V2-197, D-21, D-29
    //= D-50
    pub fn encode_with(&self, out: &mut Writer<'_>, material: &[u8]) -> Result<(), NoRoom> {
        let len = u32::try_from(material.len()).map_err(|_| NoRoom)?;
        self.encode_some(out, 1)?;
        out.u32(HOSTAUTH)?;
        out.u32(padded_len(len).checked_add(4).ok_or(NoRoom)?)?;
        out.opaque(material)
    }

    /// Writes the property set, to which `more` properties will be added.
    fn encode_some(&self, out: &mut Writer<'_>, more: u32) -> Result<(), NoRoom> {
        let properties = [
            (SBSIZ, self.send_size),
            (RBSIZ, self.recv_size),
            (RSSIZ, self.segment_size),
            (RCSIZ, self.segments),
            (BRS, self.reverse.number()),
        ];
        out.u32(more.saturating_add(5))?;
        for (id, value) in properties {
            out.u32(id)?;
            out.opaque(&value.to_be_bytes())?;
        }
        Ok(())
    }

    /// Returns these properties with the values that `set` contains.
    //= V2-119, V2-125, V2-138
    pub fn with(self, set: &PropertySet<'_>) -> Self {
        Self {
            send_size: set.send_size.unwrap_or(self.send_size),
            recv_size: set.recv_size.unwrap_or(self.recv_size),
            segment_size: set.segment_size.unwrap_or(self.segment_size),
            segments: set.segments.unwrap_or(self.segments),
            reverse: set.reverse.unwrap_or(self.reverse),
        }
    }
}

/// A received property set, checked.
#[derive(Clone, Copy, Debug)]
pub struct PropertySet<'a> {
    /// SBSIZ, if it is in the set.
    pub send_size: Option<u32>,
    /// RBSIZ, if it is in the set.
    pub recv_size: Option<u32>,
    /// RSSIZ, if it is in the set.
    pub segment_size: Option<u32>,
    /// RCSIZ, if it is in the set.
    pub segments: Option<u32>,
    /// BRS, if it is in the set.
    pub reverse: Option<ReverseSupport>,
    /// The value of HOSTAUTH, if it is in the set: [`material`], or any octets of another mechanism.
    pub hostauth: Option<&'a [u8]>,
    /// The properties behind the count.
    wire: &'a [u8],
}

impl<'a> PropertySet<'a> {
    /// Reads the body of a CONNPROP message, or of a sequence of them joined together.
    //= V2-019, V2-120, V2-121
    //= V2-122, V2-123, V2-124
    //= V2-125, V2-140, D-26
    //= D-27, D-28, D-29
    pub fn decode(body: &'a [u8]) -> Result<Self, BadHeader> {
        let mut reader = Reader::new(body);
        let count = reader.u32()?;
        let mut set = Self {
            send_size: None,
            recv_size: None,
            segment_size: None,
            segments: None,
            reverse: None,
            hostauth: None,
            wire: reader.rest(),
        };
        for _ in 0..count {
            let id = reader.u32()?;
            let value = reader.opaque()?;
            let default = Properties::DEFAULT;
            match id {
                SBSIZ => take(&mut set.send_size, number(value, default.send_size)?)?,
                RBSIZ => take(&mut set.recv_size, number(value, default.recv_size)?)?,
                RSSIZ => take(&mut set.segment_size, number(value, default.segment_size)?)?,
                RCSIZ => take(&mut set.segments, number(value, default.segments)?)?,
                BRS => {
                    let number = number(value, default.reverse.number())?;
                    take(&mut set.reverse, ReverseSupport::from_number(number))?;
                }
                HOSTAUTH => take(&mut set.hostauth, value)?,
                _ => {}
            }
        }
        let pad = reader.rest();
        if !is_pad(pad) {
            return Err(BadHeader::Trailing);
        }
        let used = set.wire.len().saturating_sub(pad.len());
        set.wire = set.wire.get(..used).unwrap_or_default();
        Ok(set)
    }

    /// Returns the ids of the properties that are not known here.
    //= V2-124, V2-140
    pub fn unknown(&self) -> impl Iterator<Item = u32> + 'a {
        let mut reader = Reader::new(self.wire);
        core::iter::from_fn(move || {
            let id = reader.u32().ok()?;
            reader.opaque().ok()?;
            Some(id)
        })
        .filter(|id| !(SBSIZ..=HOSTAUTH).contains(id))
    }
}

fn take<T>(place: &mut Option<T>, value: T) -> Result<(), BadHeader> {
    match place.replace(value) {
        None => Ok(()),
        Some(_) => Err(BadHeader::Property),
    }
}

fn number(value: &[u8], default: u32) -> Result<u32, BadHeader> {
    match value {
        [] => Ok(default),
        [a, b, c, d] => Ok(u32::from_be_bytes([*a, *b, *c, *d])),
        _ => Err(BadHeader::Property),
    }
}

/// Returns the authentication material in the value of HOSTAUTH; an empty value has none.
//= V2-134, D-29
pub fn material(value: &[u8]) -> Result<Option<&[u8]>, BadHeader> {
    if value.is_empty() {
        return Ok(None);
    }
    let mut reader = Reader::new(value);
    let material = reader.opaque().map_err(|_| BadHeader::Property)?;
    if reader.rest().is_empty() {
        Ok(Some(material))
    } else {
        Err(BadHeader::Property)
    }
}

/// Returns whether element `index` is in the subset of a property set that `words` stands for.
//= V2-126
pub fn subset_contains(words: &[u32], index: usize) -> bool {
    let bit = index & 31;
    words
        .get(index / 32)
        .is_some_and(|word| (word >> bit) & 1 != 0)
}

/// The effective properties of a version 2 connection, seen from one of its sides.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Effective {
    /// The most bytes this side may put into one Send.
    pub inline_send: u32,
    /// The most bytes this side has to expect in one Receive.
    pub inline_recv: u32,
    /// The longest Segment a Call of this side may name.
    pub segment_size: u32,
    /// The most Segments in the header of a Call of this side.
    pub segments: u32,
    /// The reverse RPCs that the peer accepts.
    pub reverse: ReverseSupport,
}

impl Effective {
    /// Computes the effective properties from both sides' properties.
    ///
    /// No value is above this side's value. A very small send size of the peer is ignored: there would be no
    /// Reply without a Reply chunk.
    //= V2-055, V2-127, V2-128
    //= V2-129, V2-130, V2-131
    //= V2-195, V2-200, D-24
    //= D-25
    pub fn new(own: &Properties, peer: &Properties) -> Self {
        Self {
            inline_send: own.send_size.min(peer.recv_size),
            inline_recv: own
                .recv_size
                .min(peer.send_size.max(Properties::MIN_RECV_SIZE)),
            segment_size: own.segment_size.min(peer.segment_size),
            segments: own.segments.min(peer.segments),
            reverse: peer.reverse,
        }
    }
}
