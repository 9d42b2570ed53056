/* test_cuda_moves.c - elements moved within a card, from any order of dims to
 * any other: they arrive, and nothing beside them changes.
 *
 * NABLA_TEST_PART=k/n: a part of the cases (support/there.h).  A sanitizer of
 * the card is given this program, too (tools/sanitize). */
#include "backend/cuda/moves.h"

#include "backend/cuda/memory.h"
#include "support/check.h"
#include "support/there.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CASES = 200, DIMS = 4, GAP = 3 };

static unsigned seed;

static int64_t below(int64_t n)
{
    seed = seed * 1664525u + 1013904223u;
    return (int64_t)(seed >> 8) % n;
}

/* How elements lie: steps of the dims, the first one's place, and room. */
typedef struct side {
    int64_t step[DIMS], first, room;
} side;

/* Dims in some order, one inside the other, with gaps between or without, and
 * now and then backwards. */
static side lay(int n, const int64_t *size)
{
    side s = {.room = 1};
    int order[DIMS] = {0};
    for (int d = 0; d < n; d++) {
        int other = (int)below(d + 1);
        order[d] = order[other];
        order[other] = d;
    }
    bool gaps = below(2), back = below(4) == 0;
    for (int i = 0; i < n; i++) {
        int d = order[i];
        s.step[d] = s.room;
        s.room = s.room * size[d] + (gaps && i ? below(GAP) : 0);
    }
    int last = order[n - 1];
    if (back) {
        s.first = (size[last] - 1) * s.step[last];
        s.step[last] = -s.step[last];
    }
    return s;
}

typedef struct moving {
    int n;
    int64_t size[DIMS], count;
    size_t unit;
    side here, there;
} moving;

static moving any(void)
{
    static const int64_t sizes[] = {1, 2, 3, 7, 8, 9, 31, 32, 33, 64, 70};
    moving m = {.n = 1 + (int)below(DIMS), .unit = (size_t)1 << below(5)};
    m.count = 1;
    for (int d = 0; d < m.n; d++) {
        m.size[d] = sizes[below(sizeof sizes / sizeof *sizes)];
        if (m.count * m.size[d] > 30000) m.size[d] = 1;
        m.count *= m.size[d];
    }
    m.here = lay(m.n, m.size);
    m.there = lay(m.n, m.size);
    return m;
}

static void move_here(const moving *m, char *to, const char *from)
{
    for (int64_t i = 0; i < m->count; i++) {
        int64_t rest = i, here = m->here.first, there = m->there.first;
        for (int d = m->n - 1; d >= 0; rest /= m->size[d--]) {
            here += rest % m->size[d] * m->here.step[d];
            there += rest % m->size[d] * m->there.step[d];
        }
        memcpy(to + there * (int64_t)m->unit, from + here * (int64_t)m->unit,
               m->unit);
    }
}

/* On the card, from memory that is full of numbers to such that is empty. */
static bool move_there(nb_card *c, nb_card_code *code, const moving *m,
                       const char *from, char *to)
{
    size_t unit = m->unit, from_room = 0, to_room = 0;
    size_t from_bytes = (size_t)m->here.room * unit;
    size_t to_bytes = (size_t)m->there.room * unit;
    char *here = nb_card_alloc(c, from_bytes, &from_room);
    char *there = nb_card_alloc(c, to_bytes, &to_room);
    nb_move move;
    bool ok =
        here && there &&
        nb_move_over(&move, unit, m->n, m->size, m->there.step, m->here.step);
    if (ok) {
        move.from = here + m->here.first * (int64_t)unit;
        move.to = there + m->there.first * (int64_t)unit;
        ok = nb_card_put(c, here, from, from_bytes) &&
             nb_card_zero(c, there, to_bytes) &&
             nb_moves_launch(c, code, 1, &move, NULL, "a move") &&
             nb_card_get(c, to, there, to_bytes);
    }
    nb_card_free(c, here, from_room);
    nb_card_free(c, there, to_room);
    return ok;
}

static bool arrives(nb_card *c, nb_card_code *code, const moving *m)
{
    size_t from_bytes = (size_t)m->here.room * m->unit;
    size_t to_bytes = (size_t)m->there.room * m->unit;
    char *from = malloc(from_bytes);
    char *want = calloc(1, to_bytes), *got = malloc(to_bytes);
    bool ok = from && want && got;
    for (size_t i = 0; ok && i < from_bytes; i++)
        from[i] = (char)(1 + below(255));
    if (ok) move_here(m, want, from);
    ok =
        ok && move_there(c, code, m, from, got) && !memcmp(got, want, to_bytes);
    free(from), free(want), free(got);
    return ok;
}

int main(void)
{
    setenv("NABLA_TEST_EVERY", "1", 1); /* cases are few */
    if (!nb_card_count()) return printf("no card: %s\n", nb_card_trouble()), 77;
    nb_card *c = nb_card_at(0);
    nb_card_code *code = c && nb_card_enter(c) ? nb_moves_code(c, false) : NULL;
    expect(code, "the kernel is made");
    for (int k = 0; code && k < CASES; k++) {
        seed = (unsigned)k + 1;
        moving m = any();
        if (there_takes())
            expect(arrives(c, code, &m), "case %d: %d dims of %zu bytes", k,
                   m.n, m.unit);
    }
    nb_card_code_drop(code);
    return tally();
}
