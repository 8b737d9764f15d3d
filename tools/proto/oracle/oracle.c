// SPDX-License-Identifier: GPL-2.0
/*
 * Encodes and decodes transport headers with rpcgen's code for the documents' XDR.
 *
 * Reads lines from stdin and answers each with a line on stdout:
 *
 *   E WORDS...   encodes the fields and prints the bytes in hexadecimal
 *   D 1|2 HEX    decodes a message of that version and prints its fields
 *
 * The fields are decimal numbers in the order of the XDR. A list is preceded by its length; the
 * Reply chunk is a list of no or one chunk. Octets are numbers too.
 */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <rpc/rpc.h>

#include "rpcrdma1.h"
#include "rpcrdma2.h"

static char *words;

static unsigned long long word(void)
{
	char *end;
	unsigned long long value = strtoull(words, &end, 10);

	if (end == words) {
		fprintf(stderr, "oracle: a field is missing\n");
		exit(2);
	}
	words = end;
	return value;
}

static void *zalloc(size_t count, size_t size)
{
	void *memory = calloc(count ? count : 1, size);

	if (!memory) {
		fprintf(stderr, "oracle: out of memory\n");
		exit(2);
	}
	return memory;
}

/* The chunk lists of both versions look alike and have different types. */
#define LISTS(v)								\
static struct rpcrdma##v##_segment get_segment##v(void)			\
{										\
	struct rpcrdma##v##_segment segment;					\
										\
	segment.rdma_handle = word();						\
	segment.rdma_length = word();						\
	segment.rdma_offset = word();						\
	return segment;								\
}										\
										\
static void put_segment##v(const struct rpcrdma##v##_segment *segment)	\
{										\
	printf(" %u %u %llu", segment->rdma_handle, segment->rdma_length,	\
	       (unsigned long long)segment->rdma_offset);			\
}										\
										\
static void get_chunk##v(struct rpcrdma##v##_write_chunk *chunk)		\
{										\
	u_int i, count = word();						\
										\
	chunk->rdma_target.rdma_target_len = count;				\
	chunk->rdma_target.rdma_target_val =					\
		zalloc(count, sizeof(struct rpcrdma##v##_segment));		\
	for (i = 0; i < count; i++)						\
		chunk->rdma_target.rdma_target_val[i] = get_segment##v();	\
}										\
										\
static void put_chunk##v(const struct rpcrdma##v##_write_chunk *chunk)	\
{										\
	u_int i;								\
										\
	printf(" %u", chunk->rdma_target.rdma_target_len);			\
	for (i = 0; i < chunk->rdma_target.rdma_target_len; i++)		\
		put_segment##v(&chunk->rdma_target.rdma_target_val[i]);	\
}										\
										\
static struct rpcrdma##v##_read_list *get_reads##v(void)			\
{										\
	struct rpcrdma##v##_read_list *first = NULL, **next = &first;		\
	u_int count = word();							\
										\
	for (; count; count--) {						\
		*next = zalloc(1, sizeof(**next));				\
		(*next)->rdma_entry.rdma_position = word();			\
		(*next)->rdma_entry.rdma_target = get_segment##v();		\
		next = &(*next)->rdma_next;					\
	}									\
	return first;								\
}										\
										\
static void put_reads##v(const struct rpcrdma##v##_read_list *first)		\
{										\
	const struct rpcrdma##v##_read_list *read;				\
	u_int count = 0;							\
										\
	for (read = first; read; read = read->rdma_next)			\
		count++;							\
	printf(" %u", count);							\
	for (read = first; read; read = read->rdma_next) {			\
		printf(" %u", read->rdma_entry.rdma_position);			\
		put_segment##v(&read->rdma_entry.rdma_target);			\
	}									\
}										\
										\
static struct rpcrdma##v##_write_list *get_writes##v(void)			\
{										\
	struct rpcrdma##v##_write_list *first = NULL, **next = &first;	\
	u_int count = word();							\
										\
	for (; count; count--) {						\
		*next = zalloc(1, sizeof(**next));				\
		get_chunk##v(&(*next)->rdma_entry);				\
		next = &(*next)->rdma_next;					\
	}									\
	return first;								\
}										\
										\
static void put_writes##v(const struct rpcrdma##v##_write_list *first)	\
{										\
	const struct rpcrdma##v##_write_list *write;				\
	u_int count = 0;							\
										\
	for (write = first; write; write = write->rdma_next)			\
		count++;							\
	printf(" %u", count);							\
	for (write = first; write; write = write->rdma_next)			\
		put_chunk##v(&write->rdma_entry);				\
}										\
										\
static struct rpcrdma##v##_write_chunk *get_reply##v(void)			\
{										\
	struct rpcrdma##v##_write_chunk *reply = NULL;			\
										\
	if (word()) {								\
		reply = zalloc(1, sizeof(*reply));				\
		get_chunk##v(reply);						\
	}									\
	return reply;								\
}										\
										\
static void put_reply##v(const struct rpcrdma##v##_write_chunk *reply)	\
{										\
	printf(" %u", !!reply);							\
	if (reply)								\
		put_chunk##v(reply);						\
}

LISTS(1)
LISTS(2)

static void must(bool_t done, const char *what)
{
	if (!done) {
		fprintf(stderr, "oracle: %s failed\n", what);
		exit(2);
	}
}

static void get_chunks1(struct rpcrdma1_chunks *chunks)
{
	chunks->rdma_reads = get_reads1();
	chunks->rdma_writes = get_writes1();
	chunks->rdma_reply = get_reply1();
}

static void put_chunks1(const struct rpcrdma1_chunks *chunks)
{
	put_reads1(chunks->rdma_reads);
	put_writes1(chunks->rdma_writes);
	put_reply1(chunks->rdma_reply);
}

static void encode1(XDR *xdr)
{
	struct rpcrdma1_header header;
	rpcrdma1_error *error = &header.rdma_body.rpcrdma1_body_u.rdma_error;

	memset(&header, 0, sizeof(header));
	header.rdma_xid = word();
	header.rdma_vers = word();
	header.rdma_credit = word();
	header.rdma_body.rdma_proc = word();
	switch (header.rdma_body.rdma_proc) {
	case RDMA_MSG:
		get_chunks1(&header.rdma_body.rpcrdma1_body_u.rdma_chunks);
		break;
	case RDMA_NOMSG:
		get_chunks1(&header.rdma_body.rpcrdma1_body_u.rdma_nochunks);
		break;
	case RDMA_ERROR:
		error->rdma_err = word();
		if (error->rdma_err == RDMA_ERR_VERS) {
			error->rpcrdma1_error_u.rdma_range.rdma_vers_low = word();
			error->rpcrdma1_error_u.rdma_range.rdma_vers_high = word();
		}
		break;
	default:
		break;
	}
	must(xdr_rpcrdma1_header(xdr, &header), "encoding version 1");
	xdr_free((xdrproc_t)xdr_rpcrdma1_header, (char *)&header);
}

static void decode1(XDR *xdr)
{
	struct rpcrdma1_header header;
	const rpcrdma1_error *error = &header.rdma_body.rpcrdma1_body_u.rdma_error;

	memset(&header, 0, sizeof(header));
	must(xdr_rpcrdma1_header(xdr, &header), "decoding version 1");
	printf("1 %u %u %u %u", header.rdma_xid, header.rdma_vers, header.rdma_credit,
	       header.rdma_body.rdma_proc);
	switch (header.rdma_body.rdma_proc) {
	case RDMA_MSG:
		put_chunks1(&header.rdma_body.rpcrdma1_body_u.rdma_chunks);
		break;
	case RDMA_NOMSG:
		put_chunks1(&header.rdma_body.rpcrdma1_body_u.rdma_nochunks);
		break;
	case RDMA_ERROR:
		printf(" %u", error->rdma_err);
		if (error->rdma_err == RDMA_ERR_VERS)
			printf(" %u %u", error->rpcrdma1_error_u.rdma_range.rdma_vers_low,
			       error->rpcrdma1_error_u.rdma_range.rdma_vers_high);
		break;
	default:
		break;
	}
	xdr_free((xdrproc_t)xdr_rpcrdma1_header, (char *)&header);
}

static void get_chunks2(struct rpcrdma2_chunk_lists *chunks)
{
	chunks->rdma_inv_handle = word();
	chunks->rdma_reads = get_reads2();
	chunks->rdma_writes = get_writes2();
	chunks->rdma_reply = get_reply2();
}

static void put_chunks2(const struct rpcrdma2_chunk_lists *chunks)
{
	printf(" %u", chunks->rdma_inv_handle);
	put_reads2(chunks->rdma_reads);
	put_writes2(chunks->rdma_writes);
	put_reply2(chunks->rdma_reply);
}

static void get_octets(u_int *len, char **octets)
{
	u_int i;

	*len = word();
	*octets = zalloc(*len, 1);
	for (i = 0; i < *len; i++)
		(*octets)[i] = word();
}

static void encode_msg2(XDR *xdr)
{
	struct rpcrdma2_msg msg;

	memset(&msg, 0, sizeof(msg));
	get_chunks2(&msg.rdma_chunks);
	msg.rdma_rpc_first_word = word();
	must(xdr_rpcrdma2_msg(xdr, &msg), "encoding RDMA2_MSG");
	xdr_free((xdrproc_t)xdr_rpcrdma2_msg, (char *)&msg);
}

static void encode_nomsg2(XDR *xdr)
{
	struct rpcrdma2_nomsg nomsg;

	memset(&nomsg, 0, sizeof(nomsg));
	get_chunks2(&nomsg.rdma_chunks);
	must(xdr_rpcrdma2_nomsg(xdr, &nomsg), "encoding RDMA2_NOMSG");
	xdr_free((xdrproc_t)xdr_rpcrdma2_nomsg, (char *)&nomsg);
}

static void encode_error2(XDR *xdr)
{
	struct rpcrdma2_error error;

	memset(&error, 0, sizeof(error));
	error.rdma_err = word();
	switch (error.rdma_err) {
	case RDMA2_ERR_VERS:
		error.rpcrdma2_error_u.rdma_vrange.rdma_vers_low = word();
		error.rpcrdma2_error_u.rdma_vrange.rdma_vers_high = word();
		break;
	case RDMA2_ERR_READ_CHUNKS:
		error.rpcrdma2_error_u.rdma_max_read_chunks = word();
		break;
	case RDMA2_ERR_WRITE_CHUNKS:
		error.rpcrdma2_error_u.rdma_max_write_chunks = word();
		break;
	case RDMA2_ERR_SEGMENTS:
		error.rpcrdma2_error_u.rdma_max_segments = word();
		break;
	case RDMA2_ERR_WRITE_RESOURCE:
		error.rpcrdma2_error_u.rdma_writeres.rdma_chunk_index = word();
		error.rpcrdma2_error_u.rdma_writeres.rdma_length_needed = word();
		break;
	case RDMA2_ERR_REPLY_RESOURCE:
		error.rpcrdma2_error_u.rdma_length_needed = word();
		break;
	default:
		break;
	}
	must(xdr_rpcrdma2_error(xdr, &error), "encoding RDMA2_ERROR");
}

static void decode_error2(XDR *xdr)
{
	struct rpcrdma2_error error;

	memset(&error, 0, sizeof(error));
	must(xdr_rpcrdma2_error(xdr, &error), "decoding RDMA2_ERROR");
	printf(" %u", error.rdma_err);
	switch (error.rdma_err) {
	case RDMA2_ERR_VERS:
		printf(" %u %u", error.rpcrdma2_error_u.rdma_vrange.rdma_vers_low,
		       error.rpcrdma2_error_u.rdma_vrange.rdma_vers_high);
		break;
	case RDMA2_ERR_READ_CHUNKS:
		printf(" %u", error.rpcrdma2_error_u.rdma_max_read_chunks);
		break;
	case RDMA2_ERR_WRITE_CHUNKS:
		printf(" %u", error.rpcrdma2_error_u.rdma_max_write_chunks);
		break;
	case RDMA2_ERR_SEGMENTS:
		printf(" %u", error.rpcrdma2_error_u.rdma_max_segments);
		break;
	case RDMA2_ERR_WRITE_RESOURCE:
		printf(" %u %u", error.rpcrdma2_error_u.rdma_writeres.rdma_chunk_index,
		       error.rpcrdma2_error_u.rdma_writeres.rdma_length_needed);
		break;
	case RDMA2_ERR_REPLY_RESOURCE:
		printf(" %u", error.rpcrdma2_error_u.rdma_length_needed);
		break;
	default:
		break;
	}
}

/* A property's value is XDR of its own. */
static void get_property(struct rpcrdma2_propval *property)
{
	rpcrdma2_prop_hostauth material;
	char value[2048];
	XDR xdr;

	property->rdma_which = word();
	if (property->rdma_which == RDMA2_PROPID_HOSTAUTH) {
		get_octets(&material.rpcrdma2_prop_hostauth_len,
			   &material.rpcrdma2_prop_hostauth_val);
		xdrmem_create(&xdr, value, sizeof(value), XDR_ENCODE);
		must(xdr_rpcrdma2_prop_hostauth(&xdr, &material), "encoding HOSTAUTH");
		property->rdma_data.rdma_data_len = xdr_getpos(&xdr);
		property->rdma_data.rdma_data_val = zalloc(xdr_getpos(&xdr), 1);
		memcpy(property->rdma_data.rdma_data_val, value, xdr_getpos(&xdr));
		xdr_free((xdrproc_t)xdr_rpcrdma2_prop_hostauth, (char *)&material);
	} else {
		get_octets(&property->rdma_data.rdma_data_len,
			   &property->rdma_data.rdma_data_val);
	}
}

static void put_octets(u_int len, const char *octets)
{
	u_int i;

	printf(" %u", len);
	for (i = 0; i < len; i++)
		printf(" %u", (unsigned char)octets[i]);
}

static void put_property(const struct rpcrdma2_propval *property)
{
	rpcrdma2_prop_hostauth material = {};
	XDR xdr;

	printf(" %u", property->rdma_which);
	if (property->rdma_which == RDMA2_PROPID_HOSTAUTH) {
		xdrmem_create(&xdr, property->rdma_data.rdma_data_val,
			      property->rdma_data.rdma_data_len, XDR_DECODE);
		must(xdr_rpcrdma2_prop_hostauth(&xdr, &material), "decoding HOSTAUTH");
		put_octets(material.rpcrdma2_prop_hostauth_len,
			   material.rpcrdma2_prop_hostauth_val);
		xdr_free((xdrproc_t)xdr_rpcrdma2_prop_hostauth, (char *)&material);
	} else {
		put_octets(property->rdma_data.rdma_data_len,
			   property->rdma_data.rdma_data_val);
	}
}

static void encode_connprop2(XDR *xdr)
{
	struct rpcrdma2_connprop connprop;
	u_int i, count = word();

	connprop.rdma_props.rpcrdma2_propset_len = count;
	connprop.rdma_props.rpcrdma2_propset_val =
		zalloc(count, sizeof(struct rpcrdma2_propval));
	for (i = 0; i < count; i++)
		get_property(&connprop.rdma_props.rpcrdma2_propset_val[i]);
	must(xdr_rpcrdma2_connprop(xdr, &connprop), "encoding RDMA2_CONNPROP");
	xdr_free((xdrproc_t)xdr_rpcrdma2_connprop, (char *)&connprop);
}

static void decode_connprop2(XDR *xdr)
{
	struct rpcrdma2_connprop connprop;
	u_int i;

	memset(&connprop, 0, sizeof(connprop));
	must(xdr_rpcrdma2_connprop(xdr, &connprop), "decoding RDMA2_CONNPROP");
	printf(" %u", connprop.rdma_props.rpcrdma2_propset_len);
	for (i = 0; i < connprop.rdma_props.rpcrdma2_propset_len; i++)
		put_property(&connprop.rdma_props.rpcrdma2_propset_val[i]);
	xdr_free((xdrproc_t)xdr_rpcrdma2_connprop, (char *)&connprop);
}

static void encode2(XDR *xdr)
{
	struct rpcrdma2_hdr_prefix prefix;

	prefix.rdma_start.rdma_xid = word();
	prefix.rdma_start.rdma_vers = word();
	prefix.rdma_start.rdma_credit = word();
	prefix.rdma_start.rdma_htype = word();
	prefix.rdma_flags = word();
	must(xdr_rpcrdma2_hdr_prefix(xdr, &prefix), "encoding the prefix");
	switch (prefix.rdma_start.rdma_htype) {
	case RDMA2_MSG:
		encode_msg2(xdr);
		break;
	case RDMA2_NOMSG:
		encode_nomsg2(xdr);
		break;
	case RDMA2_ERROR:
		encode_error2(xdr);
		break;
	case RDMA2_CONNPROP:
		encode_connprop2(xdr);
		break;
	}
}

static void decode2(XDR *xdr)
{
	struct rpcrdma2_hdr_prefix prefix;
	struct rpcrdma2_nomsg nomsg;
	struct rpcrdma2_msg msg;

	memset(&msg, 0, sizeof(msg));
	memset(&nomsg, 0, sizeof(nomsg));
	must(xdr_rpcrdma2_hdr_prefix(xdr, &prefix), "decoding the prefix");
	printf("2 %u %u %u %u %u", prefix.rdma_start.rdma_xid, prefix.rdma_start.rdma_vers,
	       prefix.rdma_start.rdma_credit, prefix.rdma_start.rdma_htype, prefix.rdma_flags);
	switch (prefix.rdma_start.rdma_htype) {
	case RDMA2_MSG:
		must(xdr_rpcrdma2_msg(xdr, &msg), "decoding RDMA2_MSG");
		put_chunks2(&msg.rdma_chunks);
		printf(" %u", msg.rdma_rpc_first_word);
		xdr_free((xdrproc_t)xdr_rpcrdma2_msg, (char *)&msg);
		break;
	case RDMA2_NOMSG:
		must(xdr_rpcrdma2_nomsg(xdr, &nomsg), "decoding RDMA2_NOMSG");
		put_chunks2(&nomsg.rdma_chunks);
		xdr_free((xdrproc_t)xdr_rpcrdma2_nomsg, (char *)&nomsg);
		break;
	case RDMA2_ERROR:
		decode_error2(xdr);
		break;
	case RDMA2_CONNPROP:
		decode_connprop2(xdr);
		break;
	}
}

static u_int from_hex(const char *hex, char *bytes, u_int room)
{
	u_int len = 0;
	unsigned int byte;

	while (isspace((unsigned char)*hex))
		hex++;
	while (len < room && sscanf(hex, "%2x", &byte) == 1) {
		bytes[len++] = byte;
		hex += 2;
	}
	return len;
}

int main(void)
{
	static char line[1 << 16], bytes[1 << 14];
	unsigned int version;
	u_int i, len;
	XDR xdr;

	while (fgets(line, sizeof(line), stdin)) {
		words = line + 1;
		version = word();
		if (*line == 'E') {
			xdrmem_create(&xdr, bytes, sizeof(bytes), XDR_ENCODE);
			(version == 1 ? encode1 : encode2)(&xdr);
			len = xdr_getpos(&xdr);
			for (i = 0; i < len; i++)
				printf("%02x", (unsigned char)bytes[i]);
		} else {
			len = from_hex(words, bytes, sizeof(bytes));
			xdrmem_create(&xdr, bytes, len, XDR_DECODE);
			(version == 1 ? decode1 : decode2)(&xdr);
			must(xdr_getpos(&xdr) == len, "reaching the end of a message");
		}
		putchar('\n');
		fflush(stdout);
	}
	return 0;
}
