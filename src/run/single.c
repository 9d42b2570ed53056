/* single.c - the table from calls to hashes of programs.
 *
 * An entry is two words that are written without a lock: the hash is kept
 * together with the key, and what comes of the halves of two entries is the
 * hash of nothing. */
#include "run/single.h"

#include <stdatomic.h>

enum { ENTRIES = 1024, WORDS = 8 + NB_MAX_DIMS };

static struct {
    _Atomic uint64_t key, both;
} table[ENTRIES];

/* Ops that live as long as the process, on tensors without hidden axes that lie
 * on no mesh. */
static bool is_plain(const nb_tensor *x)
{
    return !x->nlanes && !x->sharding;
}

static uint64_t add_type(uint64_t h, const nb_tensor *x, int place)
{
    int64_t word[WORDS];
    int n = 0;
    word[n++] = place;
    word[n++] = x->dtype;
    word[n++] = x->rank;
    word[n++] = x->device;
    word[n++] = nb_tensor_is_number(x);
    for (int d = 0; d < x->rank; d++)
        word[n++] = nb_tensor_size(x)[d].code;
    return nb_hash(h, word, (size_t)n * sizeof *word);
}

static int place_of(const nb_tensor *x, int n, nb_tensor *const *list)
{
    for (int i = 0; i < n; i++)
        if (list[i] == x) return i;
    return -1;
}

uint64_t nb_single_key(nb_tensor *y, int nx, nb_tensor *const *x)
{
    nb_call c = nb_call_of(y);
    if (!c.op || c.op->release || !is_plain(y)) return 0;
    uint64_t h = nb_hash(11, &c.op, sizeof c.op);
    if (c.nattr) h = nb_hash(h, c.attr, (size_t)c.nattr * sizeof *c.attr);
    h = add_type(h, y, c.nattr);
    for (int i = 0; i < c.nin; i++) {
        bool moves = !nb_tensor_done(c.in[i]) && c.in[i]->op->lands;
        nb_tensor *from = moves ? nb_tensor_in(c.in[i])[0] : c.in[i];
        int place = place_of(from, nx, x);
        if (place < 0 || !is_plain(from)) return 0;
        h = add_type(h, from, moves ? -1 - place : place);
    }
    return h;
}

uint64_t nb_single_find(uint64_t key)
{
    uint64_t is = atomic_load(&table[key % ENTRIES].key);
    uint64_t both = atomic_load(&table[key % ENTRIES].both);
    return is == key ? both ^ key : 0;
}

void nb_single_keep(uint64_t key, uint64_t hash)
{
    atomic_store(&table[key % ENTRIES].key, key);
    atomic_store(&table[key % ENTRIES].both, hash ^ key);
}
