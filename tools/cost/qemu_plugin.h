/* SPDX-License-Identifier: GPL-2.0 */
/* The part of QEMU's plugin interface, version 4, that counter.c uses: Debian ships no header for it. */
#ifndef QEMU_PLUGIN_H
#define QEMU_PLUGIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef uint64_t qemu_plugin_id_t;
struct qemu_plugin_tb;
struct qemu_plugin_insn;
struct qemu_plugin_register;
struct qemu_plugin_scoreboard;
struct qemu_plugin_u64 {
	struct qemu_plugin_scoreboard *score;
	size_t offset;
};
/* GArray of GLib. */
struct g_array {
	char *data;
	unsigned int len;
};
/* GByteArray of GLib. */
struct g_byte_array {
	uint8_t *data;
	unsigned int len;
};
struct register_descriptor {
	struct qemu_plugin_register *handle;
	const char *name;
	const char *feature;
};
enum { CB_NO_REGS, CB_R_REGS };
enum { COND_NE = 3 };
typedef void (*executed)(unsigned int vcpu, void *data);

struct g_byte_array *g_byte_array_new(void);
struct g_byte_array *g_byte_array_set_size(struct g_byte_array *array, unsigned int length);
void qemu_plugin_register_vcpu_init_cb(qemu_plugin_id_t id,
				       void (*cb)(qemu_plugin_id_t id, unsigned int vcpu));
void qemu_plugin_register_vcpu_tb_trans_cb(qemu_plugin_id_t id,
					   void (*cb)(qemu_plugin_id_t id,
						      struct qemu_plugin_tb *tb));
void qemu_plugin_register_vcpu_tb_exec_cond_cb(struct qemu_plugin_tb *tb, executed cb, int flags,
					       int cond, struct qemu_plugin_u64 entry, uint64_t imm,
					       void *data);
void qemu_plugin_register_vcpu_insn_exec_cond_cb(struct qemu_plugin_insn *insn, executed cb,
						 int flags, int cond, struct qemu_plugin_u64 entry,
						 uint64_t imm, void *data);
void qemu_plugin_register_vcpu_insn_exec_cb(struct qemu_plugin_insn *insn, executed cb, int flags,
					    void *data);
size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *tb);
uint64_t qemu_plugin_tb_vaddr(const struct qemu_plugin_tb *tb);
struct qemu_plugin_insn *qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *tb, size_t index);
size_t qemu_plugin_insn_data(const struct qemu_plugin_insn *insn, void *to, size_t length);
uint64_t qemu_plugin_insn_vaddr(const struct qemu_plugin_insn *insn);
struct g_array *qemu_plugin_get_registers(void);
int qemu_plugin_read_register(struct qemu_plugin_register *handle, struct g_byte_array *to);
bool qemu_plugin_read_memory_vaddr(uint64_t address, struct g_byte_array *to, size_t length);
struct qemu_plugin_scoreboard *qemu_plugin_scoreboard_new(size_t element_size);
void qemu_plugin_u64_set(struct qemu_plugin_u64 entry, unsigned int vcpu, uint64_t value);

#endif /* QEMU_PLUGIN_H */
