/* print.c - the kernel of a loop or branch that one block runs. */
#include "backend/cuda/loop/solo.h"
#include "backend/cuda/print/prelude.h"

#define OUT(...) nb_text_add(t, __VA_ARGS__)

static void line(nb_text *t, int depth)
{
    OUT("\n%*s", 4 * depth, "");
}

static void wait_if(nb_text *t, bool waits, int depth)
{
    if (!waits) return;
    line(t, depth);
    OUT("WAIT();");
}

/* Reading ahead */

/* To memory of the block's from the card's they go by themselves; else threads
 * carry them. */
static const char copies[] =
    "static __device__ __forceinline__ void ahead16(char *to, const char "
    "*from)\n"
    "{\n"
    "    asm volatile(\"cp.async.ca.shared.global [%0], [%1], 16;\" ::\n"
    "                 \"r\"((unsigned)__cvta_generic_to_shared(to)),\n"
    "                 \"l\"(from) : \"memory\");\n"
    "}\n"
    "static __device__ __forceinline__ void ahead4(char *to, const char "
    "*from)\n"
    "{\n"
    "    asm volatile(\"cp.async.ca.shared.global [%0], [%1], 4;\" ::\n"
    "                 \"r\"((unsigned)__cvta_generic_to_shared(to)),\n"
    "                 \"l\"(from) : \"memory\");\n"
    "}\n"
    "static __device__ __forceinline__ void carry16(char *to, const char "
    "*from)\n"
    "{\n"
    "    *(V4_u32 *)to = *(const V4_u32 *)from;\n"
    "}\n"
    "static __device__ __forceinline__ void carry4(char *to, const char "
    "*from)\n"
    "{\n"
    "    *(u32 *)to = *(const u32 *)from;\n"
    "}\n"
    "static __device__ __forceinline__ void carry1(char *to, const char "
    "*from)\n"
    "{\n"
    "    *to = *from;\n"
    "}\n";

/* What is given may be staged: it then lies in the block's memory, too. */
static const char *how_copied(const nb_solo *s, const nb_solo_ahead *a,
                              int word)
{
    bool near = s->slot[a->to.slot].space == NB_SOLO_SHARED;
    bool far = s->slot[a->from.slot].space != NB_SOLO_SHARED;
    return near && far && word > 1 ? "ahead" : "carry";
}

static void read_words(nb_text *t, const nb_solo *s, const nb_solo_item *i,
                       const nb_solo_ahead *a, int word, int depth)
{
    long long words = a->bytes / word;
    const nb_solo_slot *ring = &s->slot[a->to.slot];
    line(t, depth);
    OUT("for (int i = tid; i < %lld; i += %d) {", a->turns * words, s->threads);
    line(t, depth + 1);
    OUT("long long turn = first + i / %lld;", words);
    line(t, depth + 1);
    OUT("if (turn < %lldll)", (long long)i->length);
    line(t, depth + 2);
    OUT("%s%d(%s + %lldll + (turn & %d) * %lldll + i %% %lld * %d, from + ",
        how_copied(s, a, word), word,
        ring->space == NB_SOLO_SHARED ? "sh" : "g.work", (long long)ring->at,
        2 * a->turns - 1, (long long)a->bytes, words, word);
    if (i->reverse)
        OUT("(%lldll - turn)", (long long)i->length - 1);
    else
        OUT("turn");
    OUT(" * %lldll + i %% %lld * %d);", (long long)a->step, words, word);
    line(t, depth);
    OUT("}");
}

static bool goes_by(const nb_solo_ahead *a, int word)
{
    return a->bytes % word == 0 && a->step % word == 0;
}

/* As many turns as half a ring has, from turn `first` on; in the widest words
 * that the address is a multiple of. */
static void read_ahead(nb_text *t, const nb_solo *s, const nb_solo_item *i,
                       int depth)
{
    for (int k = 0; k < i->naheads; k++) {
        const nb_solo_ahead *a = &i->ahead[k];
        line(t, depth);
        OUT("{");
        line(t, depth + 1);
        OUT("const char *from = ");
        nb_solo_print_at(t, s, &a->from);
        OUT(";");
        for (int word = 16; word; word /= word == 16 ? 4 : word == 4 ? 4 : 2) {
            if (!goes_by(a, word)) continue;
            line(t, depth + 1);
            OUT("if ((unsigned long long)from %% %d == 0) {", word);
            read_words(t, s, i, a, word, depth + 2);
            line(t, depth + 1);
            OUT(word > 1 ? "} else" : "}");
        }
        line(t, depth);
        OUT("}");
    }
}

/* The first turn of a chunk finds it there, and reads the next. */
static void turn_ring(nb_text *t, const nb_solo *s, const nb_solo_item *i,
                      int depth)
{
    if (!i->naheads) return;
    int turns = i->ahead[0].turns;
    line(t, depth);
    OUT("if ((t%d & %d) == 0) {", i->loop, turns - 1);
    line(t, depth + 1);
    OUT("asm volatile(\"cp.async.wait_all;\" ::: \"memory\");");
    wait_if(t, true, depth + 1);
    line(t, depth + 1);
    OUT("long long first = t%d + %d;", i->loop, turns);
    read_ahead(t, s, i, depth + 1);
    line(t, depth);
    OUT("}");
}

static void begin_ring(nb_text *t, const nb_solo *s, const nb_solo_item *i,
                       int depth)
{
    if (!i->naheads) return;
    wait_if(t, true, depth);
    line(t, depth);
    OUT("{");
    line(t, depth + 1);
    OUT("long long first = 0;");
    read_ahead(t, s, i, depth + 1);
    line(t, depth);
    OUT("}");
}

/* Items */

static void items(nb_text *t, const nb_solo *s, const nb_solo_list *l,
                  int depth);

static void flag(nb_text *t, const nb_solo *s, const nb_solo_at *at)
{
    OUT("*(volatile unsigned char *)(");
    nb_solo_print_at(t, s, at);
    OUT(")");
}

/* What is alike has its next half in another register. */
static void end_turn(nb_text *t, const nb_solo *s, int loop, int depth)
{
    for (int k = 0; k < s->nslots; k++) {
        if (s->slot[k].space != NB_SOLO_ALIKE || s->slot[k].loop != loop)
            continue;
        line(t, depth);
        OUT("r%d = q%d;", k, k);
    }
}

static void loop(nb_text *t, const nb_solo *s, const nb_solo_item *i, int depth)
{
    int n = i->loop;
    begin_ring(t, s, i, depth);
    line(t, depth);
    if (i->length < 0)
        OUT("for (;;) {");
    else
        OUT("for (t%d = 0; t%d < %lld; t%d++) {", n, n, (long long)i->length,
            n);
    turn_ring(t, s, i, depth + 1);
    items(t, s, &i->first, depth + 1);
    if (i->length < 0) {
        wait_if(t, i->waits_flag, depth + 1);
        line(t, depth + 1);
        OUT("if (!");
        flag(t, s, &i->flag);
        OUT(") break;");
    }
    items(t, s, &i->second, depth + 1);
    end_turn(t, s, n, depth + 1);
    line(t, depth + 1);
    OUT("f%d ^= 1;", n);
    line(t, depth);
    OUT("}");
}

static void branch(nb_text *t, const nb_solo *s, const nb_solo_item *i,
                   int depth)
{
    line(t, depth);
    OUT("if (");
    flag(t, s, &i->flag);
    OUT(") {");
    items(t, s, &i->first, depth + 1);
    line(t, depth);
    OUT("} else {");
    items(t, s, &i->second, depth + 1);
    line(t, depth);
    OUT("}");
}

static void items(nb_text *t, const nb_solo *s, const nb_solo_list *l,
                  int depth)
{
    for (int k = 0; k < l->n; k++) {
        const nb_solo_item *i = &l->item[k];
        wait_if(t, i->waits, depth);
        if (i->kind == NB_SOLO_NEST) nb_solo_print_nest(t, s, i, depth);
        if (i->kind == NB_SOLO_LOOP) loop(t, s, i, depth);
        if (i->kind == NB_SOLO_BRANCH) branch(t, s, i, depth);
    }
}

/* Before all else */

/* Turns of loops, and which half is read: a loop that begins once more goes on
 * with the half where it was. */
static bool counters(void *ctx, nb_solo_item *i)
{
    nb_text *t = ctx;
    if (i->kind != NB_SOLO_LOOP) return true;
    line(t, 1);
    OUT("int f%d = 0; %s t%d = 0;", i->loop,
        i->length < 1 << 30 ? "int" : "long long", i->loop);
    return true;
}

static void alike(nb_text *t, const nb_solo *s)
{
    for (int k = 0; k < s->nslots; k++) {
        const nb_solo_slot *slot = &s->slot[k];
        const char *type = nb_cuda_stored(slot->dtype);
        if (slot->space != NB_SOLO_ALIKE) continue;
        line(t, 1);
        OUT("%s r%d = 0;", type, k);
        if (slot->loop >= 0) OUT(" %s q%d = 0;", type, k);
    }
}

static const char *word_of(int64_t bytes)
{
    return bytes == 1 ? "u8" : bytes == 2 ? "u16" : bytes == 4 ? "u32" : "u64";
}

static void number(nb_text *t, const nb_solo *s, int k)
{
    const nb_solo_slot *slot = &s->slot[k];
    int64_t bytes = (int64_t)nb_dtype_size(slot->dtype);
    uint64_t bits = (uint64_t)slot->bits;
    if (bytes < 8) bits &= ((uint64_t)1 << 8 * bytes) - 1;
    nb_solo_at at = {.slot = k};
    line(t, 1);
    OUT(slot->space == NB_SOLO_ALIKE ? "" : "if (tid == 0) ");
    OUT("*(%s *)(", word_of(bytes));
    nb_solo_print_at(t, s, &at);
    OUT(") = (%s)0x%llxull;", word_of(bytes), (unsigned long long)bits);
}

static void copy_staged(nb_text *t, const nb_solo *s, int k)
{
    const nb_solo_slot *slot = &s->slot[k];
    int64_t bytes = (int64_t)nb_dtype_size(slot->dtype);
    const char *word = word_of(bytes);
    line(t, 1);
    OUT("for (int i = tid; i < %lld; i += %d)",
        (long long)(slot->bytes / bytes), s->threads);
    line(t, 2);
    OUT("((%s *)(sh + %lld))[i] = ((const %s *)g.b[%d])[i];", word,
        (long long)slot->at, word, slot->given);
}

static bool print_held(void *ctx, nb_solo_item *i)
{
    void **c = ctx;
    if (i->kind == NB_SOLO_NEST) nb_solo_print_held(c[0], c[1], i);
    return true;
}

static void begin(nb_text *t, nb_solo *s)
{
    void *ctx[2] = {t, s};
    nb_solo_each(&s->list, counters, t);
    alike(t, s);
    for (int k = 0; k < s->nslots; k++) {
        if (s->slot[k].number && s->slot[k].used) number(t, s, k);
        if (s->slot[k].staged) copy_staged(t, s, k);
    }
    wait_if(t, true, 1); /* what is held may be read of what is staged */
    nb_solo_each(&s->list, print_held, ctx);
}

/* Where this block begins in what is given. */
static void begin_block(nb_text *t, const nb_solo *s)
{
    int64_t after = nb_solo_blocks(s);
    line(t, 1);
    OUT("args g = given;");
    for (int l = 0; l < s->nlanes; l++) {
        after /= s->lane[l];
        line(t, 1);
        OUT("const long long l%d = blockIdx.x / %lldu %% %lldu;", l,
            (long long)after, (long long)s->lane[l]);
        for (int k = 0; k < s->nslots; k++) {
            if (!s->slot[k].lane[l]) continue;
            line(t, 1);
            OUT("g.b[%d] += l%d * %lld;", s->slot[k].given, l,
                (long long)s->slot[k].lane[l]);
        }
    }
    if (!s->nlanes || !s->work) return;
    line(t, 1);
    OUT("g.work += blockIdx.x * %lldll;", (long long)s->work);
}

static bool gather(void *ctx, nb_solo_item *i)
{
    const nb_cuda_walk ***at = ctx;
    if (i->kind == NB_SOLO_NEST) *(*at)++ = &i->w;
    return true;
}

static bool prelude(nb_solo *s, nb_text *t)
{
    const nb_cuda_walk **all = nb_alloc((size_t)(s->nnests + 1) * sizeof *all);
    const nb_cuda_walk **end = all;
    if (!all) return false;
    nb_solo_each(&s->list, gather, &end);
    nb_cuda_prelude(t, (int)(end - all), all);
    nb_free(all);
    return true;
}

static void vector_types(nb_text *t)
{
    static const char *const type[] = {"u8",  "i8",  "u16", "i16", "u32",
                                       "i32", "f32", "u64", "i64", "f64"};
    static const int bytes[] = {1, 1, 2, 2, 4, 4, 4, 8, 8, 8};
    for (int k = 0; k < (int)(sizeof type / sizeof *type); k++)
        for (int n = 2; n * bytes[k] <= 128; n *= 2)
            if (n <= 16)
                OUT("struct __align__(%d) V%d_%s { %s x[%d]; };\n",
                    n * bytes[k] < 16 ? n * bytes[k] : 16, n, type[k], type[k],
                    n);
}

bool nb_solo_print(nb_solo *s, nb_text *t, const char *name)
{
    if (!prelude(s, t)) return false;
    vector_types(t);
    OUT("%s", copies);
    OUT("#define WAIT() %s()\n",
        s->threads == 32 ? "__syncwarp" : "__syncthreads");
    OUT("struct args { char *b[%d]; char *work; };\n", s->ngiven);
    OUT("extern \"C\" __global__ void __launch_bounds__(%d, 1)\n"
        "%s(const __grid_constant__ args given)\n{",
        s->threads, name);
    line(t, 1);
    OUT("extern __shared__ __align__(16) char sh[];");
    line(t, 1);
    OUT("const int tid = threadIdx.x;");
    begin_block(t, s);
    begin(t, s);
    items(t, s, &s->list, 1);
    OUT("\n}\n");
    return !t->failed;
}
