/* print.c - writing the kernel of a nest.
 *
 * A thread finds its unit and walks the passes.  Each begins with what is the
 * same all over the unit, then come its turns, then what the team has reduced.
 * In a turn vectors are loaded, lanes computed one by one, vectors stored. */
#include "backend/cuda/print.h"

#include "backend/cuda/prelude.h"
#include "base/error.h"

#include <stdio.h>

typedef struct printer {
    nb_text *t;
    const nb_nest *x;
    nb_cuda_walk w;
    int depth;
} printer;

#define OUT(p, ...) nb_text_add((p)->t, __VA_ARGS__)

static void line(printer *p)
{
    OUT(p, "\n%*s", 4 * p->depth, "");
}

static const nb_nest_value *value(const printer *p, int k)
{
    return &p->x->value[k];
}

/* A number of the nest: known now, or a parameter. */
static void number(printer *p, int slot)
{
    if (nb_nest_varies(p->x, slot))
        OUT(p, "p.n[%d]", p->x->param[slot]);
    else
        OUT(p, "%lld", (long long)*nb_nest_number(p->x, slot));
}

static bool is_zero(const printer *p, int slot)
{
    return !nb_nest_varies(p->x, slot) && *nb_nest_number(p->x, slot) == 0;
}

static bool is_one(const printer *p, int slot)
{
    return !nb_nest_varies(p->x, slot) && *nb_nest_number(p->x, slot) == 1;
}

/* Whether lanes are points of an outer axis. */
static bool has_outer_lanes(const printer *p)
{
    return !p->x->inner && p->w.lanes > 1;
}

/* offset + i0 * stride ... , the lane included if it is asked for. */
static void place(printer *p, int k, bool lane)
{
    bool any = !is_zero(p, nb_slot_offset(k));
    if (any) number(p, nb_slot_offset(k));
    for (int a = 0; a < p->x->naxes; a++) {
        int slot = nb_slot_stride(k, a);
        if (is_zero(p, slot)) continue;
        bool moves = lane && a == p->w.vector && p->w.lanes > 1;
        OUT(p, moves ? "%s(i%d + l)" : "%si%d", any ? " + " : "", a);
        if (!is_one(p, slot)) {
            OUT(p, " * ");
            number(p, slot);
        }
        any = true;
    }
    if (!any) OUT(p, "0");
}

/* The coordinates of a flat number along some axes, the last fastest; sizes of
 * the vector axis count vectors. */
static void unfold(printer *p, const char *flat, bool inner)
{
    const nb_nest *x = p->x;
    int order[NB_MAX_NEST_AXES], n = 0; /* the vector axis runs fastest */
    for (int a = 0; a < x->naxes; a++)
        if ((x->inner >> a & 1) == inner && a != p->w.vector) order[n++] = a;
    bool mine = p->w.vector >= 0 && (x->inner >> p->w.vector & 1) == inner;
    if (mine) order[n++] = p->w.vector;
    if (n > 1) {
        line(p);
        OUT(p, "I r%d = %s;", inner, flat);
    }
    for (int j = n - 1; j >= 0; j--) {
        int a = order[j];
        int lanes = a == p->w.vector ? p->w.lanes : 1;
        line(p);
        OUT(p, "I i%d = ", a);
        if (n > 1)
            OUT(p, "r%d", inner);
        else
            OUT(p, "%s", flat);
        if (j > 0) {
            OUT(p, " %% ");
            if (lanes > 1)
                OUT(p, "%lld", (long long)(x->size[a] / lanes));
            else
                number(p, a);
        }
        if (lanes > 1) OUT(p, " * %d", lanes);
        OUT(p, ";");
        if (j == 0) continue;
        line(p);
        OUT(p, "r%d /= ", inner);
        if (lanes > 1)
            OUT(p, "%lld", (long long)(x->size[a] / lanes));
        else
            number(p, a);
        OUT(p, ";");
    }
}

/* How many there are, as an expression. */
static void product(printer *p, bool inner)
{
    bool any = false;
    int64_t known = 1;
    for (int a = 0; a < p->x->naxes; a++) {
        if ((p->x->inner >> a & 1) != inner) continue;
        if (!nb_nest_varies(p->x, a)) {
            int lanes = a == p->w.vector ? p->w.lanes : 1;
            known *= p->x->size[a] / lanes;
            continue;
        }
        OUT(p, "%sp.n[%d]", any ? " * " : "(I)", p->x->param[a]);
        any = true;
    }
    OUT(p, any ? " * %lld" : "(I)%lld", (long long)known);
}

/* Values */

/* The name of value k at this point: of one lane, if it has several. */
static void name(printer *p, int k)
{
    const nb_nest_value *v = value(p, k);
    if (v->kind == NB_NEST_CONST) {
        if (nb_nest_varies(p->x, nb_slot_bits(k)))
            OUT(p, "(%s)p.n[%d]", nb_cuda_type(v->dtype),
                p->x->param[nb_slot_bits(k)]);
        else
            nb_cuda_constant(p->t, v->dtype, v->bits);
        return;
    }
    OUT(p, "v%d", k);
}

static void convert(printer *p, nb_dtype from, nb_dtype to, const char *open)
{
    if (from == to)
        OUT(p, "(%s", open);
    else
        OUT(p, "c_%s_%s(%s", nb_cuda_type(from), nb_cuda_type(to), open);
}

static void address(printer *p, int k, bool lane)
{
    const nb_nest_value *v = value(p, k);
    OUT(p, "((%s *)p.b[%d])[", nb_cuda_stored(v->stored), v->buffer);
    place(p, k, lane);
    if (v->kind == NB_NEST_PICK) {
        OUT(p, " + ");
        name(p, v->arg[0]);
    }
    OUT(p, "]");
}

/* Bools lie in memory as bytes. */
static const char *tested(const nb_nest_value *v)
{
    return v->stored == NB_BOOL ? " != 0" : "";
}

static void load(printer *p, int k)
{
    const nb_nest_value *v = value(p, k);
    convert(p, v->stored, v->dtype, "");
    if (nb_cuda_is_vector(&p->w, v))
        OUT(p, "x%d.x[l]", k);
    else
        address(p, k, true);
    OUT(p, "%s)", tested(v));
}

static void pick(printer *p, int k)
{
    const nb_nest_value *v = value(p, k);
    name(p, v->arg[1]);
    OUT(p, " ? ");
    convert(p, v->stored, v->dtype, "");
    address(p, k, true);
    OUT(p, "%s) : (%s)0", tested(v), nb_cuda_type(v->dtype));
}

static void word(printer *p, int k)
{
    const nb_nest_value *v = value(p, k);
    OUT(p, "word_%s(", nb_cuda_type(v->dtype));
    for (int i = 0; i < 3; i++) {
        name(p, v->arg[i]);
        OUT(p, ", ");
    }
    OUT(p, "0x%llxu, 0x%llxu)", (unsigned long long)v->bits & 0xffffffff,
        (unsigned long long)v->bits >> 32 & 0xffffffff);
}

static void scalar(printer *p, int k)
{
    const nb_nest_value *v = value(p, k);
    nb_cuda_scalar_name(p->t, v->scalar, v->compute);
    OUT(p, "(");
    for (int i = 0; i < 3; i++) {
        if (i) OUT(p, ", ");
        name(p, v->arg[i]);
    }
    OUT(p, ")");
}

static void combine(printer *p, int k, const char *a, const char *b)
{
    const nb_nest_value *v = value(p, k);
    nb_cuda_reduce_name(p->t, v->reduce, v->dtype);
    OUT(p, "(%s, %s, %s)", a, b, b);
}

static void scan(printer *p, int k)
{
    const nb_nest_value *v = value(p, k);
    char total[32], of[32];
    snprintf(total, sizeof total, "a%d", k);
    snprintf(of, sizeof of, "v%d", v->arg[0]);
    if (v->bits)
        OUT(p, "a%d;", k);
    else {
        combine(p, k, total, of);
        OUT(p, ";");
    }
    line(p);
    OUT(p, "a%d = ", k);
    combine(p, k, total, of);
}

static void expression(printer *p, int k)
{
    const nb_nest_value *v = value(p, k);
    switch (v->kind) {
    case NB_NEST_LOAD: load(p, k); break;
    case NB_NEST_PICK: pick(p, k); break;
    case NB_NEST_WORD: word(p, k); break;
    case NB_NEST_SCAN: scan(p, k); break;
    case NB_NEST_SCALAR: scalar(p, k); break;
    case NB_NEST_INDEX:
        OUT(p, "(%s)(", nb_cuda_type(v->dtype));
        place(p, k, true);
        OUT(p, ")");
        break;
    case NB_NEST_CONVERT:
        convert(p, v->compute, v->dtype, "");
        name(p, v->arg[0]);
        OUT(p, ")");
        break;
    case NB_NEST_CARRY: OUT(p, "a%d", k); break;
    case NB_NEST_LAST: OUT(p, "a%d", v->arg[0]); break;
    default: break;
    }
}

static bool is_written(const nb_nest_value *v)
{
    return v->kind != NB_NEST_CONST && v->kind != NB_NEST_REDUCE &&
           v->kind != NB_NEST_STORE;
}

static void define(printer *p, int k)
{
    line(p);
    OUT(p, "%s v%d = ", nb_cuda_type(value(p, k)->dtype), k);
    expression(p, k);
    OUT(p, ";");
}

static void store(printer *p, int k)
{
    const nb_nest_value *v = value(p, k);
    nb_dtype is = value(p, v->arg[0])->dtype;
    line(p);
    if (nb_cuda_is_vector(&p->w, v))
        OUT(p, "y%d.x[l]", k);
    else
        address(p, k, true);
    OUT(p, " = ");
    convert(p, is, v->stored, "");
    name(p, v->arg[0]);
    OUT(p, ");");
}

static void vector_address(printer *p, int k)
{
    const nb_nest_value *v = value(p, k);
    OUT(p, "*(V%d_%s *)((%s *)p.b[%d] + ", p->w.lanes,
        nb_cuda_stored(v->stored), nb_cuda_stored(v->stored), v->buffer);
    place(p, k, false);
    OUT(p, ")");
}

/* The types of vectors that are loaded and stored. */
static void vector_types(printer *p)
{
    bool seen[NB_NDTYPES] = {false};
    for (int k = 0; k < p->x->n; k++) {
        const nb_nest_value *v = value(p, k);
        nb_dtype d = v->stored;
        if (!nb_cuda_is_vector(&p->w, v)) continue;
        for (int e = 0; e < NB_NDTYPES; e++) /* one for those that lie alike */
            if (seen[e] && nb_cuda_stored((nb_dtype)e) == nb_cuda_stored(d))
                seen[d] = true;
        if (seen[d]) continue;
        seen[d] = true;
        size_t bytes = nb_dtype_size(d) * (size_t)p->w.lanes;
        OUT(p, "struct __align__(%d) V%d_%s { %s x[%d]; };\n",
            (int)(bytes > 16 ? 16 : bytes), p->w.lanes, nb_cuda_stored(d),
            nb_cuda_stored(d), p->w.lanes);
    }
}

/* Turns */

static bool is_read_at(const printer *p, int k, int q)
{
    return p->w.needed[q][k] && !(p->w.kept[k] >= 0 && p->w.kept[k] < q);
}

static void load_vectors(printer *p, int q)
{
    for (int k = 0; k < p->x->n; k++) {
        const nb_nest_value *v = value(p, k);
        if (v->kind != NB_NEST_LOAD || !is_read_at(p, k, q)) continue;
        if (!nb_cuda_is_vector(&p->w, v)) continue;
        line(p);
        OUT(p, "V%d_%s x%d = ", p->w.lanes, nb_cuda_stored(v->stored), k);
        vector_address(p, k);
        OUT(p, ";");
    }
}

static void store_vectors(printer *p, int q)
{
    for (int k = 0; k < p->x->n; k++) {
        const nb_nest_value *v = value(p, k);
        if (v->kind != NB_NEST_STORE || !p->w.needed[q][k]) continue;
        if (!nb_cuda_is_vector(&p->w, v)) continue;
        line(p);
        OUT(p, "if (live) ");
        vector_address(p, k);
        OUT(p, " = y%d;", k);
    }
}

static void declare_stores(printer *p, int q)
{
    for (int k = 0; k < p->x->n; k++) {
        const nb_nest_value *v = value(p, k);
        if (v->kind != NB_NEST_STORE || !p->w.needed[q][k]) continue;
        if (!nb_cuda_is_vector(&p->w, v)) continue;
        line(p);
        OUT(p, "V%d_%s y%d;", p->w.lanes, nb_cuda_stored(v->stored), k);
    }
}

static void store_one(printer *p, int k)
{
    if (nb_cuda_is_vector(&p->w, value(p, k))) {
        store(p, k);
        return;
    }
    line(p);
    OUT(p, "if (live) {");
    p->depth++;
    store(p, k);
    p->depth--;
    line(p);
    OUT(p, "}");
}

static void accumulate(printer *p, int k)
{
    char total[32], of[64];
    snprintf(total, sizeof total, "a%d", k);
    nb_text one = {0}, *was = p->t;
    p->t = &one;
    name(p, value(p, k)->arg[0]);
    p->t = was;
    snprintf(of, sizeof of, "%s", nb_text_get(&one));
    was->failed |= one.failed;
    nb_text_free(&one);
    line(p);
    OUT(p, "%s = ", total);
    combine(p, k, total, of);
    OUT(p, ";");
}

/* What one lane of a turn does. */
static void lane(printer *p, int q)
{
    const nb_cuda_walk *w = &p->w;
    for (int k = 0; k < p->x->n; k++) {
        const nb_nest_value *v = value(p, k);
        if (!w->needed[q][k]) continue;
        if (v->kind == NB_NEST_STORE) {
            store_one(p, k);
        } else if (v->kind == NB_NEST_REDUCE) {
            accumulate(p, k);
        } else if (w->kept[k] >= 0 && w->kept[k] < q) {
            line(p);
            OUT(p, "%s v%d = k%d[e * %d + l];", nb_cuda_type(v->dtype), k, k,
                w->lanes);
        } else if (is_written(v)) {
            define(p, k);
            if (w->kept[k] != q) continue;
            line(p);
            OUT(p, "k%d[e * %d + l] = v%d;", k, w->lanes, k);
        }
    }
    for (int k = 0; k < p->x->n; k++) {
        const nb_nest_value *v = value(p, k);
        if (v->kind != NB_NEST_CARRY || !w->needed[q][k]) continue;
        line(p);
        OUT(p, "a%d = ", k);
        name(p, v->next);
        OUT(p, ";");
    }
}

static void lanes(printer *p, int q)
{
    load_vectors(p, q);
    declare_stores(p, q);
    line(p);
    OUT(p, "#pragma unroll");
    line(p);
    OUT(p, "for (int l = 0; l < %d; l++) {", p->w.lanes);
    p->depth++;
    lane(p, q);
    p->depth--;
    line(p);
    OUT(p, "}");
    store_vectors(p, q);
}

/* A cut axis is shorter in the last piece. */
static void guard_cut(printer *p)
{
    int a = p->x->cut;
    if (!a) return;
    line(p);
    OUT(p, "if (i%d + i0 * ", a);
    number(p, a);
    OUT(p, " >= ");
    number(p, NB_SLOT_CUT);
    OUT(p, ") continue;");
}

static bool any_inside(const printer *p, int q)
{
    for (int k = 0; k < p->x->n; k++)
        if (p->w.needed[q][k]) return true;
    return false;
}

static void turns(printer *p, int q)
{
    const nb_cuda_walk *w = &p->w;
    line(p);
    OUT(p, w->turns ? "#pragma unroll" : "#pragma unroll 4");
    line(p);
    if (w->turns)
        OUT(p, "for (int e = 0; e < %d; e++) {", w->turns);
    else
        OUT(p, "for (I e = 0; e * %d + member < inner; e++) {", w->team);
    p->depth++;
    line(p);
    OUT(p, "I j = (I)e * %d + member;", w->team);
    if (w->turns && w->inner != (int64_t)w->turns * w->team * w->lanes) {
        line(p);
        OUT(p, "if (j >= inner) continue;");
    }
    unfold(p, "j", true);
    guard_cut(p);
    lanes(p, q);
    p->depth--;
    line(p);
    OUT(p, "}");
}

/* Reductions across a team */

static const char *shuffled(nb_dtype d)
{
    return nb_dtype_size(d) < 4 ? "int" : nb_cuda_type(d);
}

static void fold_warp(printer *p, int k, int n)
{
    nb_dtype d = value(p, k)->dtype;
    for (int step = n / 2; step; step /= 2) {
        char other[128], total[32];
        snprintf(total, sizeof total, "a%d", k);
        snprintf(other, sizeof other,
                 "(%s)__shfl_xor_sync(0xffffffffu, (%s)a%d, %d)",
                 nb_cuda_type(d), shuffled(d), k, step);
        line(p);
        OUT(p, "{ %s b = %s; a%d = ", nb_cuda_type(d), other, k);
        combine(p, k, total, "b");
        OUT(p, "; }");
    }
}

static void fold_block(printer *p, int k, int warps)
{
    const nb_nest_value *v = value(p, k);
    fold_warp(p, k, 32);
    line(p);
    OUT(p, "__shared__ %s s%d[%d];", nb_cuda_stored(v->dtype), k, warps);
    line(p);
    OUT(p, "if (threadIdx.x %% 32 == 0) s%d[threadIdx.x / 32] = a%d;", k, k);
    line(p);
    OUT(p, "__syncthreads();");
    line(p);
    OUT(p, "a%d = threadIdx.x %% 32 < %d ? (%s)s%d[threadIdx.x %% 32] : ", k,
        warps, nb_cuda_type(v->dtype), k);
    nb_cuda_neutral(p->t, v->reduce, v->dtype);
    OUT(p, ";");
    fold_warp(p, k, 32);
}

static void fold_across(printer *p, int k)
{
    const nb_nest_value *v = value(p, k);
    int team = p->w.team, side = p->w.units;
    char a[32], b[32];
    line(p);
    OUT(p, "__shared__ %s s%d[%d];", nb_cuda_stored(v->dtype), k, team * side);
    line(p);
    OUT(p, "s%d[threadIdx.x] = a%d;", k, k);
    line(p);
    OUT(p, "__syncthreads();");
    for (int step = team / 2; step; step /= 2) {
        line(p);
        OUT(p, "if (member < %d) {", step);
        snprintf(a, sizeof a, "a%d", k);
        snprintf(b, sizeof b, "b");
        OUT(p, " %s b = s%d[threadIdx.x + %d]; a%d = ", nb_cuda_type(v->dtype),
            k, step * side, k);
        combine(p, k, a, b);
        OUT(p, "; s%d[threadIdx.x] = a%d; }", k, k);
        line(p);
        OUT(p, "__syncthreads();");
    }
    line(p);
    OUT(p, "a%d = s%d[threadIdx.x %% %d];", k, k, side);
}

static void fold(printer *p, int k)
{
    if (p->w.team == 1) return;
    if (p->w.across)
        fold_across(p, k);
    else if (p->w.team <= 32)
        fold_warp(p, k, p->w.team);
    else
        fold_block(p, k, p->w.team / 32);
}

/* Totals and what is carried, before a pass and behind it. */

static bool totals(const printer *p, int k, int q)
{
    const nb_nest_value *v = value(p, k);
    bool is = v->kind == NB_NEST_REDUCE || v->kind == NB_NEST_SCAN ||
              v->kind == NB_NEST_CARRY;
    return is && p->w.needed[q][k];
}

static void begin_totals(printer *p, int q)
{
    for (int k = 0; k < p->x->n; k++) {
        const nb_nest_value *v = value(p, k);
        if (!totals(p, k, q)) continue;
        line(p);
        OUT(p, "%s a%d = ", nb_cuda_type(v->dtype), k);
        if (v->kind == NB_NEST_CARRY)
            name(p, v->arg[0]);
        else
            nb_cuda_neutral(p->t, v->reduce, v->dtype);
        OUT(p, ";");
    }
}

static void end_totals(printer *p, int q)
{
    for (int k = 0; k < p->x->n; k++) {
        const nb_nest_value *v = value(p, k);
        if (!totals(p, k, q) || v->kind != NB_NEST_REDUCE) continue;
        fold(p, k);
        line(p);
        OUT(p, "%s v%d = a%d;", nb_cuda_type(v->dtype), k, k);
    }
}

/* What is the same all over the unit, and ready in this pass. */
static void level(printer *p, int q)
{
    for (int k = 0; k < p->x->n; k++) {
        const nb_nest_value *v = value(p, k);
        if (p->w.inside[k] || p->w.ready[k] != q) continue;
        if (v->kind == NB_NEST_STORE) {
            line(p);
            OUT(p, "if (live && member == 0) {");
            p->depth++;
            store(p, k);
            p->depth--;
            line(p);
            OUT(p, "}");
        } else if (is_written(v) && v->kind != NB_NEST_CARRY) {
            define(p, k);
        }
    }
}

static void declare_kept(printer *p)
{
    for (int k = 0; k < p->x->n; k++) {
        if (p->w.kept[k] < 0) continue;
        line(p);
        OUT(p, "%s k%d[%d];", nb_cuda_type(value(p, k)->dtype), k,
            p->w.turns * p->w.lanes);
    }
}

static void passes(printer *p)
{
    declare_kept(p);
    for (int q = 0; q < p->w.npasses; q++) {
        level(p, q);
        if (!any_inside(p, q)) continue;
        begin_totals(p, q);
        turns(p, q);
        end_totals(p, q);
    }
}

/* Where nothing is reduced, each value is computed once, lane by lane. */
static void points(printer *p)
{
    for (int k = 0; k < p->x->n; k++)
        p->w.needed[0][k] = true;
    lanes(p, 0);
}

static void unit(printer *p)
{
    const nb_cuda_walk *w = &p->w;
    line(p);
    OUT(p, "I member = threadIdx.x %s %d;", w->across ? "/" : "%",
        w->across ? w->units : w->team);
    line(p);
    OUT(p, "I unit = (I)blockIdx.x * %d + threadIdx.x %s %d;", w->units,
        w->across ? "%" : "/", w->across ? w->units : w->team);
    line(p);
    OUT(p, "bool live = unit < total;");
    line(p);
    OUT(p, "if (!live) unit = total - 1;");
    unfold(p, "unit", false);
    line(p);
    OUT(p, "const I inner = ");
    product(p, true);
    OUT(p, ";");
    passes(p);
}

/* Every thread takes some units, a block's width apart. */
static void map(printer *p)
{
    const nb_cuda_walk *w = &p->w;
    line(p);
    OUT(p, "#pragma unroll");
    line(p);
    OUT(p, "for (int u = 0; u < %d; u++) {", w->ahead);
    p->depth++;
    line(p);
    OUT(p, "I unit = ((I)blockIdx.x * %d + u) * %d + threadIdx.x;", w->ahead,
        w->units);
    line(p);
    OUT(p, "if (unit >= total) break;");
    line(p);
    OUT(p, "const bool live = true;");
    unfold(p, "unit", false);
    points(p);
    p->depth--;
    line(p);
    OUT(p, "}");
}

static void kernel(printer *p, const char *called)
{
    const nb_cuda_walk *w = &p->w;
    int nb = p->x->nbuffers, np = p->x->param ? p->x->nparams : 0;
    nb_cuda_prelude(p->t, p->x);
    OUT(p, "typedef %s I;\n", w->wide ? "long long" : "int");
    vector_types(p);
    OUT(p, "struct args { char *b[%d]; long long n[%d]; };\n", nb ? nb : 1,
        np ? np : 1);
    OUT(p,
        "extern \"C\" __global__ void __launch_bounds__(%d)\n"
        "%s(const __grid_constant__ args p)\n{",
        nb_cuda_threads(w), called);
    p->depth = 1;
    line(p);
    OUT(p, "const I total = ");
    product(p, false);
    OUT(p, ";");
    if (p->x->inner)
        unit(p);
    else
        map(p);
    OUT(p, "\n}\n");
}

bool nb_print_nest(nb_text *t, const nb_nest *x, const char *called,
                   nb_printed *how)
{
    printer p = {.t = t, .x = x};
    bool ok = nb_cuda_walk_plan(&p.w, x);
    if (ok) {
        kernel(&p, called);
        *how = (nb_printed){.threads = nb_cuda_threads(&p.w),
                            .per_block = (int64_t)p.w.units * p.w.ahead,
                            .lanes = p.w.lanes,
                            .vector = has_outer_lanes(&p) ? p.w.vector : -1};
    }
    nb_cuda_walk_free(&p.w);
    return ok && !t->failed;
}

int64_t nb_printed_blocks(const nb_printed *how, const nb_nest *x)
{
    int64_t units = nb_nest_units(x);
    if (how->vector >= 0) units /= how->lanes;
    return (units + how->per_block - 1) / how->per_block;
}
