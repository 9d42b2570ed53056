/* ranks.c - ranks that keep step.
 *
 * A rank in which something failed asks whether all agree while others are
 * still in the middle of what it left.  They fail then, since their programs
 * differ, and ask too: so who gets no answer asks again, but not for ever. */
#include "support/ranks.h"

#include "base/error.h"
#include "comm/local.h"
#include "comm/remote.h"
#include "core/tensor.h"
#include "nabla/distributed.h"
#include "nabla/ops.h"
#include "shard/decide/factors.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What a rank says to all.  No block is 20 bytes long, so that it is taken for
 * none. */
typedef struct word {
    int32_t turn; /* which question of all this is, or 0: any rank may do
                   * without */
    int32_t said[4];
} word;

static int32_t turn; /* questions so far */

bool rank_speaks(void)
{
    return nb_distributed_rank() == 0;
}

const char *rank_prefix(void)
{
    static char text[32];
    if (nb_distributed_size() == 1) return "";
    snprintf(text, sizeof text, "rank %d: ", nb_distributed_rank());
    return text;
}

/* There is no way to go on together. */
static void lost(const char *why)
{
    printf("%sFAIL the ranks have lost each other: %s\n", rank_prefix(), why);
    fflush(stdout);
    exit(1);
}

static bool all_ask(const word *all)
{
    bool so = true;
    for (int r = 0; r < nb_distributed_size(); r++)
        so = so && all[r].turn;
    return so;
}

/* What every rank says, by rank. */
static void ask(int32_t one, int32_t two, word *all)
{
    word w = {++turn, {one, two}};
    double end = nb_clock() + nb_distributed_timeout();
    bool ok = false;
    while (!ok && nb_clock() < end) {
        nb_error_clear();
        ok = nb_ranks_gather(&w, sizeof w, all) && all_ask(all);
    }
    if (!ok) lost(nb_error_message());
    for (int r = 0; r < nb_distributed_size(); r++)
        if (all[r].turn != turn) lost("they ask different questions");
}

bool ranks_agree(bool ok)
{
    int n = nb_distributed_size();
    if (n == 1) return ok;
    nb_status code = nb_error_code();
    char *said = strdup(nb_error_message());
    word *all = calloc((size_t)n, sizeof *all);
    ask(ok, 0, all);
    for (int r = 0; r < n; r++)
        ok = ok && all[r].said[0];
    if (code) nb_fail(code, "%s", said);
    free(all);
    free(said);
    return ok;
}

bool ranks_same(const void *mine, size_t bytes)
{
    size_t n = (size_t)nb_distributed_size();
    char *all = malloc(n * bytes + 1);
    bool same = nb_ranks_gather(mine, bytes, all);
    for (size_t r = 0; same && r < n; r++)
        same = !memcmp(all + r * bytes, mine, bytes);
    free(all);
    return same;
}

bool ranks_share(const nb_mesh *m)
{
    return m->ndevices % nb_distributed_size() == 0;
}

bool ranks_spread(const nb_mesh *m, void *const *block, const size_t *bytes)
{
    size_t total = 0, at = 0;
    int size = nb_distributed_size();
    if (size == 1) return true;
    for (int p = 0; p < m->ndevices; p++)
        total += bytes[p];
    char *mine = calloc(1, total + 1), *all = malloc((size_t)size * total + 1);
    for (int p = 0; p < m->ndevices; at += bytes[p++])
        if (nb_device_is_here(m, p)) memcpy(mine + at, block[p], bytes[p]);
    bool ok = nb_ranks_gather(mine, total, all);
    at = 0;
    for (int p = 0; ok && p < m->ndevices; at += bytes[p++]) {
        size_t from = (size_t)nb_device_rank(m, p) * total + at;
        if (!nb_device_is_here(m, p)) memcpy(block[p], all + from, bytes[p]);
    }
    free(mine);
    free(all);
    return ok;
}

/* The block as numbers, if it is here and as large as it should be. */
static bool read_block(nb_tensor *x, int position, const nb_box *box, double *v)
{
    nb_tensor *b = nb_shard_at(x, position);
    bool ok = b && nb_rank(b) == nb_sharding(x)->rank;
    for (int d = 0; ok && d < nb_rank(b); d++)
        ok = nb_size(b, d) == box->size[d];
    return ok && nb_read(b, NB_F64, v) == NB_OK;
}

nb_tensor *shard_anywhere(nb_tensor *x, int position)
{
    const nb_spec *s = nb_sharding(x);
    int64_t size[NB_MAX_DIMS], count = 1;
    nb_box box;
    if (!s || nb_distributed_size() == 1) return nb_shard_at(x, position);
    if (nb_realize(x) != NB_OK) return NULL;
    nb_stored_sizes(x, size);
    nb_spec_box(s, size, position, &box);
    for (int d = 0; d < s->rank; d++)
        count *= box.size[d];
    void **block = calloc((size_t)s->mesh->ndevices, sizeof *block);
    size_t *bytes = calloc((size_t)s->mesh->ndevices, sizeof *bytes);
    double *v = malloc((size_t)(count + 1) * sizeof *v);
    block[position] = v;
    bytes[position] = (size_t)count * sizeof *v;
    bool ok = !nb_device_is_here(s->mesh, position) ||
              read_block(x, position, &box, v);
    ok = ok && ranks_spread(s->mesh, block, bytes);
    nb_tensor *y = NULL;
    if (ok)
        y = nb_cast(nb_constant(NB_F64, s->rank, box.size, v), nb_dtype_of(x));
    free(v);
    free(bytes);
    free(block);
    return y;
}

/* Others may have failed before they came here. */
nb_comm_stats stats_anywhere(const nb_mesh *m, nb_hop_kind kind)
{
    nb_comm_stats most = nb_comm_stats_get(m, kind);
    int n = nb_distributed_size();
    if (n == 1) return most;
    word w = {0, {(int32_t)most.calls, (int32_t)most.bytes}};
    word *all = calloc((size_t)n, sizeof *all);
    bool ok = nb_ranks_gather(&w, sizeof w, all);
    for (int r = 0; ok && r < n; r++) {
        if (all[r].said[0] > most.calls) most.calls = all[r].said[0];
        if (all[r].said[1] > most.bytes) most.bytes = all[r].said[1];
        ok = !all[r].turn;
    }
    free(all);
    return ok ? most : (nb_comm_stats){-1, -1};
}

int ranks_tally(int passed, int failed)
{
    int n = nb_distributed_size();
    word *all = calloc((size_t)n, sizeof *all);
    if (n > 1) ask(passed, failed, all);
    for (int r = 1; r < n; r++)
        failed += memcmp(&all[r], &all[0], sizeof all[0]) != 0;
    free(all);
    if (rank_speaks()) printf("%d passed, %d failed\n", passed, failed);
    return failed != 0;
}
