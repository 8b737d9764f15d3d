// SPDX-License-Identifier: GPL-2.0

//! Messages in parts, as any peer may send them, against a plain description of the rules.

use rpcrdma_proto::proto::connection::continuation::{Assembler, Content, PartSplitter};
use rpcrdma_proto::proto::wire::error::BadHeader;
use rpcrdma_proto::proto::wire::header::RpcStart;
use rpcrdma_proto::proto::wire::types::Xid;

use crate::source::Source;

pub fn run(input: &[u8]) {
    let mut source = Source::new(input);
    if source.flag() {
        parts(&mut source);
    } else {
        cuts(&mut source);
    }
}

/// The open sequence, as the rules describe it.
struct Open {
    xid: Xid,
    content: Content,
    joined: Vec<u8>,
    failed: bool,
}

fn parts(source: &mut Source<'_>) {
    let mut assembler = Assembler::new();
    let mut open: Option<Open> = None;
    while !source.is_empty() {
        let byte = source.u8();
        match byte & 15 {
            0 => {
                assembler.abandon();
                open = None;
                continue;
            }
            1 => {
                assembler.fail();
                if let Some(open) = &mut open {
                    open.failed = true;
                }
                continue;
            }
            _ => {}
        }
        let xid = Xid(u32::from(byte >> 6 == 3));
        let content = match (byte >> 4) & 3 {
            0 | 1 => Content::Rpc { response: false },
            2 => Content::Rpc { response: true },
            _ => Content::Properties,
        };
        let more = byte & 1 != 0;
        let len = source.u8() % 24;
        let payload = source.bytes(len.into());
        let result = assembler.add(xid, content, payload, more);
        let belongs = |open: &Open| open.xid == xid && open.content == content;
        match &open {
            Some(other) if !belongs(other) => {
                assert_eq!(result, Err(BadHeader::BrokenSequence));
                continue;
            }
            Some(_) if more && payload.is_empty() => {
                assert_eq!(result, Err(BadHeader::NoPayload));
                continue;
            }
            None if more && payload.len() < 4 => {
                assert_eq!(result, Err(BadHeader::Truncated));
                continue;
            }
            _ => {}
        }
        let mut now = open.take().unwrap_or(Open {
            xid,
            content,
            joined: Vec::new(),
            failed: false,
        });
        let offset = now.joined.len();
        now.joined.extend(payload);
        let part = result.expect("it keeps the rules");
        assert_eq!(
            (part.offset as usize, part.len as usize),
            (offset, now.joined.len())
        );
        assert_eq!(part.start, RpcStart::peek(&now.joined));
        assert_eq!(part.swallowed, now.failed);
        open = more.then_some(now);
        assert_eq!(assembler.open().is_some(), open.is_some());
    }
}

fn cuts(source: &mut Source<'_>) {
    let (len, threshold) = (source.length(1 << 22), source.length(1 << 14));
    let last_header = 36 + 4 * source.below(500);
    let mut cutter = PartSplitter::new(len, threshold, last_header);
    let (mut at, mut last) = (0, false);
    while let Some(cut) = cutter.next_part() {
        assert!(!last && cut.range.start == at && !cut.range.is_empty());
        let header = if cut.more { 36 } else { last_header };
        let octets = cut.range.end - cut.range.start;
        assert!(header + octets <= threshold);
        assert!(!cut.more || octets % 4 == 0);
        // Each message is filled, but that something has to be left for the last one.
        assert!(!cut.more || threshold - header - octets < 4 || len - cut.range.end <= 4);
        at = cut.range.end;
        last = !cut.more;
    }
    if threshold >= 40 && threshold >= last_header + 4 {
        assert!(at == len && (last || len == 0));
    }
}
