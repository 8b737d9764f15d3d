-- SPDX-License-Identifier: GPL-2.0
--
-- A Wireshark dissector of RPC-over-RDMA version 2 (draft-ietf-nfsv4-rpcrdma-version-two-00), and of
-- the private data by which both sides introduce themselves (RFC 8797, and the announcement of the
-- version in Documentation/version2.rst):
--
--   tshark -X lua_script:rpcrdma2.lua -r FILE
--
-- Fields are named as in the draft's XDR. Version 1 is left to Wireshark's own dissector.
-- Documentation/wireshark.rst tells more.

set_plugin_info({
    version = "1.0",
    description = "RPC-over-RDMA version 2 and RFC 8797 private data",
})

local rpcrdma2 = Proto("rpcrdma2", "RPC-over-RDMA version 2")
local private = Proto("rpcrdma_cm", "RPC-over-RDMA CM Private Data")

-- Definitions of the draft ---------------------------------------------------------------------

local MSG, NOMSG, ERROR, CONNPROP = 0, 1, 4, 5
local HTYPES = {
    [MSG] = "RDMA2_MSG",
    [NOMSG] = "RDMA2_NOMSG",
    [ERROR] = "RDMA2_ERROR",
    [CONNPROP] = "RDMA2_CONNPROP",
}

local RESPONSE, MORE = 1, 2

local ERR_VERS = 1
local ERRORS = {
    [ERR_VERS] = "RDMA2_ERR_VERS",
    [2] = "RDMA2_ERR_BAD_XDR",
    [3] = "RDMA2_ERR_INVAL_HTYPE",
    [4] = "RDMA2_ERR_INVAL_FLAG",
    [5] = "RDMA2_ERR_READ_CHUNKS",
    [6] = "RDMA2_ERR_WRITE_CHUNKS",
    [7] = "RDMA2_ERR_SEGMENTS",
    [8] = "RDMA2_ERR_WRITE_RESOURCE",
    [9] = "RDMA2_ERR_REPLY_RESOURCE",
    [10] = "RDMA2_ERR_SYSTEM",
}

local PROPERTIES = {
    [1] = "RDMA2_PROPID_SBSIZ",
    [2] = "RDMA2_PROPID_RBSIZ",
    [3] = "RDMA2_PROPID_RSSIZ",
    [4] = "RDMA2_PROPID_RCSIZ",
    [5] = "RDMA2_PROPID_BRS",
    [6] = "RDMA2_PROPID_HOSTAUTH",
}
local HOSTAUTH = 6

-- The messages of the mechanism that is known for HOSTAUTH: a shared key.
local SHARED_KEY = 0x50534b32
local PROOFS = {
    [1] = "hello of the client",
    [2] = "proof of the server",
    [3] = "proof of the client",
}

local REVERSE = {
    [0] = "RDMA_RVREQSUP_NONE",
    [1] = "RDMA_RVREQSUP_INLINE",
    [2] = "RDMA_RVREQSUP_GENL",
}

local PREFIX_LEN = 20
local VERSION_1_ERROR_LEN = 28

-- Fields ---------------------------------------------------------------------------------------

-- A word of the draft, under the name that it has there.
local function word(path, form, values)
    return ProtoField.uint32("rpcrdma2." .. path, path:match("[^.]+$"), form, values)
end

local f = {
    rdma_xid = word("rdma_xid", base.HEX),
    rdma_vers = word("rdma_vers"),
    rdma_credit = word("rdma_credit", base.HEX),
    granted = ProtoField.uint16("rpcrdma2.rdma_credit.granted", "Newly granted"),
    maximum = ProtoField.uint16("rpcrdma2.rdma_credit.maximum", "Maximum outstanding"),
    rdma_htype = word("rdma_htype", base.DEC, HTYPES),
    rdma_flags = word("rdma_flags", base.HEX),
    response = ProtoField.bool("rpcrdma2.rdma_flags.response", "RPCRDMA2_F_RESPONSE", 32, nil,
        RESPONSE),
    more = ProtoField.bool("rpcrdma2.rdma_flags.more", "RPCRDMA2_F_MORE", 32, nil, MORE),

    rdma_inv_handle = word("rdma_inv_handle", base.HEX),
    rdma_reads = ProtoField.none("rpcrdma2.rdma_reads", "rdma_reads"),
    rdma_position = word("rdma_reads.rdma_position"),
    rdma_writes = ProtoField.none("rpcrdma2.rdma_writes", "rdma_writes"),
    rdma_reply = ProtoField.none("rpcrdma2.rdma_reply", "rdma_reply"),

    rdma_err = word("rdma_err", base.DEC, ERRORS),
    rdma_vers_low = word("rdma_vers_low"),
    rdma_vers_high = word("rdma_vers_high"),
    rdma_max_chunks = word("rdma_max_chunks"),
    rdma_max_segments = word("rdma_max_segments"),
    rdma_chunk_index = word("rdma_chunk_index"),
    rdma_length_needed = word("rdma_length_needed"),

    rdma_props = ProtoField.uint32("rpcrdma2.rdma_props", "rdma_props (count)"),
    rdma_which = word("rdma_which", base.DEC, PROPERTIES),
    rdma_data = ProtoField.bytes("rpcrdma2.rdma_data", "rdma_data"),
    prop_hostauth = ProtoField.bytes("rpcrdma2.prop_hostauth", "Host Authentication Message"),
    shared_key = ProtoField.uint32("rpcrdma2.shared_key", "Shared key", base.DEC, PROOFS),

    payload = ProtoField.bytes("rpcrdma2.payload", "Payload stream in this message"),
    payload_len = ProtoField.uint32("rpcrdma2.payload.length", "Length"),
    offset = ProtoField.uint32("rpcrdma2.sequence.offset", "Offset of this part"),
    parts = ProtoField.uint32("rpcrdma2.sequence.parts", "Parts of the message"),
    joined = ProtoField.uint32("rpcrdma2.sequence.length", "Length of all parts"),
    part = ProtoField.framenum("rpcrdma2.sequence.part", "Earlier part", base.NONE,
        frametype.NONE),
    piece = ProtoField.bytes("rpcrdma2.send_piece", "Piece of a Send of several packets"),
    retransmitted = ProtoField.bool("rpcrdma2.retransmitted", "Retransmitted"),
}

-- The values of the properties that are numbers.
local numbers = {
    ProtoField.uint32("rpcrdma2.prop_sbsiz", "Maximum Send Size"),
    ProtoField.uint32("rpcrdma2.prop_rbsiz", "Receive Buffer Size"),
    ProtoField.uint32("rpcrdma2.prop_rssiz", "Maximum RDMA Segment Size"),
    ProtoField.uint32("rpcrdma2.prop_rcsiz", "Maximum RDMA Segment Count"),
    ProtoField.uint32("rpcrdma2.prop_brs", "Reverse Request Support", base.DEC, REVERSE),
}

-- A segment's fields, for the list that it is in.
local function segment_fields(list)
    return {
        rdma_handle = word(list .. ".rdma_handle", base.HEX),
        rdma_length = word(list .. ".rdma_length"),
        rdma_offset = ProtoField.uint64("rpcrdma2." .. list .. ".rdma_offset", "rdma_offset",
            base.HEX),
        count = ProtoField.uint32("rpcrdma2." .. list .. ".segments", "Segments"),
    }
end
local read_fields = segment_fields("rdma_reads")
local write_fields = segment_fields("rdma_writes")
local reply_fields = segment_fields("rdma_reply")

local function list_of(...)
    local list = {}
    for _, group in ipairs({ ... }) do
        for _, field in pairs(group) do
            table.insert(list, field)
        end
    end
    return list
end
rpcrdma2.fields = list_of(f, numbers, read_fields, write_fields, reply_fields)

-- Mistakes, by the error that a responder answers with.
local BAD_XDR = ProtoExpert.new("rpcrdma2.malformed", "Malformed (RDMA2_ERR_BAD_XDR)",
    expert.group.MALFORMED, expert.severity.ERROR)
local INVAL_HTYPE = ProtoExpert.new("rpcrdma2.invalid_htype",
    "Unknown header type (RDMA2_ERR_INVAL_HTYPE)", expert.group.PROTOCOL, expert.severity.ERROR)
local INVAL_FLAG = ProtoExpert.new("rpcrdma2.invalid_flag",
    "Flags do not fit (RDMA2_ERR_INVAL_FLAG)", expert.group.PROTOCOL, expert.severity.ERROR)
-- Unusual but valid.
local ODD = ProtoExpert.new("rpcrdma2.odd", "Not as it should be", expert.group.PROTOCOL,
    expert.severity.WARN)
local MISSING = ProtoExpert.new("rpcrdma2.missing", "Not in the capture", expert.group.SEQUENCE,
    expert.severity.NOTE)
rpcrdma2.experts = { BAD_XDR, INVAL_HTYPE, INVAL_FLAG, ODD, MISSING }

local bth_of = Field.new("infiniband.bth")
local crc_of = Field.new("infiniband.invariant.crc")
local opcode_of = Field.new("infiniband.bth.opcode")
local psn_of = Field.new("infiniband.bth.psn")
local destqp_of = Field.new("infiniband.bth.destqp")
local padding_of = Field.new("infiniband.bth.padcnt")

-- Reading --------------------------------------------------------------------------------------

-- Ends the dissection of a message: the mistake in it, as an expert information and in words.
local function refuse(info, text)
    error({ info = info, text = text }, 0)
end

local Reader = {}
Reader.__index = Reader

local function reader(tvb, at)
    return setmetatable({ tvb = tvb, at = at or 0 }, Reader)
end

function Reader:left()
    return self.tvb:len() - self.at
end

-- The bytes that are left if they are not pad: that is zeros, however many.
function Reader:excess()
    for at = self.at, self.tvb:len() - 1 do
        if self.tvb(at, 1):uint() ~= 0 then
            return self:left()
        end
    end
    return 0
end

-- The next LEN bytes; none are no range but an empty tvb's place.
function Reader:take(len)
    if len > self:left() then
        if self.tvb:len() < self.tvb:reported_len() then
            refuse(MISSING, "The capture has cut this message off")
        end
        refuse(BAD_XDR, string.format("%d bytes are needed where %d are left", len, self:left()))
    end
    local range = self.tvb(self.at, len)
    self.at = self.at + len
    return range
end

function Reader:word()
    return self:take(4):uint()
end

function Reader:add(tree, field)
    local range = self:take(4)
    return range:uint(), tree:add(field, range)
end

-- An opaque<>: its bytes (nil if there are none), and its length.
function Reader:opaque()
    local len = self:word()
    if len > self:left() then
        refuse(BAD_XDR, string.format("%d bytes of data are announced where %d are left", len,
            self:left()))
    end
    local range = len > 0 and self:take(len) or nil
    self:take_padding(len)
    return range, len
end

function Reader:take_padding(len)
    local padding = -len % 4
    if padding > 0 then
        self:take(padding)
    end
end

-- Whether an optional item follows.
function Reader:present()
    local word = self:word()
    if word > 1 then
        refuse(BAD_XDR, string.format("Presence word %#x is neither 0 nor 1", word))
    end
    return word == 1
end

-- Marks where in the tree something begins whose end is not known yet.
function Reader:open(tree, field, text)
    local range = self.tvb(self.at, 0)
    local item = field and tree:add(field, range) or tree:add(range, text)
    return { item = item, from = self.at, reader = self }
end

local function close(opened, text)
    opened.item:set_len(opened.reader.at - opened.from)
    if text then
        opened.item:append_text(text)
    end
end

local function plural(count, what)
    return string.format("%d %s%s", count, what, count == 1 and "" or "s")
end

-- Chunk lists ----------------------------------------------------------------------------------

local function dissect_segment(r, tree, fields, chunk)
    local handle = r:add(tree, fields.rdma_handle)
    local length = r:add(tree, fields.rdma_length)
    local range = r:take(8)
    local offset = range:uint64()
    tree:add(fields.rdma_offset, range)
    if offset + UInt64(length) < offset then
        refuse(BAD_XDR, "A segment runs past the end of the address space")
    end
    table.insert(chunk.handles, handle)
    chunk.length = chunk.length + length
end

local function dissect_reads(r, tree, lists)
    local list = r:open(tree, f.rdma_reads)
    local count = 0
    while r:present() do
        local opened = r:open(list.item, nil, "Read segment")
        local position = r:add(opened.item, f.rdma_position)
        local chunk = lists.reads[#lists.reads]
        if not chunk or chunk.position ~= position then
            chunk = { position = position, handles = lists.handles, length = 0 }
            table.insert(lists.reads, chunk)
        end
        dissect_segment(r, opened.item, read_fields, chunk)
        close(opened, string.format(" at Position %d", position))
        if position % 4 ~= 0 then
            refuse(BAD_XDR, string.format("Position %d is not a multiple of four", position))
        end
        count = count + 1
    end
    close(list, ": " .. plural(count, "segment"))
end

local function dissect_chunk(r, tree, fields, lists)
    local chunk = { handles = lists.handles, length = 0 }
    local count = r:add(tree, fields.count)
    for number = 1, count do
        local opened = r:open(tree, nil, "Segment " .. number)
        dissect_segment(r, opened.item, fields, chunk)
        close(opened)
    end
    chunk.segments = count
    return chunk
end

local function dissect_writes(r, tree, lists)
    local list = r:open(tree, f.rdma_writes)
    while r:present() do
        local opened = r:open(list.item, nil, "Write chunk")
        table.insert(lists.writes, dissect_chunk(r, opened.item, write_fields, lists))
        close(opened, string.format(" %d: %d bytes", #lists.writes,
            lists.writes[#lists.writes].length))
    end
    close(list, ": " .. plural(#lists.writes, "chunk"))
end

local function dissect_reply_chunk(r, tree, lists)
    local opened = r:open(tree, f.rdma_reply)
    if r:present() then
        lists.reply = dissect_chunk(r, opened.item, reply_fields, lists)
        close(opened, string.format(": %d bytes in %s", lists.reply.length,
            plural(lists.reply.segments, "segment")))
    else
        close(opened, ": none")
    end
end

local function dissect_chunk_lists(r, tree)
    local lists = { reads = {}, writes = {}, handles = {} }
    local inv_handle, item = r:add(tree, f.rdma_inv_handle)
    lists.inv_handle = inv_handle
    dissect_reads(r, tree, lists)
    dissect_writes(r, tree, lists)
    dissect_reply_chunk(r, tree, lists)
    lists.empty = #lists.reads == 0 and #lists.writes == 0 and not lists.reply
    if inv_handle ~= 0 then
        local named = false
        for _, handle in ipairs(lists.handles) do
            named = named or handle == inv_handle
        end
        if not named then
            item:add_proto_expert_info(ODD, "rdma_inv_handle is no handle of this header")
        end
    end
    return lists
end

-- Properties -----------------------------------------------------------------------------------

local function dissect_property(r, tree, seen)
    local which, item = r:add(tree, f.rdma_which)
    local data, len = r:opaque()
    if data then
        tree:add(f.rdma_data, data)
    end
    if not PROPERTIES[which] then
        item:append_text(", to be ignored")
        return string.format("property %#x", which)
    end
    if seen[which] then
        refuse(BAD_XDR, PROPERTIES[which] .. " is there twice")
    end
    seen[which] = true
    local name = PROPERTIES[which]:gsub("RDMA2_PROPID_", "")
    if len == 0 then
        tree:append_text(", which is the default")
        return name
    end
    if which == HOSTAUTH then
        local inner = reader(data:tvb())
        local material = inner:opaque()
        if inner:left() > 0 then
            refuse(BAD_XDR, "Bytes follow the Host Authentication Message in its property")
        end
        if material then
            local shown = tree:add(f.prop_hostauth, material)
            if material:len() >= 8 and material:range(0, 4):uint() == SHARED_KEY then
                local which = material:range(4, 4)
                shown:add(f.shared_key, which)
                return name .. ", " .. (PROOFS[which:uint()] or "shared key")
            end
        end
        return name
    end
    if len ~= 4 then
        refuse(BAD_XDR, string.format("%s has %d bytes instead of 4", PROPERTIES[which], len))
    end
    tree:add(numbers[which], data)
    return string.format("%s=%d", name, data:uint())
end

local function dissect_properties(r, tree)
    local count = r:add(tree, f.rdma_props)
    local texts, seen = {}, {}
    for _ = 1, count do
        local opened = r:open(tree, nil, "Property")
        local text = dissect_property(r, opened.item, seen)
        close(opened, " " .. text)
        table.insert(texts, text)
    end
    if r:excess() > 0 then
        refuse(BAD_XDR, plural(r:excess(), "byte") .. " too many behind the properties")
    end
    return table.concat(texts, " ")
end

-- Errors ---------------------------------------------------------------------------------------

local ARGUMENTS = {
    [ERR_VERS] = { f.rdma_vers_low, f.rdma_vers_high },
    [5] = { f.rdma_max_chunks },
    [6] = { f.rdma_max_chunks },
    [7] = { f.rdma_max_segments },
    [8] = { f.rdma_chunk_index, f.rdma_length_needed },
    [9] = { f.rdma_length_needed },
}

local function dissect_error(r, tree)
    local code = r:add(tree, f.rdma_err)
    local arguments = {}
    for _, field in ipairs(ARGUMENTS[code] or {}) do
        table.insert(arguments, (r:add(tree, field)))
    end
    if code == ERR_VERS and arguments[1] > arguments[2] then
        refuse(BAD_XDR, "The lowest version is above the highest")
    end
    return (ERRORS[code] or ("error " .. code)) .. " " .. table.concat(arguments, " ")
end

-- ERR_VERS is sent in the layout of version 1, which has no flags, so that every peer can read it.
local function is_version_1_error(tvb)
    return tvb:len() == VERSION_1_ERROR_LEN and tvb:reported_len() == VERSION_1_ERROR_LEN
        and tvb(12, 4):uint() == ERROR and tvb(16, 4):uint() == ERR_VERS
        and (tvb(4, 4):uint() ~= 2 or tvb(20, 4):uint() < 5 or tvb(20, 4):uint() > 9)
end

-- State of each direction of each connection ---------------------------------------------------

-- By the addresses and the queue pair: the pieces of the Send in flight, the parts of the continued message,
-- the kinds of its packets by their sequence numbers, and the newest of them.
local flows
-- By frame: the result of its first dissection.
local frames

function rpcrdma2.init()
    flows, frames = {}, {}
end

local function flow_of(pinfo)
    local key = tostring(pinfo.src) .. " " .. tostring(pinfo.dst) .. " " .. destqp_of()()
    flows[key] = flows[key] or { pieces = {}, met = {} }
    return flows[key]
end

local PSNS = 1 << 24

local FIRST = { [0] = true, [4] = true, [5] = true, [23] = true }
local LAST = { [2] = true, [3] = true, [4] = true, [5] = true, [22] = true, [23] = true }
-- The lengths of the headers before the payload: immediate data, a handle to invalidate.
local EXTENDED = { [3] = 4, [5] = 4, [22] = 4, [23] = 4 }
local SENDS = { [0] = true, [1] = true, [2] = true, [3] = true, [4] = true, [5] = true,
    [22] = true, [23] = true }

-- Puts together the Send that ends with packet PSN: its bytes, or nil if a packet is missing.
local function collect(flow, psn)
    local pieces = {}
    repeat
        local piece = flow.pieces[psn]
        if not piece then
            return nil
        end
        table.insert(pieces, 1, piece.bytes)
        psn = (psn - 1) % PSNS
    until piece.first
    local whole = ByteArray.new()
    for _, bytes in ipairs(pieces) do
        whole:append(bytes)
    end
    return whole
end

local function looks_like_version_2(tvb)
    if tvb:len() < 16 then
        return false
    end
    local version, htype = tvb(4, 4):uint(), tvb(12, 4):uint()
    return version == 2 and htype <= CONNPROP or version > 2 and is_version_1_error(tvb)
end

-- Takes a packet of a Send at its first dissection; returns its kind.
local function meet(tvb, pinfo)
    local opcode, psn = opcode_of()(), psn_of()()
    local flow = flow_of(pinfo)
    local first, last = FIRST[opcode], LAST[opcode]
    if first then
        flow.speaks = flow.speaks and tvb:len() >= 8 and tvb(4, 4):uint() == 2
            or looks_like_version_2(tvb)
    end
    if not flow.speaks then
        return { other = true }
    end
    local frame = { last = last, flow = flow, first = first }
    local before = flow.met[psn]
    if before and (flow.newest - psn) % PSNS < PSNS // 2 then
        frame.retransmitted, frame.known = true, true
        frame.sequence, frame.broken = before.sequence, before.broken
    else
        flow.met[psn] = frame
        flow.newest = psn
    end
    if first and not last and not frame.retransmitted then
        flow.pieces = {}
    end
    if not (first and last) then
        flow.pieces[psn] = { bytes = tvb:bytes(), first = first }
        frame.whole = last and collect(flow, psn)
    end
    return frame
end

-- Adds the payload of a message that is a part, or the last of several, to its sequence. Returns its offset,
-- and with the last part the length of all parts.
local function continue(frame, pinfo, message, payload)
    if frame.known then
        return
    end
    frame.known = true
    local flow = frame.flow
    local open = flow.sequence
    if open and (open.xid ~= message.xid or open.htype ~= message.htype
        or message.htype == MSG and open.response ~= message.response) then
        flow.sequence = nil
        frame.broken = true
        return
    end
    if not open and not message.more then
        return
    end
    open = open or { xid = message.xid, htype = message.htype, response = message.response,
        bytes = ByteArray.new(), parts = {} }
    frame.sequence = { offset = open.bytes:len(), number = #open.parts + 1 }
    open.bytes:append(payload)
    if message.more then
        table.insert(open.parts, pinfo.number)
        flow.sequence = open
    else
        frame.sequence.parts = open.parts
        frame.sequence.bytes = open.bytes
        flow.sequence = nil
    end
end

-- Messages -------------------------------------------------------------------------------------

local rpc = Dissector.get("rpc")

-- The data of chunks is not in the message. Zeros replace it, so that the RPC's dissector finds the following
-- fields. The place of a Read chunk is its Position. No header has the place of a Write chunk, but the length
-- of its data stands before it.

-- A Linux peer moves less in one RPC. A larger number is not genuine.
local MOST_ZEROS = 1 << 23

local function zeros(length)
    local bytes = ByteArray.new()
    bytes:set_size((length + 3) // 4 * 4)
    return bytes
end

-- Puts a chunk of LENGTH bytes between the first AT bytes and the rest.
local function insert(bytes, at, length)
    local whole = ByteArray.new()
    if at > 0 then
        whole:append(bytes:subset(0, at))
    end
    whole:append(zeros(length))
    if at < bytes:len() then
        whole:append(bytes:subset(at, bytes:len() - at))
    end
    return whole
end

local function with_read_chunks(bytes, chunks)
    for _, chunk in ipairs(chunks) do
        if chunk.position > bytes:len() or bytes:len() + chunk.length > MOST_ZEROS then
            return nil
        end
        bytes = insert(bytes, chunk.position, chunk.length)
    end
    return bytes
end

local function with_write_chunk(bytes, length)
    if length > MOST_ZEROS then
        return nil
    end
    for at = bytes:len() // 4 * 4 - 4, 0, -4 do
        if bytes:uint(at, 4) == length then
            return insert(bytes, at + 4, length)
        end
    end
end

-- The Payload stream with zeros for chunks, or nil if it is whole or they fit nowhere.
local function with_chunks(tvb, message, lists)
    local bytes = tvb:bytes()
    if not message.response then
        return #lists.reads > 0 and with_read_chunks(bytes, lists.reads) or nil
    end
    local used = {}
    for _, chunk in ipairs(lists.writes) do
        if chunk.length > 0 then
            table.insert(used, chunk.length)
        end
    end
    return #used == 1 and with_write_chunk(bytes, used[1]) or nil
end

local function dissect_rpc(tvb, pinfo, tree, root, message, lists)
    local bytes = with_chunks(tvb, message, lists)
    if bytes then
        tree:add("Zeros stand for what the chunks convey"):set_generated()
        tvb = bytes:tvb("RPC message, zeros for chunks")
    end
    if not pcall(rpc.call, rpc, tvb, pinfo, root) then
        tree:add_proto_expert_info(ODD, "The RPC message cannot be dissected to its end")
    end
end

local function add_sequence(frame, tree)
    local sequence = frame.sequence
    tree:add(f.offset, sequence.offset):set_generated()
    if sequence.parts then
        tree:add(f.parts, #sequence.parts + 1):set_generated()
        tree:add(f.joined, sequence.bytes:len()):set_generated()
        for _, number in ipairs(sequence.parts) do
            tree:add(f.part, number):set_generated()
        end
    end
end

-- Shows the sequence of a message; returns the tvb to dissect next, which is nil if more parts follow.
local function join(r, pinfo, tree, frame, message)
    local rest = r:left() > 0 and r.tvb(r.at) or nil
    continue(frame, pinfo, message, rest and rest:bytes() or ByteArray.new())
    if frame.broken then
        refuse(INVAL_FLAG, "This message does not belong to the one that is to be continued")
    end
    if frame.sequence then
        add_sequence(frame, tree)
        if message.more then
            message.text = message.text .. string.format(", part %d", frame.sequence.number)
            return nil
        end
        message.text = message.text .. string.format(", last of %d parts",
            #frame.sequence.parts + 1)
        return frame.sequence.bytes:tvb("All parts")
    end
    return rest and rest:tvb()
end

local function dissect_msg(r, pinfo, tree, root, frame, message)
    local lists = dissect_chunk_lists(r, tree)
    message.header_len = r.at
    if message.more and not lists.empty then
        refuse(INVAL_FLAG, "Chunks in a message that is to be continued")
    end
    if r:left() > 0 then
        local payload = r.tvb(r.at)
        tree:add(f.payload, payload)
        tree:add(f.payload_len, payload:len()):set_generated()
    end
    local whole = join(r, pinfo, tree, frame, message)
    -- The last part of a sequence may have the chunk lists alone.
    if r:left() == 0 and (message.more or not frame.sequence) then
        refuse(BAD_XDR, "No Payload stream behind the header")
    end
    if not whole then
        return
    end
    if #lists.reads > 0 and lists.reads[1].position == 0 then
        refuse(BAD_XDR, "A Payload stream, and a Position Zero Read chunk")
    end
    local start = reader(whole)
    local xid, msg_type = start:word(), start:left() >= 4 and start:word()
    if xid ~= message.xid then
        refuse(BAD_XDR, string.format("rdma_xid is not the XID of the RPC message, %#x", xid))
    end
    if msg_type and (msg_type == 1) ~= message.response then
        refuse(INVAL_FLAG, "RPCRDMA2_F_RESPONSE does not fit the RPC message")
    end
    -- The text of the RPC's dissector for this packet comes last.
    pinfo.cols.info = message.text
    dissect_rpc(whole, pinfo, tree, root, message, lists)
    message.done = true
end

local function dissect_nomsg(r, tree, message)
    local lists = dissect_chunk_lists(r, tree)
    message.header_len = r.at
    if r:excess() > 0 then
        refuse(BAD_XDR, plural(r:excess(), "byte") .. " behind a header without Payload stream")
    end
    if lists.empty then
        if message.xid ~= 0 then
            refuse(BAD_XDR, "No chunk, and no grant either, which has XID 0")
        end
        message.text = string.format("RDMA2_NOMSG, grant of %d (maximum %d)", message.granted,
            message.maximum)
    elseif message.response then
        if not lists.reply then
            refuse(BAD_XDR, "A Reply without Payload stream and without Reply chunk")
        end
        message.text = message.text .. string.format(", %d bytes in the Reply chunk",
            lists.reply.length)
    else
        if not lists.reads[1] or lists.reads[1].position ~= 0 then
            refuse(BAD_XDR, "A Call without Payload stream and without Position Zero Read chunk")
        end
        message.text = message.text .. string.format(", %d bytes in the Position Zero Read chunk",
            lists.reads[1].length)
    end
end

-- The four words that all versions share.
local function dissect_fixed(r, tree)
    local message = {}
    message.xid = r:add(tree, f.rdma_xid)
    message.version = r:add(tree, f.rdma_vers)
    local range = r:take(4)
    local credit = tree:add(f.rdma_credit, range)
    message.maximum, message.granted = range(0, 2):uint(), range(2, 2):uint()
    credit:add(f.maximum, range(0, 2))
    credit:add(f.granted, range(2, 2))
    local htype
    message.htype, htype = r:add(tree, f.rdma_htype)
    message.text = HTYPES[message.htype] or string.format("header type %d", message.htype)
    if message.granted == 0 and message.htype ~= ERROR then
        credit:add_proto_expert_info(ODD, "No credit is granted: that would be a deadlock")
    end
    if not HTYPES[message.htype] then
        htype:add_proto_expert_info(INVAL_HTYPE)
        message.unknown = true
    end
    return message
end

local function dissect_flags(r, tree, message)
    local word, item = r:add(tree, f.rdma_flags)
    local range = r.tvb(r.at - 4, 4)
    item:add(f.response, range)
    item:add(f.more, range)
    message.response, message.more = word & RESPONSE ~= 0, word & MORE ~= 0
    if message.htype == ERROR or message.unknown then
        return
    end
    if word & ~(RESPONSE | MORE) ~= 0 then
        refuse(INVAL_FLAG, "Flags that are not defined")
    end
    if message.more and message.htype == NOMSG then
        refuse(INVAL_FLAG, "A message without Payload stream cannot be continued")
    end
    if message.htype ~= CONNPROP then
        message.text = message.text .. (message.response and " Reply" or " Call")
    end
end

local function dissect_body(r, pinfo, tree, root, frame, message)
    if is_version_1_error(r.tvb) then
        message.text = message.text .. " " .. dissect_error(r, tree) .. ", layout of version 1"
        return
    end
    dissect_flags(r, tree, message)
    if message.unknown then
        return
    end
    if message.htype == ERROR then
        message.text = message.text .. " " .. dissect_error(r, tree)
    elseif message.htype == NOMSG then
        dissect_nomsg(r, tree, message)
    elseif message.htype == MSG then
        dissect_msg(r, pinfo, tree, root, frame, message)
    else
        local whole = join(r, pinfo, tree, frame, message)
        if whole then
            local properties = reader(whole)
            message.text = message.text .. " " .. dissect_properties(properties, tree)
            r.at = r.tvb:len()
        elseif not message.more then
            refuse(BAD_XDR, "No properties")
        end
    end
end

local function dissect_message(tvb, pinfo, root, frame)
    local tree = root:add(rpcrdma2, tvb())
    pinfo.cols.protocol = "RPCoRDMA2"
    if frame.retransmitted then
        tree:add(f.retransmitted, true):set_generated()
    end
    local r = reader(tvb)
    local message = { text = "message too short" }
    local whole, problem = pcall(function()
        message = dissect_fixed(r, tree)
        if message.xid ~= 0 then
            message.text = string.format("%s XID %#x", message.text, message.xid)
        end
        dissect_body(r, pinfo, tree, root, frame, message)
    end)
    if not whole then
        if type(problem) ~= "table" then
            error(problem, 0)
        end
        tree:add_proto_expert_info(problem.info, problem.text)
        message.text = message.text .. ", " .. problem.text
        message.done = false
    end
    if message.header_len then
        tree:set_len(message.header_len)
    end
    tree:append_text(": " .. message.text)
    if not message.done then
        pinfo.cols.info = message.text
    end
end

local function dissect_send(tvb, pinfo, root)
    local frame = frames[pinfo.number]
    if not frame then
        frame = meet(tvb, pinfo)
        frames[pinfo.number] = frame
    end
    if frame.other then
        return false
    end
    if frame.first and frame.last then
        dissect_message(tvb, pinfo, root, frame)
    elseif frame.whole then
        dissect_message(frame.whole:tvb("Send of several packets"), pinfo, root, frame)
    else
        local tree = root:add(rpcrdma2, tvb())
        tree:append_text(": a piece of a Send")
        tree:add(f.piece, tvb())
        if frame.last then
            tree:add_proto_expert_info(MISSING, "Other packets of this Send are not there")
        end
        pinfo.cols.protocol = "RPCoRDMA2"
        pinfo.cols.info = "piece of a Send of several packets"
    end
    return true
end

-- Says whether the packet is one of a Send.
local function is_send()
    local opcode = opcode_of()
    return opcode ~= nil and SENDS[opcode()] == true
end

-- The bytes of a packet that the sender meant.
local function without_padding(tvb)
    local len = tvb:len() - padding_of()()
    if tvb:len() < tvb:reported_len() or len <= 0 or len == tvb:len() then
        return tvb
    end
    return tvb(0, len):tvb()
end

-- The frame that has come here while it is dissected.
local offered

rpcrdma2:register_heuristic("infiniband.payload", function(tvb, pinfo, root)
    if not is_send() or tvb:len() == 0 then
        return false
    end
    offered = pinfo.number
    return dissect_send(without_padding(tvb), pinfo, root)
end)

-- The order of the heuristic dissectors depends on the previous packet, and the dissector of version 1
-- accepts messages of other versions without showing their fields. Packets that were not offered to this
-- dissector are dissected after all other dissectors.
function rpcrdma2.dissector(_, pinfo, root)
    local missed = offered ~= pinfo.number
    offered = nil
    if not missed or not is_send() or not crc_of() then
        return 0
    end
    local bth = bth_of()
    local start = bth.offset + bth.len + (EXTENDED[opcode_of()()] or 0)
    local len = crc_of().offset - start
    if len <= 0 then
        return 0
    end
    dissect_send(without_padding(bth.source(start, len):tvb()), pinfo, root)
    return 0
end
register_postdissector(rpcrdma2)

-- Private data ---------------------------------------------------------------------------------

local p = {
    identifier = ProtoField.uint32("rpcrdma_cm.format_identifier", "Format Identifier", base.HEX),
    version = ProtoField.uint8("rpcrdma_cm.version", "Version"),
    reserved = ProtoField.uint8("rpcrdma_cm.reserved", "Reserved", base.HEX, nil, 0xfe),
    r = ProtoField.bool("rpcrdma_cm.r", "R (remote invalidation)", 8, nil, 0x01),
    send_size = ProtoField.uint32("rpcrdma_cm.send_size", "Send Size"),
    receive_size = ProtoField.uint32("rpcrdma_cm.receive_size", "Receive Size"),
    announcement = ProtoField.uint32("rpcrdma_cm.announcement", "Format Identifier", base.HEX),
    announcement_version = ProtoField.uint8("rpcrdma_cm.announcement.version", "Version"),
    highest = ProtoField.uint8("rpcrdma_cm.announcement.highest",
        "Highest version of RPC-over-RDMA"),
    announcement_reserved = ProtoField.uint16("rpcrdma_cm.announcement.reserved", "Reserved",
        base.HEX),
}
private.fields = list_of(p)

-- Sizes are in units of 1024 bytes, less one.
local function add_size(tree, field, range)
    local encoded = range:uint()
    tree:add(field, range, (encoded + 1) * 1024)
        :append_text(string.format(" bytes (encoded %d)", encoded))
end

-- The content behind format identifier and version of each message.
local CONTENT = {
    [0xf6ab0e18] = function(tree, message)
        tree:add(p.identifier, message(0, 4))
        tree:add(p.version, message(4, 1))
        tree:add(p.reserved, message(5, 1))
        tree:add(p.r, message(5, 1))
        add_size(tree, p.send_size, message(6, 1))
        add_size(tree, p.receive_size, message(7, 1))
    end,
    -- Documentation/version2.rst
    [0xd8cc59e2] = function(tree, message)
        tree:append_text(", announcement of the version")
        tree:add(p.announcement, message(0, 4))
        tree:add(p.announcement_version, message(4, 1))
        tree:add(p.highest, message(5, 1))
        tree:add(p.announcement_reserved, message(6, 2))
    end,
}

private:register_heuristic("infiniband.mad.cm.private", function(tvb, _, root)
    local found = {}
    for at = 0, tvb:len() - 8 do
        local identifier = tvb(at, 4):uint()
        if CONTENT[identifier] and not found[identifier] and tvb(at + 4, 1):uint() == 1 then
            found[identifier] = true
            CONTENT[identifier](root:add(private, tvb(at, 8)), tvb(at, 8))
        end
    end
    return next(found) ~= nil
end)
