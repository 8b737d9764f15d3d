# SPDX-License-Identifier: GPL-2.0
"""Headers that a server has to refuse or drop."""

from wire import words

from misuse.base import expect
from misuse.client import lists_of
from misuse.nfs import rpc

from .talk import BAD_XDR, CONNPROP, ERROR, INVAL_FLAG, INVAL_HTYPE, MORE, MSG, NOMSG, NO_LISTS, Talk


#= V2-064
def another_version(talk: Talk) -> None:
    talk.open()
    xid = talk.caller.next_xid()
    talk.raw(words(xid, 1, 32, MSG) + NO_LISTS + rpc()(xid))
    message = expect(talk.hear(), "no error message")
    expect(message.message[12:] == words(ERROR, 1, 1, 2), message)
    # The server has counted no credit for the message.
    talk.balance += 1
    talk.lives()


#= V2-011, V2-145
def other_types(talk: Talk) -> None:
    talk.open()
    for kind in (2, 3, 6, 0xFFFFFFFF):
        talk.refused(talk.send(kind, words(0) + NO_LISTS + words(0)), INVAL_HTYPE)


#= V2-031, V2-034, V2-035
def other_flags(talk: Talk) -> None:
    talk.open()
    piece = talk.connection.piece()
    for kind, flags, body in ((MSG, 4, words(0) + NO_LISTS), (NOMSG, MORE, words(0) + NO_LISTS),
                              (MSG, 0x80000000, b""), (CONNPROP, 8, words(0)),
                              (MSG, MORE, words(0) + lists_of((), [[piece]]) + words(1))):
        talk.refused(talk.send(kind, body, flags=flags), INVAL_FLAG)
    # The server checks the type before the flags.
    talk.refused(talk.send(7, b"", flags=MORE), INVAL_HTYPE)


#= V2-147
def cut_headers(talk: Talk) -> None:
    talk.open()
    piece = talk.connection.piece()
    whole = words(0) + lists_of([(40, piece)], [[piece]], [piece, piece])
    for length in range(0, len(whole), 4):
        talk.refused(talk.send(MSG, whole[:length]), BAD_XDR)


#= V2-026
def a_direction_that_is_wrong(talk: Talk) -> None:
    talk.open()
    talk.refused(talk.ask(lambda xid: words(xid, 1, 0, 0, 0, 0)), INVAL_FLAG)
