// SPDX-License-Identifier: GPL-2.0
/*
 * load ROW MOUNT KIND FILE COUNT [DEPTH SIZE]: executes COUNT operations of a kind on the client,
 * after a quarter of them uncounted, between the markers that start and end counting, and prints
 * the number of RPCs of the mount in this time. load MARKER: executes that marker.
 *
 * With COUNTED=server in the environment, the markers are executed on the server's node.
 */

#define _GNU_SOURCE
#include <dirent.h>
#include <err.h>
#include <fcntl.h>
#include <linux/aio_abi.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "marker.h"

#define MARK(kind) \
	case kind: \
		asm volatile(".byte 0x0f, 0x1f, 0x84, 0x00; .long %c0" \
			     :: "i"(MARKER_BASE + (kind))); \
		break

#define FILE_SIZE (16l << 20)
#define PAGE 4096l
#define MAX_DEPTH 256

/* The number of calls that bring a connection to its full size, even with two pauses. */
enum { GROWN = 256 };

static const char *mount_point, *kind, *path;
static long depth = 1, size = PAGE, done;
static int fd;
static char *buffers;

static const char *const markers[] = {
	[MARKER_SYMBOLS] = "symbols",
	[MARKER_ON] = "on",
	[MARKER_OFF] = "off",
	[MARKER_END] = "end",
};

static void mark(enum marker marker)
{
	const char *counted = getenv("COUNTED");
	char command[64];

	if (counted && !strcmp(counted, "server")) {
		snprintf(command, sizeof(command), "lab-server /share/load %s", markers[marker]);
		if (system(command))
			errx(1, "%s", command);
		return;
	}
	switch (marker) {
	MARK(MARKER_SYMBOLS);
	MARK(MARKER_ON);
	MARK(MARKER_OFF);
	MARK(MARKER_END);
	}
}

/* --- RPCs of the mount so far, without renewals of the lease -------------------------------- */

static long sends(void)
{
	FILE *file = fopen("/proc/self/mountstats", "r");
	char line[1024], wanted[256], name[32];
	long sent = 0, count;
	bool ours = false;

	snprintf(wanted, sizeof(wanted), " mounted on %s ", mount_point);
	while (fgets(line, sizeof(line), file)) {
		if (!strncmp(line, "device ", 7))
			ours = strstr(line, wanted);
		else if (ours && sscanf(line, " %31[A-Z_]: %*d %ld", name, &count) == 2 &&
			 strcmp(name, "SEQUENCE"))
			sent += count;
	}
	fclose(file);
	if (!sent)
		errx(1, "no statistics of an NFS mount on %s", mount_point);
	return sent;
}

/* Counting begins and ends when the remaining work of other RPCs is done. */
static void begin_counting(void)
{
	usleep(20000);
	mark(MARKER_ON);
}

static void end_counting(void)
{
	usleep(20000);
	mark(MARKER_OFF);
}

/* --- The kinds of operation ----------------------------------------------------------------- */

static void getattr(long count)
{
	struct statx attributes;

	while (count--)
		if (statx(fd, "", AT_EMPTY_PATH | AT_STATX_FORCE_SYNC, STATX_BASIC_STATS,
			  &attributes))
			err(1, "statx");
}

/* Every third operation of a mixed load is a WRITE. */
enum { MIXED = -1 };

static int opcode_of(int opcode)
{
	if (opcode != MIXED)
		return opcode;
	return done % 3 == 2 ? IOCB_CMD_PWRITE : IOCB_CMD_PREAD;
}

/* Keeps DEPTH operations going until COUNT are done. With a mixed load, each fourth waits for a GETATTR. */
static void transfer(long count, int opcode)
{
	static struct iocb control[MAX_DEPTH], *list[MAX_DEPTH];
	static struct io_event events[MAX_DEPTH];
	static aio_context_t context;
	long going = 0, started = 0, ready = 0;

	if (depth == 1) {
		for (; count; count--, done++) {
			long at = done * size % FILE_SIZE;
			long moved = opcode == IOCB_CMD_PREAD ? pread(fd, buffers, size, at)
							      : pwrite(fd, buffers, size, at);
			if (moved != size)
				err(1, "moved %ld of %ld bytes", moved, size);
		}
		return;
	}
	if (!context && syscall(SYS_io_setup, MAX_DEPTH, &context))
		err(1, "io_setup");
	for (long i = 0; i < depth; i++)
		list[ready++] = &control[i];
	while (going || started < count) {
		long begin = ready < count - started ? ready : count - started;

		for (long i = 0; i < begin; i++, done++) {
			struct iocb *io = list[ready - 1 - i];

			memset(io, 0, sizeof(*io));
			io->aio_lio_opcode = opcode_of(opcode);
			io->aio_fildes = fd;
			io->aio_buf = (unsigned long)(buffers + (io - control) * size);
			io->aio_nbytes = size;
			io->aio_offset = done * size % FILE_SIZE;
			if (opcode == MIXED && done % 4 == 3)
				getattr(1);
		}
		if (begin && syscall(SYS_io_submit, context, begin, list + ready - begin) != begin)
			err(1, "io_submit");
		ready -= begin;
		started += begin;
		going += begin;
		long ended = syscall(SYS_io_getevents, context, 1l, MAX_DEPTH, events, NULL);

		if (ended < 1)
			err(1, "io_getevents");
		for (long i = 0; i < ended; i++) {
			if (events[i].res != size)
				errx(1, "moved %lld of %ld bytes", (long long)events[i].res, size);
			list[ready++] = (struct iocb *)events[i].obj;
		}
		going -= ended;
	}
}

static void forget_caches(void)
{
	int caches = open("/proc/sys/vm/drop_caches", O_WRONLY);

	if (caches < 0 || write(caches, "3", 1) != 1)
		err(1, "drop_caches");
	close(caches);
}

/* Returns the number of RPCs of the counted part. */
static long readdir_all(long count, bool counted)
{
	long sent = 0;

	while (count--) {
		static char entries[1 << 16];
		int dir;

		forget_caches();
		dir = open(path, O_RDONLY | O_DIRECTORY);
		if (dir < 0)
			err(1, "%s", path);
		sent -= sends();
		if (counted)
			begin_counting();
		while (syscall(SYS_getdents64, dir, entries, sizeof(entries)) > 0)
			;
		if (counted)
			end_counting();
		sent += sends();
		close(dir);
	}
	return sent;
}

static void operate(long count)
{
	if (!strcmp(kind, "getattr"))
		getattr(count);
	else if (!strcmp(kind, "mixed"))
		transfer(count, MIXED);
	else
		transfer(count, !strncmp(kind, "read", 4) ? IOCB_CMD_PREAD : IOCB_CMD_PWRITE);
}

/* Buffers whose pages are no neighbours in memory, or, in a huge page, all are. */
static void make_buffers(bool huge)
{
	long length = (depth * size + (2 << 20) - 1) & -(2l << 20), pages = length / PAGE;
	char *area = mmap(NULL, length + (2 << 20), PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (area == MAP_FAILED)
		err(1, "mmap");
	buffers = (char *)(((unsigned long)area + (2 << 20) - 1) & -(2l << 20));
	/* A kernel without huge pages refuses to be told to use none. */
	if (madvise(buffers, length, huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE) && huge)
		err(1, "madvise");
	for (long i = 0; i < pages; i++)
		buffers[i * 7 % pages * PAGE] = 1;
}

int main(int argc, char **argv)
{
	bool listing;
	long count, sent;

	for (int marker = MARKER_SYMBOLS; argc == 2 && marker <= MARKER_END; marker++) {
		if (!strcmp(argv[1], markers[marker])) {
			mark(marker);
			return 0;
		}
	}
	if (argc < 6)
		errx(2, "usage: load ROW MOUNT KIND FILE COUNT [DEPTH SIZE]");
	mount_point = argv[2];
	kind = argv[3];
	path = argv[4];
	count = atol(argv[5]);
	if (argc > 7) {
		depth = atol(argv[6]);
		size = atol(argv[7]);
	}
	listing = !strcmp(kind, "readdir");
	if (listing) {
		readdir_all(1, false);
	} else {
		bool data = strcmp(kind, "getattr");

		fd = open(path, data ? O_RDWR | O_DIRECT : O_RDONLY);
		if (fd < 0)
			err(1, "%s", path);
		if (data)
			make_buffers(strstr(kind, "huge"));
		/* A connection to our server grows with its use. */
		operate(depth + (size == PAGE && count < 4 * GROWN ? GROWN : count / 4));
	}
	if (listing) {
		sent = readdir_all(count, true);
	} else {
		sent = -sends();
		begin_counting();
		operate(count);
		end_counting();
		sent += sends();
	}
	mark(MARKER_END);
	printf("row %s %ld\n", argv[1], sent);
	return 0;
}
