// SPDX-License-Identifier: GPL-2.0

//! Random valid messages, through the protocol core and through the code that rpcgen made.
//!
//! Each message is a line of fields, in the form that oracle.c describes. Both sides encode it to
//! the same bytes, and each reads the fields back from them. The arguments are the program
//! `oracle`, the number of messages and, to repeat a run, the seed.

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Write};
use std::process::{ChildStdin, Command, ExitCode, Stdio};
use std::time::{SystemTime, UNIX_EPOCH};

use rpcrdma_proto::proto::wire::chunk::{ChunkLists, ChunkSlices};
use rpcrdma_proto::proto::wire::error::ErrorReport;
use rpcrdma_proto::proto::wire::header::{Body, FixedWords, Kind, Outgoing};
use rpcrdma_proto::proto::wire::property::{material, Properties, PropertySet, ReverseSupport};
use rpcrdma_proto::proto::wire::types::{
    Grant, Handle, MsgType, Position, ReadSegment, Segment, Xid,
};
use rpcrdma_proto::proto::wire::xdr::Writer;
use rpcrdma_proto::proto::wire::{v1, v2};

/// A line of fields.
struct Fields(String);

impl Fields {
    fn new(version: u32) -> Self {
        Self(version.to_string())
    }

    fn add(&mut self, value: impl Into<u64>) -> &mut Self {
        write!(self.0, " {}", value.into()).expect("memory");
        self
    }

    fn segment(&mut self, segment: &Segment) {
        self.add(segment.handle.0)
            .add(segment.length)
            .add(segment.offset);
    }

    fn array(&mut self, segments: &[Segment]) {
        self.add(segments.len() as u64);
        for segment in segments {
            self.segment(segment);
        }
    }

    fn lists(&mut self, reads: &[ReadSegment], writes: &[Vec<Segment>], reply: Option<&[Segment]>) {
        self.add(reads.len() as u64);
        for read in reads {
            self.add(read.position.0).segment(&read.segment);
        }
        self.add(writes.len() as u64);
        for write in writes {
            self.array(write);
        }
        self.add(reply.is_some());
        if let Some(reply) = reply {
            self.array(reply);
        }
    }

    fn octets(&mut self, octets: &[u8]) {
        self.add(octets.len() as u64);
        for octet in octets {
            self.add(*octet);
        }
    }

    fn report(&mut self, report: ErrorReport) {
        self.add(report.code());
        match report {
            ErrorReport::Version { low, high } => self.add(low).add(high),
            ErrorReport::ReadChunks { max_chunks } => self.add(max_chunks),
            ErrorReport::WriteChunks { max_chunks } => self.add(max_chunks),
            ErrorReport::Segments { max_segments } => self.add(max_segments),
            ErrorReport::WriteResource {
                chunk_index,
                length_needed,
            } => self.add(chunk_index).add(length_needed),
            ErrorReport::ReplyResource { length_needed } => self.add(length_needed),
            _ => self,
        };
    }
}

/// Random fields.
struct Random(common::Random);

impl Random {
    fn u32(&mut self) -> u32 {
        self.0.below(1 << 32) as u32
    }

    fn below(&mut self, end: u32) -> u32 {
        self.0.below(end.into()) as u32
    }

    /// Any word, small ones and the largest among them more often.
    fn word(&mut self) -> u32 {
        match self.below(4) {
            0 => self.below(4),
            1 => u32::MAX - self.below(2),
            _ => self.u32(),
        }
    }

    fn segment(&mut self) -> Segment {
        let length = self.word();
        // A Segment ends within the address space.
        let offset = (u64::from(self.u32() >> 1) << 32) | u64::from(self.u32());
        Segment {
            handle: Handle(self.word()),
            length,
            offset: offset >> self.below(40),
        }
    }

    fn array(&mut self) -> Vec<Segment> {
        (0..self.below(5)).map(|_| self.segment()).collect()
    }
}

/// A message as fields, and as the protocol core encodes it if it sends such messages.
struct Message {
    fields: String,
    bytes: Option<Vec<u8>>,
}

fn draw(random: &mut Random) -> Message {
    match random.below(8) {
        0 | 1 => draw_v1(random),
        2 => draw_v1_error(random),
        3 | 4 => draw_v2(random),
        5 => draw_v2_error(random),
        6 => draw_own_properties(random),
        _ => draw_properties(random),
    }
}

struct Lists {
    reads: Vec<ReadSegment>,
    writes: Vec<Vec<Segment>>,
    reply: Option<Vec<Segment>>,
}

impl Lists {
    fn draw(random: &mut Random) -> Self {
        let reads = (0..random.below(5)).map(|_| ReadSegment {
            position: Position(random.word() & !3),
            segment: random.segment(),
        });
        let reads = reads.collect();
        Self {
            reads,
            writes: (0..random.below(4)).map(|_| random.array()).collect(),
            reply: (random.below(2) == 0).then(|| random.array()),
        }
    }

    const fn none() -> Self {
        Self {
            reads: Vec::new(),
            writes: Vec::new(),
            reply: None,
        }
    }

    fn is_empty(&self) -> bool {
        self.reads.is_empty() && self.writes.is_empty() && self.reply.is_none()
    }

    fn with_chunks<T>(&self, use_chunks: impl FnOnce(&ChunkSlices<'_>) -> T) -> T {
        let writes: Vec<_> = self.writes.iter().map(Vec::as_slice).collect();
        use_chunks(&ChunkSlices {
            reads: &self.reads,
            writes: &writes,
            reply: self.reply.as_deref(),
        })
    }

    fn describe(&self, fields: &mut Fields) {
        fields.lists(&self.reads, &self.writes, self.reply.as_deref());
    }
}

/// Runs an encoder with more room than any message needs.
fn encoded<E: std::fmt::Debug>(encode: impl FnOnce(&mut [u8]) -> Result<usize, E>) -> Vec<u8> {
    let mut bytes = vec![0xee; 4096];
    let len = encode(&mut bytes).expect("room");
    bytes.truncate(len);
    bytes
}

fn draw_v1(random: &mut Random) -> Message {
    let (xid, credit) = (random.word(), random.word().max(1));
    let lists = Lists::draw(random);
    let nomsg = random.below(2) == 0 && !lists.is_empty();
    let mut fields = Fields::new(1);
    fields.add(xid).add(1_u32).add(credit).add(nomsg);
    lists.describe(&mut fields);
    let kind = if nomsg { Kind::Nomsg } else { Kind::Msg };
    let bytes =
        lists.with_chunks(|chunks| encoded(|out| v1::encode(out, Xid(xid), credit, kind, chunks)));
    Message {
        fields: fields.0,
        bytes: Some(bytes),
    }
}

fn draw_request(random: &mut Random, version: u32) -> FixedWords {
    FixedWords {
        xid: Xid(random.word()),
        version,
        credit: random.word(),
        htype: random.word(),
    }
}

fn draw_v1_error(random: &mut Random) -> Message {
    // The version is copied from the request, with any value.
    let version = random.word();
    let request = draw_request(random, version);
    let credit = random.word().max(1);
    let report = match random.below(2) {
        0 => ErrorReport::BadXdr,
        _ => ErrorReport::Version {
            low: random.word(),
            high: random.word(),
        },
    };
    let mut fields = Fields::new(1);
    fields
        .add(request.xid.0)
        .add(request.version)
        .add(credit)
        .add(4_u32)
        .report(report);
    Message {
        fields: fields.0,
        bytes: Some(encoded(|out| {
            v1::encode_error(out, &request, credit, report)
        })),
    }
}

fn draw_grant(random: &mut Random) -> Grant {
    let word = random.u32();
    Grant {
        granted: (word as u16).max(1),
        ceiling: ((word >> 16) as u16).max(1),
    }
}

fn draw_v2(random: &mut Random) -> Message {
    let (xid, grant) = (random.word(), draw_grant(random));
    let direction = if random.below(2) == 0 {
        MsgType::Call
    } else {
        MsgType::Reply
    };
    let more = random.below(4) == 0;
    let lists = if more {
        Lists::none()
    } else {
        Lists::draw(random)
    };
    let nomsg = !more && random.below(2) == 0;
    // Without chunks it is a grant, which has no XID.
    let (xid, direction) = match nomsg && lists.is_empty() {
        true => (0, MsgType::Call),
        false => (xid, direction),
    };
    let offers = direction == MsgType::Call && !more && !(nomsg && lists.is_empty());
    let outgoing = Outgoing {
        xid: Xid(xid),
        direction,
        kind: if nomsg { Kind::Nomsg } else { Kind::Msg },
        more,
        inv_handle: if offers {
            Handle(random.word())
        } else {
            Handle::NONE
        },
    };
    let flags = u32::from(direction == MsgType::Reply) | (u32::from(more) << 1);
    let mut fields = Fields::new(2);
    fields
        .add(xid)
        .add(2_u32)
        .add(grant.to_word())
        .add(nomsg)
        .add(flags);
    fields.add(outgoing.inv_handle.0);
    lists.describe(&mut fields);
    let mut bytes =
        lists.with_chunks(|chunks| encoded(|out| v2::encode(out, &outgoing, grant, chunks)));
    if !nomsg {
        fields.add(xid);
        bytes.extend(xid.to_be_bytes());
    }
    Message {
        fields: fields.0,
        bytes: Some(bytes),
    }
}

fn draw_v2_error(random: &mut Random) -> Message {
    let request = draw_request(random, 2);
    let grant = draw_grant(random);
    let report = match common::report(random.below(11), || random.word()) {
        ErrorReport::WriteChunks { max_chunks: 0 } => ErrorReport::WriteChunks { max_chunks: 1 },
        report => report,
    };
    let mut fields = Fields::new(2);
    fields
        .add(request.xid.0)
        .add(2_u32)
        .add(grant.to_word())
        .add(4_u32)
        .add(1_u32);
    fields.report(report);
    // Of ERR_VERS the core reads this layout and never sends it.
    let sent = !matches!(report, ErrorReport::Version { .. });
    Message {
        fields: fields.0,
        bytes: sent.then(|| encoded(|out| v2::encode_error(out, &request, grant, report))),
    }
}

fn connprop(xid: u32, grant: Grant, more: bool, properties: impl FnOnce(&mut Fields)) -> String {
    let mut fields = Fields::new(2);
    fields
        .add(xid)
        .add(2_u32)
        .add(grant.to_word())
        .add(5_u32)
        .add(u32::from(more) << 1);
    properties(&mut fields);
    fields.0
}

/// The sets that the core sends: all its properties, with or without authentication material.
fn draw_own_properties(random: &mut Random) -> Message {
    let (xid, grant) = (random.word(), draw_grant(random));
    let more = random.below(2) == 0;
    let material: Vec<u8> = (0..random.below(64)).map(|_| random.u32() as u8).collect();
    let reverse = [
        ReverseSupport::None,
        ReverseSupport::Inline,
        ReverseSupport::General,
    ];
    let number = random.below(3);
    let properties = Properties {
        send_size: random.word(),
        recv_size: random.word(),
        segment_size: random.word(),
        segments: random.word(),
        reverse: reverse[number as usize],
    };
    let values = [
        properties.send_size,
        properties.recv_size,
        properties.segment_size,
        properties.segments,
        number,
    ];
    let authenticate = random.below(2) == 0;
    let set = encoded(|out| {
        let mut out = Writer::new(out);
        if authenticate {
            properties.encode_with(&mut out, &material)?;
        } else {
            properties.encode(&mut out)?;
        }
        Ok::<_, rpcrdma_proto::proto::wire::error::NoRoom>(out.len())
    });
    let fields = connprop(xid, grant, more, |fields| {
        fields.add(if authenticate { 6_u32 } else { 5 });
        for (id, value) in (1_u32..).zip(values) {
            fields.add(id).octets(&value.to_be_bytes());
        }
        if authenticate {
            fields.add(6_u32).octets(&material);
        }
    });
    Message {
        fields,
        bytes: Some(encoded(|out| {
            v2::encode_properties(out, Xid(xid), grant, &set, more)
        })),
    }
}

/// The sets that other peers may send: some properties, and some that are not known.
fn draw_properties(random: &mut Random) -> Message {
    let (xid, grant) = (random.word(), draw_grant(random));
    let mut properties = Vec::new();
    for id in 1..=6 {
        if random.below(2) == 0 {
            let value = match id {
                5 => random.below(3).to_be_bytes().to_vec(),
                6 => (0..random.below(40)).map(|_| random.u32() as u8).collect(),
                _ => random.word().to_be_bytes().to_vec(),
            };
            properties.push((id, value));
        }
    }
    for _ in 0..random.below(3) {
        properties.push((7 + random.below(1000), Vec::new()));
    }
    let fields = connprop(xid, grant, false, |fields| {
        fields.add(properties.len() as u64);
        for (id, value) in &properties {
            fields.add(*id).octets(value);
        }
    });
    Message {
        fields,
        bytes: None,
    }
}

/// Reads the fields of a message back, with the protocol core.
fn read(version: u32, bytes: &[u8]) -> Option<String> {
    let (fixed, rest) = FixedWords::split(bytes)?;
    let mut fields = Fields::new(version);
    fields
        .add(fixed.xid.0)
        .add(fixed.version)
        .add(fixed.credit)
        .add(fixed.htype);
    let body = if version == 1 {
        v1::decode(&fixed, rest).ok()?
    } else {
        let message = v2::decode(&fixed, rest, false)?;
        fields.add(u32::from(message.flags.response) | (u32::from(message.flags.more) << 1));
        message.body.ok()?
    };
    match body {
        Body::Conveyed(conveyed) => {
            if version == 2 {
                fields.add(conveyed.inv_handle.0);
            }
            read_lists(&mut fields, &conveyed.chunks);
            if let Some(first) = conveyed.payload.first_chunk() {
                fields.add(u32::from_be_bytes(*first));
            }
        }
        Body::Grant => fields.add(0_u32).lists(&[], &[], None),
        Body::Error(report) => fields.report(report?),
        Body::Properties(set) => read_properties(&mut fields, &PropertySet::decode(set).ok()?),
    }
    Some(fields.0)
}

fn read_lists(fields: &mut Fields, chunks: &ChunkLists<'_>) {
    let reads: Vec<_> = chunks.reads.iter().collect();
    let writes: Vec<_> = chunks
        .writes
        .iter()
        .map(|chunk| chunk.segments().collect())
        .collect();
    let reply: Option<Vec<_>> = chunks.reply.map(|chunk| chunk.segments().collect());
    fields.lists(&reads, &writes, reply.as_deref());
}

fn read_properties(fields: &mut Fields, set: &PropertySet<'_>) {
    let reverse = set.reverse.map(|reverse| reverse as u32);
    let words = [
        set.send_size,
        set.recv_size,
        set.segment_size,
        set.segments,
        reverse,
    ];
    let unknown: Vec<_> = set.unknown().collect();
    let known = words.iter().flatten().count() + set.hostauth.iter().count();
    fields.add((known + unknown.len()) as u64);
    for (id, word) in (1_u32..).zip(words) {
        if let Some(word) = word {
            fields.add(id).octets(&word.to_be_bytes());
        }
    }
    if let Some(value) = set.hostauth {
        let material = material(value).expect("well-formed").unwrap_or_default();
        fields.add(6_u32).octets(material);
    }
    for id in unknown {
        fields.add(id).octets(&[]);
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").expect("memory");
        text
    })
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let pairs = text
        .as_bytes()
        .chunks(2)
        .map(|pair| std::str::from_utf8(pair).ok());
    pairs
        .map(|pair| u8::from_str_radix(pair?, 16).ok())
        .collect()
}

/// The program that answers lines with lines.
struct Oracle {
    input: ChildStdin,
    output: BufReader<std::process::ChildStdout>,
}

impl Oracle {
    fn start(program: &str) -> std::io::Result<Self> {
        let mut child = Command::new(program)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let input = child.stdin.take().expect("piped");
        let output = BufReader::new(child.stdout.take().expect("piped"));
        Ok(Self { input, output })
    }

    /// Asks all questions and returns the answers. There are few enough that none blocks.
    fn ask(&mut self, questions: &[String]) -> std::io::Result<Vec<String>> {
        let mut answers = Vec::new();
        for question in questions {
            writeln!(self.input, "{question}")?;
        }
        self.input.flush()?;
        for _ in questions {
            let mut answer = String::new();
            self.output.read_line(&mut answer)?;
            answers.push(answer.trim_end().to_owned());
        }
        Ok(answers)
    }
}

fn check(oracle: &mut Oracle, message: &Message) -> Result<(), String> {
    let version = if message.fields.starts_with('1') {
        1
    } else {
        2
    };
    let mut questions = vec![format!("E {}", message.fields)];
    if let Some(bytes) = &message.bytes {
        questions.push(format!("D {version} {}", hex(bytes)));
    }
    let answers = oracle.ask(&questions).map_err(|error| error.to_string())?;
    let encoded = unhex(&answers[0]).ok_or("the oracle gave no bytes")?;
    if let Some(bytes) = &message.bytes {
        if *bytes != encoded {
            return Err(format!("core  {}\nrpcgen {}", hex(bytes), answers[0]));
        }
        if answers[1] != message.fields {
            return Err(format!("rpcgen reads {}", answers[1]));
        }
    }
    match read(version, &encoded) {
        Some(fields) if fields == message.fields => Ok(()),
        Some(fields) => Err(format!("the core reads {fields}\nfrom {}", answers[0])),
        None => Err(format!("the core refuses {}", answers[0])),
    }
}

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let number = |index: usize| {
        arguments
            .get(index)
            .and_then(|text| text.parse::<u64>().ok())
    };
    let (Some(program), Some(count)) = (arguments.first(), number(1)) else {
        eprintln!("usage: oracle PROGRAM COUNT [SEED]");
        return ExitCode::from(2);
    };
    let clock = SystemTime::now().duration_since(UNIX_EPOCH);
    let seed = number(2)
        .unwrap_or(clock.map_or(1, |since| since.as_nanos() as u64))
        .max(1);
    let mut oracle = match Oracle::start(program) {
        Ok(oracle) => oracle,
        Err(error) => {
            eprintln!("{program}: {error}");
            return ExitCode::from(2);
        }
    };
    let mut random = Random(common::Random::new(seed));
    for done in 0..count {
        let message = draw(&mut random);
        if let Err(why) = check(&mut oracle, &message) {
            println!(
                "# message {done} of seed {seed}: {}\n# {why}",
                message.fields
            );
            println!("not ok the core and the XDR of the documents agree");
            return ExitCode::FAILURE;
        }
    }
    println!("ok the core and the XDR of the documents agree # {count} messages, seed {seed}");
    ExitCode::SUCCESS
}
