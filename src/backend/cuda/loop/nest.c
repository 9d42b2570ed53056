/* nest.c - a nest as one block of threads runs it: in rounds, each of as
 * many units as there are teams. */
#include "backend/cuda/loop/solo.h"
#include "backend/cuda/print/prelude.h"
#include "backend/cuda/print/printer.h"

/* So many bytes on; memory of the block needs no more than 32 bits. */
static void add_bytes(nb_text *t, const nb_solo_slot *slot, int64_t bytes)
{
    bool far = slot->space != NB_SOLO_SHARED;
    nb_text_add(t, far ? "%lldll" : "%lld", (long long)bytes);
}

static void add_half(nb_text *t, const nb_solo_slot *slot, bool next)
{
    int64_t half = (slot->bytes + NB_SOLO_ALIGN - 1) / NB_SOLO_ALIGN;
    if (slot->loop < 0) return;
    nb_text_add(t, next ? " + (f%d ^ 1) * " : " + f%d * ", slot->loop);
    add_bytes(t, slot, half * NB_SOLO_ALIGN);
}

void nb_solo_print_at(nb_text *t, const nb_solo *s, const nb_solo_at *at)
{
    const nb_solo_slot *slot = &s->slot[at->slot];
    if (slot->space == NB_SOLO_ALIKE) {
        nb_text_add(t, "(char *)&%c%d", at->next ? 'q' : 'r', at->slot);
        return;
    }
    if (slot->space == NB_SOLO_GIVEN)
        nb_text_add(t, "g.b[%d]", slot->given);
    else
        nb_text_add(t, slot->space == NB_SOLO_SHARED ? "sh" : "g.work");
    nb_text_add(t, " + ");
    add_bytes(t, slot, slot->at + at->from);
    add_half(t, slot, at->next);
    for (int k = 0; k < at->nmoves; k++) {
        if (at->move[k].ring)
            nb_text_add(t, " + (t%d & %d) * ", at->move[k].loop,
                        at->move[k].ring - 1);
        else
            nb_text_add(t, " + t%d * ", at->move[k].loop);
        add_bytes(t, slot, at->move[k].bytes);
    }
}

/* Buffers of the nest, as kernels have them: all of them, or one. */
static void buffers(nb_printer *p, const nb_solo *s, const nb_solo_item *i,
                    int only)
{
    int n = i->nest->nbuffers;
    nb_print_line(p);
    OUT(p, "typedef %s I;", p->w.wide ? "long long" : "int");
    nb_print_line(p);
    OUT(p, "struct { char *b[%d]; } p = {{", n ? n : 1);
    for (int b = 0; b < n; b++) {
        OUT(p, b ? ", " : "");
        if (only < 0 || b == only)
            nb_solo_print_at(p->t, s, &i->block[b]);
        else
            OUT(p, "0");
    }
    OUT(p, "}};");
    nb_print_line(p);
    OUT(p, "const I total = ");
    nb_print_count(p, false);
    OUT(p, ", inner = ");
    nb_print_count(p, true);
    OUT(p, ";");
}

/* The unit of a round, its coordinates; warps without one have nothing to do,
 * but to have what is alike. */
static void begin_round(nb_printer *p, const nb_solo_item *i)
{
    const nb_cuda_walk *w = &p->w;
    int64_t rounds = (w->total + w->units - 1) / w->units;
    nb_print_line(p);
    if (i->rounds) OUT(p, "#pragma unroll");
    nb_print_line(p);
    OUT(p, "for (I u = 0; u < %lld; u++) {", (long long)rounds);
    p->depth++;
    nb_print_line(p);
    OUT(p, "I member = tid %% %d, unit = u * %d + tid / %d;", w->team, w->units,
        w->team);
    if (w->total > 1 && w->total % w->units) {
        nb_print_line(p);
        OUT(p, "if (u * %d + tid / 32 * 32 / %d >= total) break;", w->units,
            w->team);
    }
    nb_print_line(p);
    OUT(p, "const bool live = unit < total;");
    nb_print_line(p);
    OUT(p, "if (!live) unit = total - 1;");
    nb_print_unfold(p, "unit", false);
}

static void end_block(nb_printer *p)
{
    p->depth--;
    nb_print_line(p);
    OUT(p, "}");
}

static nb_printer printer_of(nb_text *t, const nb_solo_item *i, int depth)
{
    return (nb_printer){.t = t,
                        .x = i->nest,
                        .w = i->w,
                        .depth = depth,
                        .held = i->held,
                        .number = i->number};
}

void nb_solo_print_nest(nb_text *t, const nb_solo *s, const nb_solo_item *i,
                        int depth)
{
    nb_printer p = printer_of(t, i, depth);
    nb_print_line(&p);
    OUT(&p, "{");
    p.depth++;
    p.all = i->all;
    p.apart = true;
    buffers(&p, s, i, -1);
    begin_round(&p, i);
    if (i->nest->inner)
        nb_print_passes(&p);
    else
        nb_print_points(&p);
    end_block(&p);
    end_block(&p);
}

/* One held load: the points that a thread will come to, in that order. */
static void held(nb_printer *p, const nb_solo_item *i, int k)
{
    const nb_nest_value *v = nb_printer_value(p, k);
    const char *type = nb_cuda_stored(v->stored);
    int lanes = p->w.lanes, turns = p->w.inside[k] ? p->w.turns : 0;
    begin_round(p, i);
    if (turns) {
        nb_print_line(p);
        OUT(p, "#pragma unroll");
        nb_print_line(p);
        OUT(p, "for (int e = 0; e < %d; e++) {", turns);
        p->depth++;
        nb_print_line(p);
        OUT(p, "I j = (I)e * %d + member;", p->w.team);
        nb_print_line(p);
        OUT(p, "if (j >= inner) continue;");
        nb_print_unfold(p, "j", true);
        nb_print_line(p);
        OUT(p, "#pragma unroll");
        nb_print_line(p);
        OUT(p, "for (int l = 0; l < %d; l++)", lanes);
        p->depth++;
        nb_print_line(p);
    } else {
        nb_print_line(p);
    }
    nb_print_held(p, k);
    OUT(p, " = ((%s *)p.b[%d])[", type, v->buffer);
    nb_print_place(p, k, turns);
    OUT(p, "];");
    p->depth -= turns ? 1 : 0;
    if (turns) end_block(p);
    end_block(p);
}

void nb_solo_print_held(nb_text *t, const nb_solo *s, const nb_solo_item *i)
{
    nb_printer p = printer_of(t, i, 1);
    for (int k = 0; i->held && k < i->nest->n; k++) {
        const nb_nest_value *v = &i->nest->value[k];
        if (!i->held[k]) continue;
        int n = i->rounds * (i->w.inside[k] ? i->w.turns * i->w.lanes : 1);
        nb_print_line(&p);
        OUT(&p, "%s h%d_%d[%d];", nb_cuda_stored(v->stored), i->number, k, n);
        nb_print_line(&p);
        OUT(&p, "{");
        p.depth++;
        buffers(&p, s, i, v->buffer);
        held(&p, i, k);
        end_block(&p);
    }
}
