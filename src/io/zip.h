/* zip.h - the numbers of the zip format that reader and writer share.
 *
 * A zip archive is a row of members, each behind a header; a directory with a
 * record for each member; an end record, which says where the directory is.
 * Where 16 or 32 bits do not hold a number they are all set, and the number
 * stands in an extra field (of headers and records) or in an end record of
 * zip64, which a locator before the plain end record points to. */
#ifndef NB_IO_ZIP_H
#define NB_IO_ZIP_H

#include "io/bytes.h"

enum { STORED = 0, DEFLATED = 8 }; /* methods of packing */

/* Lengths of the fixed parts. */
enum { HEADER = 30, RECORD = 46, END = 22, LOCATOR = 20, END64 = 56 };
enum { MAX_MEMBERS = 1 << 24 };

static const uint32_t IS_HEADER = 0x04034b50, IS_RECORD = 0x02014b50,
                      IS_END = 0x06054b50, IS_LOCATOR = 0x07064b50,
                      IS_END64 = 0x06064b50;
static const uint32_t FULL = 0xffffffff, FULL16 = 0xffff;

/* Flags: encrypted in one way or another, or patched; sizes follow the data;
 * the name is UTF-8. */
enum { LOCKED = 0x2061, TRAILED = 0x0008, UTF8 = 0x0800 };

#endif
