// SPDX-License-Identifier: GPL-2.0

//! Reading and writing XDR items in byte slices.

use crate::proto::wire::error::{
    BadHeader,
    NoRoom, //
};

/// Returns the number of pad bytes behind an XDR item of `len` bytes.
#[inline]
pub const fn pad_len(len: u32) -> u32 {
    len.wrapping_neg() & 3
}

/// Returns `len` with its XDR pad, or `u32::MAX` when that does not fit.
#[inline]
pub const fn padded_len(len: u32) -> u32 {
    len.saturating_add(pad_len(len))
}

/// Returns whether the bytes behind the last XDR item of a message are nothing but pad, however long.
//= D-31
pub fn is_pad(rest: &[u8]) -> bool {
    rest.iter().all(|byte| *byte == 0)
}

/// A cursor over received bytes. A failed read consumes nothing.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// Starts at the first byte of `bytes`.
    #[inline]
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// Returns the bytes not read yet.
    #[inline]
    pub const fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// Reads `N` bytes.
    #[inline]
    pub fn array<const N: usize>(&mut self) -> Result<&'a [u8; N], BadHeader> {
        let (array, rest) = self
            .rest
            .split_first_chunk::<N>()
            .ok_or(BadHeader::Truncated)?;
        self.rest = rest;
        Ok(array)
    }

    /// Reads `len` bytes.
    #[inline]
    pub fn bytes(&mut self, len: usize) -> Result<&'a [u8], BadHeader> {
        let (bytes, rest) = self
            .rest
            .split_at_checked(len)
            .ok_or(BadHeader::Truncated)?;
        self.rest = rest;
        Ok(bytes)
    }

    /// Reads an unsigned integer.
    #[inline]
    //= V1-001
    pub fn u32(&mut self) -> Result<u32, BadHeader> {
        Ok(u32::from_be_bytes(*self.array()?))
    }

    /// Reads two words as one number.
    #[inline]
    pub fn u64(&mut self) -> Result<u64, BadHeader> {
        Ok(u64::from_be_bytes(*self.array()?))
    }

    /// Reads the word that says whether an optional item follows.
    #[inline]
    //= V1-015
    pub fn present(&mut self) -> Result<bool, BadHeader> {
        match self.u32()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(BadHeader::Presence),
        }
    }

    /// Reads a variable-length opaque and skips its pad, with any content.
    //= V1-023
    pub fn opaque(&mut self) -> Result<&'a [u8], BadHeader> {
        let mut ahead = *self;
        let len = ahead.u32()?;
        let bytes = ahead.bytes(len as usize)?;
        ahead.bytes(pad_len(len) as usize)?;
        *self = ahead;
        Ok(bytes)
    }
}

/// A cursor that fills a buffer from its start. After a failed write, nothing more fits.
#[derive(Debug)]
pub struct Writer<'a> {
    rest: &'a mut [u8],
    size: usize,
}

impl<'a> Writer<'a> {
    /// Starts at the first byte of `out`.
    #[inline]
    pub fn new(out: &'a mut [u8]) -> Self {
        let size = out.len();
        Self { rest: out, size }
    }

    /// Returns the number of bytes that were written.
    #[inline]
    pub const fn len(&self) -> usize {
        self.size.saturating_sub(self.rest.len())
    }

    /// Returns whether nothing has been written.
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Leaves out `N` bytes and returns them, to be filled in later.
    #[inline(always)]
    pub fn slot<const N: usize>(&mut self) -> Result<&'a mut [u8; N], NoRoom> {
        let (slot, rest) = core::mem::take(&mut self.rest)
            .split_first_chunk_mut()
            .ok_or(NoRoom)?;
        self.rest = rest;
        Ok(slot)
    }

    /// Writes `N` bytes.
    #[inline(always)]
    pub fn array<const N: usize>(&mut self, bytes: &[u8; N]) -> Result<(), NoRoom> {
        *self.slot()? = *bytes;
        Ok(())
    }

    /// Writes bytes as they are, without length or pad.
    #[inline]
    pub fn bytes(&mut self, bytes: &[u8]) -> Result<(), NoRoom> {
        let (to, rest) = core::mem::take(&mut self.rest)
            .split_at_mut_checked(bytes.len())
            .ok_or(NoRoom)?;
        to.copy_from_slice(bytes);
        self.rest = rest;
        Ok(())
    }

    /// Writes an unsigned integer.
    #[inline(always)]
    //= V1-001
    pub fn u32(&mut self, value: u32) -> Result<(), NoRoom> {
        self.array(&value.to_be_bytes())
    }

    /// Writes two words as one number.
    #[inline(always)]
    pub fn u64(&mut self, value: u64) -> Result<(), NoRoom> {
        self.array(&value.to_be_bytes())
    }

    /// Writes a variable-length opaque with its pad of zero octets.
    //= V1-023
    pub fn opaque(&mut self, bytes: &[u8]) -> Result<(), NoRoom> {
        let len = u32::try_from(bytes.len()).map_err(|_| NoRoom)?;
        self.u32(len)?;
        self.bytes(bytes)?;
        let pad = [0; 3];
        self.bytes(pad.get(..pad_len(len) as usize).unwrap_or_default())
    }
}
