// SPDX-License-Identifier: GPL-2.0
/*
 * QEMU TCG plugin: counts the instructions of a node's kernel in rpcrdma.ko, and in its callees
 * until they return, the calls of the kernel's allocators, and the instructions while a spinlock is
 * held. README.rst describes the exceptions.
 *
 * The guest steers it by marker instructions (marker.h). Its symbols come in a file, a copy of
 * /proc/kallsyms; the counts go to a file, one section for each phase. One processor only.
 */

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "marker.h"
#include "qemu_plugin.h"

__attribute__((visibility("default"))) int qemu_plugin_version = 4;

/* --- Registers and memory of the guest ---------------------------------------------------- */

enum { RCX, RDX, RSI, RDI, R8, RSP, REGISTERS };
static const char *const register_names[REGISTERS] = { "rcx", "rdx", "rsi", "rdi", "r8", "rsp" };
static struct qemu_plugin_register *registers[REGISTERS];
static struct g_byte_array *scratch;

static uint64_t reg(int which)
{
	uint64_t value = 0;

	g_byte_array_set_size(scratch, 0);
	qemu_plugin_read_register(registers[which], scratch);
	memcpy(&value, scratch->data, scratch->len < 8 ? scratch->len : 8);
	return value;
}

static bool load(uint64_t address, void *to, size_t length)
{
	g_byte_array_set_size(scratch, 0);
	if (!qemu_plugin_read_memory_vaddr(address, scratch, length))
		return false;
	memcpy(to, scratch->data, length);
	return true;
}

/* --- Symbols -------------------------------------------------------------------------------- */

enum class {
	OTHER, OWN, PROVIDER, POST_SEND, POST_RECV, APART, INTERRUPT, INTERRUPT_STUBS, SWITCH, COPY
};

/* Functions of the allocators, and how the pages that they move are counted. */
enum memory {
	NO_MEMORY, MEMORY, RESIZE, PAGES_BY_ORDER, PAGES_BY_ARRAY, FREED_BY_ORDER, FREED_BY_BATCH
};

/* Functions that take and release a spinlock. Rust calls the first through functions of the kernel crate. */
enum lock { NO_LOCK, LOCK, LOCK_HELPER, UNLOCK };

struct symbol {
	uint64_t address;
	enum class class;
	enum memory memory;
	enum lock lock;
	bool rpc;		/* in rpcrdma or sunrpc */
};

static struct symbol *symbols;
static size_t symbol_count;
static const char *symbols_path = "/lab/out/kallsyms";
static const char *counts_path = "/lab/out/counts";

/* Counted apart, with all they call: wake-ups, queued work, scheduling, softirqs, the clock. */
static const char *const apart[] = {
	"try_to_wake_up", "__wake_up*", "wake_up_*", "swake_up_*", "complete", "complete_all",
	"queue_work_on", "queue_delayed_work_on", "mod_delayed_work_on", "schedule", "__schedule",
	"preempt_schedule*", "__cond_resched", "do_softirq*", "__do_softirq", "handle_softirqs",
	"ktime_get*", "read_tsc", "sched_clock*",
};
static const char *const stubs[] = { "irq_entries_start", "spurious_entries_start" };
static const char *const interrupts[] = { "asm_sysvec_*", "asm_exc_*" };
static const char *const copies[] = { "memcpy", "__memcpy", "memmove", "__memmove" };
static const char *const memory[] = {
	"__kmalloc*", "__kvmalloc*", "kmemdup*", "kstrdup*",
	"kmem_cache_alloc*", "mempool_alloc_noprof", "__vmalloc*", "vmalloc*",
	"kfree", "kfree_const", "kfree_sensitive", "kvfree", "kvfree_call_rcu", "kvfree_sensitive",
	"kmem_cache_free*", "mempool_free", "vfree",
	"alloc_pages*", "__alloc_pages_noprof", "alloc_frozen_pages*", "folio_alloc*",
	"__folio_alloc*", "get_free_pages*", "get_zeroed_page*", "free_pages*", "__free_pages",
	"free_frozen_pages*", "release_pages", "folios_put_refs", "__folio_put",
	"__folio_batch_release",
};

static const char *const resizes[] = { "krealloc*", "kvrealloc*", "vrealloc*" };

static bool among(const char *name, const char *const *list, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		size_t length = strlen(list[i]);
		bool prefix = list[i][length - 1] == '*';

		if (prefix ? !strncmp(name, list[i], length - 1) : !strcmp(name, list[i]))
			return true;
	}
	return false;
}
#define AMONG(name, list) among(name, list, sizeof(list) / sizeof(*(list)))

static enum class classify(const char *name, const char *module)
{
	if (!strcmp(module, "[rpcrdma]"))
		return OWN;
	if (!strcmp(module, "[rdma_rxe]"))
		return !strcmp(name, "rxe_post_send") ? POST_SEND :
		       !strcmp(name, "rxe_post_recv") ? POST_RECV : PROVIDER;
	if (!strcmp(name, "__switch_to"))
		return SWITCH;
	if (AMONG(name, interrupts))
		return INTERRUPT;
	if (AMONG(name, stubs))
		return INTERRUPT_STUBS;
	if (AMONG(name, apart))
		return APART;
	return AMONG(name, copies) ? COPY : OTHER;
}

/* All pages pass through one of the first four functions, which the others call. */
static enum memory classify_memory(const char *name, const char *module)
{
	if (*module)
		return NO_MEMORY;
	if (!strcmp(name, "__alloc_frozen_pages_noprof"))
		return PAGES_BY_ORDER;
	if (!strcmp(name, "alloc_pages_bulk_noprof"))
		return PAGES_BY_ARRAY;
	if (!strcmp(name, "__free_frozen_pages"))
		return FREED_BY_ORDER;
	if (!strcmp(name, "free_unref_folios"))
		return FREED_BY_BATCH;
	if (AMONG(name, resizes))
		return RESIZE;
	return AMONG(name, memory) ? MEMORY : NO_MEMORY;
}

static enum lock classify_lock(const char *name)
{
	static const char *const locks[] = { "_raw_spin_lock*" };
	static const char *const unlocks[] = { "_raw_spin_unlock*" };
	static const char *const helpers[] = { "rust_helper_spin_lock*" };

	return AMONG(name, locks) ? LOCK : AMONG(name, unlocks) ? UNLOCK :
	       AMONG(name, helpers) ? LOCK_HELPER : NO_LOCK;
}

static int by_address(const void *a, const void *b)
{
	const struct symbol *left = a, *right = b;

	return (left->address > right->address) - (left->address < right->address);
}

static void read_symbols(void)
{
	FILE *file = fopen(symbols_path, "r");
	char line[1024], name[512], module[64], type;
	unsigned long long address;
	size_t room = 1 << 18, unique = 0;

	if (!file) {
		fprintf(stderr, "counter: no %s\n", symbols_path);
		exit(1);
	}
	symbols = realloc(symbols, room * sizeof(*symbols));
	symbol_count = 0;
	while (fgets(line, sizeof(line), file)) {
		struct symbol *symbol;

		*module = 0;
		if (sscanf(line, "%llx %c %511s %63s", &address, &type, name, module) < 3 ||
		    !strchr("tTwW", type) || !strncmp(name, "__pfx_", 6))
			continue;
		if (symbol_count == room) {
			room *= 2;
			symbols = realloc(symbols, room * sizeof(*symbols));
		}
		symbol = &symbols[symbol_count++];
		symbol->address = address;
		symbol->class = classify(name, module);
		symbol->memory = classify_memory(name, module);
		symbol->lock = classify_lock(name);
		symbol->rpc = !strcmp(module, "[rpcrdma]") || !strcmp(module, "[sunrpc]");
	}
	fclose(file);
	qsort(symbols, symbol_count, sizeof(*symbols), by_address);
	/* One of several names for an address; the one that says most. */
	for (size_t i = 0; i < symbol_count; i++) {
		if (unique && symbols[unique - 1].address == symbols[i].address) {
			if (symbols[unique - 1].class == OTHER)
				symbols[unique - 1].class = symbols[i].class;
			if (symbols[unique - 1].memory == NO_MEMORY)
				symbols[unique - 1].memory = symbols[i].memory;
			if (symbols[unique - 1].lock == NO_LOCK)
				symbols[unique - 1].lock = symbols[i].lock;
		} else {
			symbols[unique++] = symbols[i];
		}
	}
	symbol_count = unique;
}

static const struct symbol *symbol_of(uint64_t pc)
{
	size_t low = 0, high = symbol_count;

	while (low < high) {
		size_t middle = (low + high) / 2;

		if (symbols[middle].address <= pc)
			low = middle + 1;
		else
			high = middle;
	}
	return low ? &symbols[low - 1] : NULL;
}

/* --- Translation blocks --------------------------------------------------------------------- */

struct block {
	struct block *next;
	uint64_t pc;
	uint64_t repeated;	/* address of the string instruction with REP in it, or 0 */
	uint32_t insns, locked;
	bool iret;
	/* Found out from the symbols at the first execution. */
	bool resolved, start;
	enum class class;
	enum memory memory;	/* of the function that begins here */
	enum lock lock;		/* of the same */
	/* Executions: all; within a call of ours; that left it for something apart. */
	uint64_t all, within, leaving;
};

#define BUCKETS (1 << 18)
static struct block *blocks[BUCKETS];

struct string_insn {
	uint64_t width;
};

static struct qemu_plugin_u64 on;	/* a phase is being counted */

static struct block *block_for(uint64_t pc, uint32_t insns, uint32_t locked, uint64_t repeated,
			       bool iret)
{
	struct block **bucket = &blocks[(pc ^ pc >> 18) % BUCKETS], *block;

	for (block = *bucket; block; block = block->next)
		if (block->pc == pc && block->insns == insns && block->locked == locked &&
		    block->repeated == repeated && block->iret == iret)
			return block;
	block = calloc(1, sizeof(*block));
	block->next = *bucket;
	block->pc = pc;
	block->insns = insns;
	block->locked = locked;
	block->repeated = repeated;
	block->iret = iret;
	return *bucket = block;
}

static void resolve(struct block *block)
{
	const struct symbol *symbol = symbol_of(block->pc);

	block->resolved = true;
	block->class = symbol ? symbol->class : OTHER;
	block->start = symbol && (symbol->address == block->pc ||
				   symbol->class == INTERRUPT_STUBS);
	block->memory = block->start ? symbol->memory : NO_MEMORY;
	block->lock = block->start ? symbol->lock : NO_LOCK;
}

/* --- Where the module is entered ---------------------------------------------------------- */

struct entry {
	uint64_t pc, from, count;
	/*
	 * Instructions from the entry to the exit of the module, and the instructions in the module
	 * itself.
	 */
	uint64_t within, own;
};

#define ENTRIES (1 << 10)
static struct entry entries[ENTRIES];

static struct entry *entry_of(uint64_t pc, uint64_t from)
{
	size_t i = (pc ^ from) % ENTRIES;

	while (entries[i].count && (entries[i].pc != pc || entries[i].from != from))
		i = (i + 1) % ENTRIES;
	entries[i].pc = pc;
	entries[i].from = from;
	return &entries[i];
}

/* --- Calls of the allocators ---------------------------------------------------------------- */

struct allocation {
	uint64_t pc, from;	/* the function, and the block that has called it */
	bool inside;		/* in a call of ours */
	uint64_t count, insns, pages, freed;
	uint64_t to_nothing;	/* calls that change a length to 0, which is a free */
};

#define ALLOCATIONS (1 << 13)
static struct allocation allocations[ALLOCATIONS];

static struct allocation *allocation_of(uint64_t pc, uint64_t from, bool inside)
{
	size_t i = (pc ^ from ^ inside) % ALLOCATIONS;

	while (allocations[i].count && (allocations[i].pc != pc || allocations[i].from != from ||
					allocations[i].inside != inside))
		i = (i + 1) % ALLOCATIONS;
	allocations[i].pc = pc;
	allocations[i].from = from;
	allocations[i].inside = inside;
	return &allocations[i];
}

/* --- Spinlocks ------------------------------------------------------------------------------ */

struct hold {
	uint64_t lock, from;	/* its address, and the address behind the call that takes it */
	uint64_t count, insns, apart, longest;
};

#define HOLDS (1 << 13)
static struct hold holds[HOLDS];

static struct hold *hold_of(uint64_t lock, uint64_t from)
{
	size_t i = (lock >> 4 ^ from) % HOLDS;

	while (holds[i].count && (holds[i].lock != lock || holds[i].from != from))
		i = (i + 1) % HOLDS;
	holds[i].lock = lock;
	holds[i].from = from;
	return &holds[i];
}

/* --- Kernel stacks -------------------------------------------------------------------------- */

/* Stacks are 16 KiB and aligned to that. */
#define STACK_SHIFT 14

struct stack {
	uint64_t key;
	bool inside;		/* a call of ours has not returned yet */
	bool away;		/* in something apart that it has called */
	unsigned int interrupts;
	struct entry *entry;
	uint64_t back, back_rsp;	/* where our call returns to */
	uint64_t away_back, away_rsp;
	/* The outermost call of an allocator, and, in it, of a function that moves pages. */
	struct {
		struct allocation *of;
		unsigned int interrupts;
		uint64_t back, back_rsp;
		uint64_t moving_back, moving_rsp;	/* or 0 */
		uint64_t array, room, missing;		/* of a bulk allocation */
	} memory;
};

#define STACKS (1 << 12)
static struct stack stacks[STACKS];
static struct stack *current;
static uint64_t entered, left, lost;

static struct stack *stack_of(uint64_t rsp)
{
	uint64_t key = rsp >> STACK_SHIFT;
	size_t i = key % STACKS;

	while (stacks[i].key && stacks[i].key != key)
		i = (i + 1) % STACKS;
	stacks[i].key = key;
	return &stacks[i];
}

/* --- Other counts --------------------------------------------------------------------------- */

static uint64_t total, copied, copy_calls, receives, wrs[256], signaled;

/* The second argument of both is a list of work requests, which begin with the next's address. */
static void count_posts(const struct block *block)
{
	struct {
		uint64_t next, cqe, sges;
		int32_t sge_count, opcode, flags;
	} wr;

	if (block->class != POST_SEND && block->class != POST_RECV)
		return;
	for (uint64_t at = reg(RSI); at && load(at, &wr, sizeof(wr)); at = wr.next) {
		if (block->class == POST_RECV) {
			receives++;
		} else {
			wrs[wr.opcode & 255]++;
			signaled += wr.flags >> 1 & 1;
		}
	}
}

/* --- Execution ------------------------------------------------------------------------------ */

static uint64_t repeating;	/* the last block ended with this string instruction */
static bool again;		/* this execution goes on with it */

static bool reached(uint64_t pc, uint64_t at, uint64_t rsp)
{
	return pc == at && reg(RSP) == rsp;
}

static bool is_interrupt(const struct block *block)
{
	return block->start && (block->class == INTERRUPT || block->class == INTERRUPT_STUBS);
}

static bool is_apart(const struct block *block)
{
	return block->class == PROVIDER || block->class == POST_SEND ||
	       block->class == POST_RECV || (block->class == APART && block->start);
}

/* Whether BLOCK is executed within a call of ours, on the stack in use. */
static bool within(struct block *block)
{
	struct stack *stack = current;
	uint64_t pc = block->pc;

	if (stack && stack->inside) {
		if (is_interrupt(block)) {
			stack->interrupts++;
			return false;
		}
		if (stack->interrupts) {
			stack->interrupts -= block->iret;
			return false;
		}
		if (stack->away) {
			if (!reached(pc, stack->away_back, stack->away_rsp))
				return false;
			stack->away = false;
		}
		if (!reached(pc, stack->back, stack->back_rsp)) {
			if (is_apart(block)) {
				stack->away_rsp = reg(RSP);
				load(stack->away_rsp, &stack->away_back, 8);
				stack->away_rsp += 8;
				stack->away = true;
				block->leaving++;
				count_posts(block);
				return false;
			}
			return true;
		}
		stack->inside = false;
		left++;
	}
	if (block->class != OWN)
		return false;
	if (!block->start) {
		lost++;
		return false;
	}
	if (!current)
		current = stack_of(reg(RSP));
	stack = current;
	stack->inside = true;
	stack->away = false;
	stack->interrupts = 0;
	stack->back_rsp = reg(RSP);
	load(stack->back_rsp, &stack->back, 8);
	stack->back_rsp += 8;
	entered++;
	stack->entry = entry_of(pc, stack->back);
	stack->entry->count++;
	return true;
}

/* The address that the function which begins now returns to. */
static uint64_t return_address(uint64_t *rsp)
{
	uint64_t back = 0;

	load(*rsp = reg(RSP), &back, 8);
	*rsp += 8;
	return back;
}

#define LARGEST_ARRAY 4096

/* The number of empty entries in an array of pages. */
static uint64_t empty_entries(uint64_t array, uint64_t room)
{
	static uint64_t entries[LARGEST_ARRAY];
	uint64_t empty = 0;

	if (room > LARGEST_ARRAY || !load(array, entries, room * 8))
		return 0;
	for (uint64_t i = 0; i < room; i++)
		empty += !entries[i];
	return empty;
}

static void begin_moving(struct stack *stack, const struct block *block)
{
	struct allocation *of = stack->memory.of;
	uint8_t folios = 0;

	if (block->memory <= RESIZE)
		return;
	stack->memory.moving_back = return_address(&stack->memory.moving_rsp);
	switch (block->memory) {
	case PAGES_BY_ORDER:
		of->pages += 1ul << (reg(RSI) & 31);
		break;
	case PAGES_BY_ARRAY:
		stack->memory.array = reg(R8);
		stack->memory.room = reg(RCX) & UINT32_MAX;
		stack->memory.missing = empty_entries(stack->memory.array, stack->memory.room);
		break;
	case FREED_BY_ORDER:
		of->freed += 1ul << (reg(RSI) & 31);
		break;
	default:
		/* The batch begins with the number of its folios. */
		load(reg(RDI), &folios, 1);
		of->freed += folios;
	}
}

static void end_moving(struct stack *stack)
{
	uint64_t room = stack->memory.room;

	stack->memory.moving_back = 0;
	if (room)
		stack->memory.of->pages +=
			stack->memory.missing - empty_entries(stack->memory.array, room);
	stack->memory.room = 0;
}

/* Counts the calls of allocators. A call within such a call is a part of it. */
static void count_memory(const struct block *block, const struct block *caller, bool inside)
{
	struct stack *stack = current;
	uint64_t pc = block->pc;

	if (stack && stack->memory.of) {
		if (is_interrupt(block)) {
			stack->memory.interrupts++;
			return;
		}
		if (stack->memory.interrupts) {
			stack->memory.interrupts -= block->iret;
			return;
		}
		if (stack->memory.moving_back &&
		    reached(pc, stack->memory.moving_back, stack->memory.moving_rsp))
			end_moving(stack);
		if (!reached(pc, stack->memory.back, stack->memory.back_rsp)) {
			stack->memory.of->insns += block->insns;
			if (!stack->memory.moving_back)
				begin_moving(stack, block);
			return;
		}
		stack->memory.of = NULL;
	}
	/* The stack is not known before the first switch. */
	if (!block->memory || !caller || !stack)
		return;
	stack->memory.of = allocation_of(pc, caller->pc, inside);
	stack->memory.interrupts = 0;
	stack->memory.moving_back = 0;
	stack->memory.back = return_address(&stack->memory.back_rsp);
	stack->memory.of->count++;
	stack->memory.of->to_nothing += block->memory == RESIZE && !reg(RSI);
	stack->memory.of->insns += block->insns;
	begin_moving(stack, block);
}

/*
 * The locks that rpcrdma and sunrpc hold. Their holder is not preempted, so one processor has one list.
 * Interrupts are in no figure.
 */
#define MOST_HELD 16
static struct {
	struct {
		struct hold *of;
		uint64_t insns, apart;	/* of this list when the lock was taken */
	} locks[MOST_HELD];
	unsigned int count, interrupts;
	/* Instructions while any lock is held; in functions apart that a call of the module has called. */
	uint64_t insns, apart;
	uint64_t helper_back;	/* the return address of the last call of Rust's function */
} held;

static void take(uint64_t lock)
{
	uint64_t rsp, back = return_address(&rsp);
	const struct symbol *symbol = symbol_of(back);

	if (symbol && symbol->lock == LOCK_HELPER)
		symbol = symbol_of(back = held.helper_back);
	if (!symbol || !symbol->rpc || held.count == MOST_HELD)
		return;
	held.locks[held.count].of = hold_of(lock, back);
	held.locks[held.count].of->count++;
	held.locks[held.count].insns = held.insns;
	held.locks[held.count].apart = held.apart;
	held.count++;
}

static void release(uint64_t lock)
{
	for (unsigned int i = held.count; i--; ) {
		struct hold *of = held.locks[i].of;
		uint64_t insns = held.insns - held.locks[i].insns;

		if (of->lock != lock)
			continue;
		of->insns += insns;
		of->apart += held.apart - held.locks[i].apart;
		of->longest = insns > of->longest ? insns : of->longest;
		held.count--;
		memmove(&held.locks[i], &held.locks[i + 1],
			(held.count - i) * sizeof(held.locks[0]));
		return;
	}
}

/* The instructions of the functions that take and release a lock are a part of its time. */
static void count_locks(const struct block *block)
{
	uint64_t rsp;

	if (held.count) {
		if (is_interrupt(block))
			held.interrupts++;
		if (held.interrupts) {
			held.interrupts -= block->iret;
			return;
		}
	}
	if (block->lock == LOCK_HELPER)
		held.helper_back = return_address(&rsp);
	if (block->lock == LOCK)
		take(reg(RDI));
	if (held.count) {
		held.insns += block->insns;
		if (current && current->inside && current->away)
			held.apart += block->insns;
	}
	if (block->lock == UNLOCK && held.count)
		release(reg(RDI));
}

static struct block *previous;	/* the block that was executed before */

static void block_executed(unsigned int vcpu, void *data)
{
	struct block *block = data;
	bool inside;

	if (!block->resolved)
		resolve(block);
	again = repeating && repeating == block->pc;
	repeating = block->repeated;
	if (again)
		return;
	if (block->class == SWITCH && block->start)
		current = stack_of(reg(RSP));
	block->all++;
	total += block->insns;
	inside = within(block);
	count_memory(block, previous, inside);
	count_locks(block);
	previous = block;
	if (inside) {
		block->within++;
		current->entry->within += block->insns;
		if (block->class == OWN)
			current->entry->own += block->insns;
		if (block->class == COPY && block->start) {
			copied += reg(RDX);
			copy_calls++;
		}
	}
}

static void string_executed(unsigned int vcpu, void *data)
{
	const struct string_insn *insn = data;
	const struct stack *stack = current;
	const struct symbol *symbol;

	if (again || !stack || !stack->inside || stack->interrupts || stack->away)
		return;
	symbol = symbol_of(repeating);
	if (symbol && symbol->class != COPY)
		copied += reg(RCX) * insn->width;
}

/* --- Phases --------------------------------------------------------------------------------- */

static void forget(void)
{
	for (size_t i = 0; i < BUCKETS; i++)
		for (struct block *block = blocks[i]; block; block = block->next)
			block->all = block->within = block->leaving = 0;
	memset(entries, 0, sizeof(entries));
	memset(allocations, 0, sizeof(allocations));
	memset(holds, 0, sizeof(holds));
	memset(wrs, 0, sizeof(wrs));
	total = copied = copy_calls = receives = signaled = 0;
	entered = left = lost = 0;
}

static void write_counts(void)
{
	static unsigned int phase;
	FILE *file = fopen(counts_path, phase ? "a" : "w");

	fprintf(file, "phase %u\n", phase++);
	fprintf(file, "total %lu entered %lu left %lu lost %lu copied %lu copies %lu receives %lu signaled %lu\n",
		total, entered, left, lost, copied, copy_calls, receives, signaled);
	for (int i = 0; i < 256; i++)
		if (wrs[i])
			fprintf(file, "wr %d %lu\n", i, wrs[i]);
	for (size_t i = 0; i < ENTRIES; i++)
		if (entries[i].count)
			fprintf(file, "entry %lx %lx %lu %lu %lu\n", entries[i].pc,
				entries[i].from, entries[i].count, entries[i].within,
				entries[i].own);
	for (const struct allocation *of = allocations; of < allocations + ALLOCATIONS; of++)
		if (of->count)
			fprintf(file, "memory %lx %lx %d %lu %lu %lu %lu %lu\n", of->pc,
				of->from, of->inside, of->count, of->to_nothing, of->insns,
				of->pages, of->freed);
	for (const struct hold *of = holds; of < holds + HOLDS; of++)
		if (of->count)
			fprintf(file, "lock %lx %lx %lu %lu %lu %lu\n", of->lock, of->from,
				of->count, of->insns, of->apart, of->longest);
	for (size_t i = 0; i < BUCKETS; i++)
		for (struct block *block = blocks[i]; block; block = block->next)
			if (block->all && (block->class == OWN || block->within || block->leaving ||
					   block->start))
				fprintf(file, "block %lx %u %u %lu %lu %lu\n", block->pc,
					block->insns, block->locked, block->all, block->within,
					block->leaving);
	fprintf(file, "end\n");
	fclose(file);
}

static void marker_executed(unsigned int vcpu, void *data)
{
	switch ((enum marker)(uintptr_t)data) {
	case MARKER_SYMBOLS:
		read_symbols();
		for (size_t i = 0; i < BUCKETS; i++)
			for (struct block *block = blocks[i]; block; block = block->next)
				block->resolved = false;
		forget();
		break;
	case MARKER_ON:
		memset(stacks, 0, sizeof(stacks));
		current = NULL;
		previous = NULL;
		held.count = held.interrupts = 0;
		repeating = 0;
		qemu_plugin_u64_set(on, vcpu, 1);
		break;
	case MARKER_OFF:
		qemu_plugin_u64_set(on, vcpu, 0);
		break;
	case MARKER_END:
		write_counts();
		forget();
		break;
	}
}

/* --- Translation ---------------------------------------------------------------------------- */

static bool is_prefix(uint8_t byte)
{
	return byte == 0x66 || byte == 0x67 || byte == 0xf2 || byte == 0xf3 || byte == 0xf0 ||
	       byte == 0x2e || byte == 0x36 || byte == 0x3e || byte == 0x26 || byte == 0x64 ||
	       byte == 0x65 || (byte & 0xf0) == 0x40;
}

static void translated(qemu_plugin_id_t id, struct qemu_plugin_tb *tb)
{
	size_t insns = qemu_plugin_tb_n_insns(tb);
	uint64_t pc = qemu_plugin_tb_vaddr(tb), repeated = 0;
	uint32_t locked = 0;
	bool kernel = pc >> 63, iret = false;

	for (size_t i = 0; i < insns; i++) {
		struct qemu_plugin_insn *insn = qemu_plugin_tb_get_insn(tb, i);
		uint8_t bytes[16] = { 0 };
		size_t at = 0;
		bool lock = false, rep = false, wide = false, half = false;
		uint32_t displacement;

		qemu_plugin_insn_data(insn, bytes, sizeof(bytes));
		memcpy(&displacement, bytes + 4, 4);
		if (!memcmp(bytes, "\x0f\x1f\x84\x00", 4) &&
		    (displacement & ~255u) == MARKER_BASE)
			qemu_plugin_register_vcpu_insn_exec_cb(insn, marker_executed, CB_NO_REGS,
				(void *)(uintptr_t)(displacement & 255));
		if (!kernel)
			continue;
		for (; at < 14 && is_prefix(bytes[at]); at++) {
			lock |= bytes[at] == 0xf0;
			rep |= bytes[at] == 0xf2 || bytes[at] == 0xf3;
			half |= bytes[at] == 0x66;
			wide |= (bytes[at] & 0xf8) == 0x48;
		}
		/* An exchange with memory is locked without the prefix. */
		lock |= (bytes[at] == 0x86 || bytes[at] == 0x87) && bytes[at + 1] < 0xc0;
		locked += lock;
		iret |= bytes[at] == 0xcf;
		if (rep && ((bytes[at] & 0xfc) == 0xa4 || (bytes[at] & 0xfe) == 0xaa ||
			    (bytes[at] & 0xfc) == 0xac)) {
			repeated = qemu_plugin_insn_vaddr(insn);
			if ((bytes[at] & 0xfe) == 0xa4) {
				struct string_insn *string = malloc(sizeof(*string));

				string->width = !(bytes[at] & 1) ? 1 : wide ? 8 : half ? 2 : 4;
				qemu_plugin_register_vcpu_insn_exec_cond_cb(insn, string_executed,
					CB_R_REGS, COND_NE, on, 0, string);
			}
		}
	}
	if (kernel)
		qemu_plugin_register_vcpu_tb_exec_cond_cb(tb, block_executed, CB_R_REGS, COND_NE,
			on, 0, block_for(pc, insns, locked, repeated, iret));
}

static void vcpu_made(qemu_plugin_id_t id, unsigned int vcpu)
{
	struct g_array *array = qemu_plugin_get_registers();
	const struct register_descriptor *all = (const void *)array->data;

	for (unsigned int i = 0; i < array->len; i++)
		for (int which = 0; which < REGISTERS; which++)
			if (!strcmp(all[i].name, register_names[which]))
				registers[which] = all[i].handle;
	for (int which = 0; which < REGISTERS; which++) {
		if (!registers[which]) {
			fprintf(stderr, "counter: no register %s\n", register_names[which]);
			exit(1);
		}
	}
}

__attribute__((visibility("default")))
int qemu_plugin_install(qemu_plugin_id_t id, const void *info, int argc, char **argv)
{
	scratch = g_byte_array_new();
	on.score = qemu_plugin_scoreboard_new(sizeof(uint64_t));
	qemu_plugin_register_vcpu_init_cb(id, vcpu_made);
	qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
	return 0;
}
