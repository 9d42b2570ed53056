/* test_cuda_moves.c - elements moved within a card, from any order of dims to
 * any other: they arrive, and nothing beside them changes.
 *
 * Runs on the card of the machine, or on the simulated one. */
#include "backend/cuda/moves.h"

#include "backend/cuda/memory.h"
#include "support/alone.h"
#include "support/cards.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { CASES = 200, DIMS = 4, GAP = 3 };

static unsigned seed = 1;

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
    int order[DIMS];
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

static bool arrives(nb_card *c, nb_card_code *code, const moving *m)
{
    size_t from_bytes = (size_t)m->here.room * m->unit, from_room, to_room;
    size_t to_bytes = (size_t)m->there.room * m->unit;
    char *from = malloc(from_bytes), *want = calloc(1, to_bytes);
    char *got = malloc(to_bytes);
    char *there = nb_card_alloc(c, to_bytes, &to_room);
    char *here = nb_card_alloc(c, from_bytes, &from_room);
    need(from && want && got && here && there);
    for (size_t i = 0; i < from_bytes; i++)
        from[i] = (char)(1 + below(255));
    move_here(m, want, from);
    nb_move move;
    need(nb_move_over(&move, m->unit, m->n, m->size, m->there.step,
                      m->here.step));
    move.to = there + m->there.first * (int64_t)m->unit;
    move.from = here + m->here.first * (int64_t)m->unit;
    need(nb_card_put(c, here, from, from_bytes) &&
         nb_card_zero(c, there, to_bytes) &&
         nb_moves_launch(c, code, 1, &move, NULL, "a move") &&
         nb_card_get(c, got, there, to_bytes));
    bool ok = !memcmp(got, want, to_bytes);
    nb_card_free(c, here, from_room), nb_card_free(c, there, to_room);
    free(from), free(want), free(got);
    return ok;
}

CARD_TEST(elements_arrive, "")
{
    nb_card *c = cards_first();
    need(nb_card_enter(c));
    nb_card_code *code = nb_moves_code(c, false);
    need(code);
    for (int k = 0; k < CASES; k++) {
        moving m = any();
        bool ok = arrives(c, code, &m);
        if (!ok) fprintf(stderr, "%d: %d dims, %zu bytes\n", k, m.n, m.unit);
        need(ok);
    }
    nb_card_code_drop(code);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(elements_arrive),
    };
    return cmocka_run_group_tests(tests, cards_open, cards_close);
}
