/* settle.c - see settle.h. */
#include "shard/plan/settle.h"

#include "base/memory.h"

/* A piece is dealt out in so many parts. */
enum { PARTS = 24, ROUNDS = 16 };

/* What one has depends on its place among those that differ in what is pending;
 * addends are numbered as they are met. */
static int addend_of(nb_settling *s, const nb_spec *from, int i)
{
    int64_t mine =
        nb_cut_index(from->mesh, &from->partial, s->party[i].position);
    for (int k = 0; k < i; k++)
        if (nb_cut_index(from->mesh, &from->partial, s->party[k].position) ==
            mine)
            return s->party[k].addend;
    return s->naddends++;
}

static bool meet_parties(nb_settling *s, const nb_hop *h, const int64_t *size,
                         int position)
{
    int *member = nb_alloc((size_t)s->n * sizeof *member);
    if (!member) return false;
    nb_cut_group(h->from->mesh, &h->axes, position, member);
    for (int i = 0; i < s->n; i++) {
        nb_party *p = &s->party[i];
        *p = (nb_party){.position = member[i],
                        .has = nb_spec_block(h->from, member[i]),
                        .wants = nb_spec_block(h->into, member[i])};
        nb_spec_box(h->from, size, member[i], &p->from);
        nb_spec_box(h->into, size, member[i], &p->into);
        p->received = nb_box_count(h->into->rank, &p->into);
        p->addend = addend_of(s, h->from, i);
    }
    nb_free(member);
    return true;
}

static bool is_first_with(const nb_settling *s, int i, bool wants)
{
    for (int k = 0; k < i; k++)
        if (wants ? s->party[k].wants == s->party[i].wants
                  : s->party[k].has == s->party[i].has)
            return false;
    return true;
}

/* Twice: to count, then to write. */
static void find_pieces(nb_settling *s, int rank)
{
    s->npieces = 0;
    for (int i = 0; i < s->n; i++)
        for (int k = 0; k < s->n; k++) {
            const nb_party *a = &s->party[i], *b = &s->party[k];
            nb_box box;
            if (!is_first_with(s, i, false) || !is_first_with(s, k, true) ||
                !nb_box_meet(rank, &a->from, &b->into, &box))
                continue;
            if (s->piece)
                s->piece[s->npieces] =
                    (nb_piece){a->has, b->wants, nb_box_count(rank, &box), box};
            s->npieces++;
        }
}

/* Addends that device i receives of an element that it adds up, beyond the one
 * receive of who wants it. */
static int weight(const nb_settling *s, int k, int i)
{
    const nb_piece *p = &s->piece[k];
    return s->naddends - (s->party[i].has == p->has) -
           (s->party[i].wants == p->wants);
}

/* What it adds to the sum of all loads to the eighth power, which is least
 * where the greatest is about least. */
static double strain(double load, double more)
{
    double a = load * load, b = (load + more) * (load + more);
    a *= a, b *= b;
    return b * b - a * a;
}

static int64_t part_count(const nb_piece *p, int part)
{
    return nb_block_start(p->count, PARTS, part + 1) -
           nb_block_start(p->count, PARTS, part);
}

/* Of equals who has less of it, then who had it. */
static int best(const nb_settling *s, int k, int64_t count, double unit,
                int was)
{
    const int64_t *share = s->share + (size_t)k * (size_t)s->n;
    int least = -1;
    double price = 0;
    for (int i = 0; i < s->n; i++) {
        int w = weight(s, k, i);
        double now = strain((double)s->party[i].received * unit,
                            (double)(w * count) * unit);
        bool less = least < 0 || now < price ||
                    (now == price && (share[i] < share[least] ||
                                      (share[i] == share[least] && i == was)));
        if (less) least = i, price = now;
    }
    return least;
}

static void give(nb_settling *s, int k, int i, int64_t count)
{
    s->share[(size_t)k * (size_t)s->n + (size_t)i] += count;
    s->party[i].received += weight(s, k, i) * count;
}

/* Gives every part to who is strained least by it, again and again until nobody
 * changes. */
static void deal_out(nb_settling *s, int16_t *owner)
{
    double unit = 0;
    bool changed = true;
    for (int i = 0; i < s->n; i++)
        if ((double)s->party[i].received > unit)
            unit = (double)s->party[i].received;
    unit = unit > 0 ? 1 / unit : 1;
    for (int round = 0; round < ROUNDS && changed; round++) {
        changed = false;
        for (int k = 0; k < s->npieces; k++)
            for (int part = 0; part < PARTS; part++) {
                int16_t *o = owner + k * PARTS + part;
                int was = round ? *o : -1;
                int64_t count = part_count(&s->piece[k], part);
                if (!count) continue;
                if (round) give(s, k, was, -count);
                *o = (int16_t)best(s, k, count, unit, was);
                give(s, k, *o, count);
                changed |= *o != was;
            }
    }
}

static bool deal_shares(nb_settling *s)
{
    size_t n = (size_t)s->n, pieces = (size_t)s->npieces;
    int16_t *owner = nb_alloc_zero((pieces * PARTS + 1) * sizeof *owner);
    s->share = nb_alloc_zero((pieces * n + 1) * sizeof *s->share);
    if (owner && s->share) deal_out(s, owner);
    nb_free(owner);
    return owner && s->share;
}

void nb_settling_close(nb_settling *s)
{
    nb_free(s->party);
    nb_free(s->piece);
    nb_free(s->share);
}

bool nb_settling_open(nb_settling *s, const nb_hop *h, const int64_t *size,
                      int position, bool deal)
{
    *s = (nb_settling){.n = (int)nb_cut_count(&h->axes)};
    s->party = nb_alloc((size_t)s->n * sizeof *s->party);
    bool ok = s->party && meet_parties(s, h, size, position);
    if (ok) {
        find_pieces(s, h->from->rank);
        s->piece = nb_alloc((size_t)(s->npieces + 1) * sizeof *s->piece);
        ok = s->piece;
    }
    if (ok) find_pieces(s, h->from->rank);
    if (ok && deal) ok = deal_shares(s);
    if (!ok) nb_settling_close(s);
    return ok;
}

int64_t nb_settling_start(const nb_settling *s, int k, int i)
{
    int64_t start = 0;
    while (i-- > 0)
        start += s->share[(size_t)k * (size_t)s->n + (size_t)i];
    return start;
}

static bool serves(const nb_settling *s, int k, int a, int i)
{
    return s->party[i].has == s->piece[k].has && s->party[i].addend == a;
}

int nb_settling_server(const nb_settling *s, int k, int a, int i)
{
    int able = 0;
    if (serves(s, k, a, i)) return i;
    for (int m = 0; m < s->n; m++)
        able += serves(s, k, a, m);
    for (int m = 0, turn = i % able;; m++)
        if (serves(s, k, a, m) && turn-- == 0) return m;
}

static int messages_of(const nb_settling *s, int i)
{
    int n = 0;
    for (int k = 0; k < s->npieces; k++) {
        const int64_t *share = s->share + (size_t)k * (size_t)s->n;
        if (share[i]) n += s->naddends - (s->party[i].has == s->piece[k].has);
        for (int m = 0; m < s->n; m++)
            n += m != i && share[m] && s->party[i].wants == s->piece[k].wants;
    }
    return n;
}

/* Groups begin where all their axes are at 0.  Those of even blocks are all
 * alike. */
static bool is_first_of_group(const nb_hop *h, const int64_t *size, int p)
{
    if (nb_cut_index(h->from->mesh, &h->axes, p)) return false;
    bool even = true;
    for (int d = 0; d < h->from->rank; d++)
        even &= size[d] % nb_cut_count(&h->from->dim[d].axes) == 0 &&
                size[d] % nb_cut_count(&h->into->dim[d].axes) == 0;
    return !even || p == 0;
}

int64_t nb_settling_price(const nb_hop *h, const int64_t *size, int *messages)
{
    int64_t most = 0;
    *messages = 0;
    for (int p = 0; p < h->from->mesh->ndevices; p++) {
        nb_settling s;
        if (!is_first_of_group(h, size, p)) continue;
        if (!nb_settling_open(&s, h, size, p, true)) return -1;
        for (int i = 0; i < s.n; i++) {
            int n = messages_of(&s, i);
            if (n > *messages) *messages = n;
            if (s.party[i].received > most) most = s.party[i].received;
        }
        nb_settling_close(&s);
    }
    return most;
}

/* Of one element: n addends lie on n devices or more, h devices want the sum.
 * Who has the sum first took n - 1 receives to get it, by itself or through
 * others, n if it had no addend; each of the h but that one one more, after
 * that.  So n + h - 2 in all where somebody has an addend and wants the sum, n +
 * h - 1 where nobody does. */
static int64_t receives(const nb_settling *s, int k)
{
    int64_t n = s->naddends - 1;
    bool met = false;
    for (int i = 0; i < s->n; i++) {
        bool wants = s->party[i].wants == s->piece[k].wants;
        n += wants;
        met |= wants && s->party[i].has == s->piece[k].has;
    }
    return n - met;
}

/* Nobody has all addends to begin with, so all of what one wants must come; and
 * one of the devices receives the mean or more. */
int64_t nb_settling_bound(const nb_hop *h, const int64_t *size)
{
    int64_t bound = 0;
    for (int p = 0; p < h->from->mesh->ndevices; p++) {
        nb_settling s;
        __int128 total = 0;
        if (!is_first_of_group(h, size, p)) continue;
        if (!nb_settling_open(&s, h, size, p, false)) return -1;
        for (int k = 0; k < s.npieces; k++)
            total += (__int128)receives(&s, k) * s.piece[k].count;
        int64_t mean = (int64_t)((total + s.n - 1) / s.n);
        if (mean > bound) bound = mean;
        for (int i = 0; i < s.n; i++)
            if (s.party[i].received > bound) bound = s.party[i].received;
        nb_settling_close(&s);
    }
    return bound;
}
