/* reader.h - reading the texts of meshes and specs.
 *
 * A reader stands somewhere in a text.  What fails says the text, the place and
 * what is wrong there; blanks between words do not count. */
#ifndef NB_SHARD_LAYOUT_READER_H
#define NB_SHARD_LAYOUT_READER_H

#include "base/error.h"

typedef struct nb_reader {
    const char *what; /* "sharding", "mesh" */
    const char *text, *at;
} nb_reader;

/* Always false, NB_EVALUE. */
bool nb_reader_wrong(nb_reader *r, const char *format, ...) NB_PRINTF(2, 3);

void nb_reader_blanks(nb_reader *r); /* passes them */

/* Whether this word comes next, which is then passed. */
bool nb_reader_takes(nb_reader *r, const char *word);
bool nb_reader_needs(nb_reader *r, const char *word); /* wrong if it does not */

/* Whether the text ends here. */
bool nb_reader_ends(nb_reader *r);

/* A name, bare: letters, digits, _, no digit first. */
bool nb_reader_name(nb_reader *r, const char **name, int *n);

/* A number of digits, at most `most`. */
bool nb_reader_number(nb_reader *r, int most, int *number);

#endif
