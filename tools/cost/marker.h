/* SPDX-License-Identifier: GPL-2.0 */
/* Messages of the guest to the plugin: no-operations whose displacement is the message. */

#define MARKER_BASE 0x5ec0de00u

enum marker {
	MARKER_SYMBOLS = 1,	/* read the symbols; all counts are zero */
	MARKER_ON,		/* count from here */
	MARKER_OFF,		/* until here */
	MARKER_END,		/* write the counts; all are zero */
};
