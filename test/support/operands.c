/* operands.c - what worked cases of layouts are made of and looked at by. */
#include "support/operands.h"

#include "support/check.h"
#include "support/laid.h"
#include "support/ranks.h"

#include <stdio.h>

static int rank_of(const operand *x)
{
    int n = 0;
    while (n < 4 && x->size[n])
        n++;
    return n;
}

nb_tensor *ramp(const operand *x)
{
    int64_t n = 1;
    for (int d = 0; d < rank_of(x); d++)
        n *= x->size[d];
    nb_tensor *y = nb_sin(nb_arange_float(0, (double)n, 1, NB_F32));
    y = nb_reshape(y, rank_of(x), x->size);
    if (x->dtype) y = nb_cast(y, x->dtype);
    return y && nb_realize(y) == NB_OK ? y : NULL;
}

int operands_lay(const char *name, const operand *of, const nb_mesh *m,
                 nb_tensor **plain, nb_tensor **x)
{
    int n = 0;
    for (; n < OPERANDS && of[n].layout; n++) {
        plain[n] = ramp(&of[n]);
        x[n] = lay(plain[n], m, of[n].layout);
        if (!expect(x[n], "%s: operand %d", name, n)) return -1;
    }
    return n;
}

bool lies(const nb_spec *is, const nb_mesh *m, const char *text)
{
    const nb_spec *want = nb_spec_parse(m, text);
    if (want && is && nb_spec_same_layout(is, want)) return true;
    char *found = is ? nb_spec_text(is) : NULL;
    printf("  it lies as %s, not %s\n", found ? found : "on no mesh", text);
    nb_text_release(found);
    return false;
}

bool has_layout(const nb_tensor *y, const nb_mesh *m, const char *text)
{
    return lies(nb_sharding(y), m, text);
}

nb_comm_stats moved(const nb_mesh *m)
{
    nb_comm_stats all = {0};
    for (int k = NB_HOP_SLICE + 1; k < HOPS; k++) {
        nb_comm_stats s = stats_anywhere(m, (nb_hop_kind)k);
        if (k == NB_HOP_UNREDUCE) continue;
        all.calls += s.calls;
        all.bytes += s.bytes;
    }
    return all;
}

bool has_moved(const nb_mesh *m, int64_t bytes, int64_t calls)
{
    nb_comm_stats s = moved(m);
    if ((bytes == ANY || s.bytes == bytes) &&
        (calls == ANY || s.calls == calls))
        return true;
    printf("  %lld bytes move in %lld steps, not %lld in %lld\n",
           (long long)s.bytes, (long long)s.calls, (long long)bytes,
           (long long)calls);
    return false;
}
