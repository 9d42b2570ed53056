/* blaslt_choose.c - which algorithm of cuBLASLt makes a product.
 *
 * The library lists some by what it expects of them; for a large product the
 * first few are timed on memory of the size, on the main stream.  The choice is
 * kept on disk under the form of the product, the card and the version of the
 * library: a program is the same in every process after the first. */
#include "backend/cuda/product/blaslt_parts.h"

#include "backend/cuda/memory.h"
#include "base/disk.h"
#include "base/memory.h"
#include "base/text.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum {
    PREFERENCE_WORKSPACE = 1,
    PREFERENCE_REDUCTION = 3,
    PREFERENCE_ALIGNMENT = 5, /* of A, and then of B, C and the result */
    REDUCTION_COMPUTE = 2
};

enum { TRIED = 16, TIMES = 4, PARTS = 6, KNOWN = 512 };

/* Operations: of a product that is worth trying, and of all times that it is
 * tried, once at least. */
static const double worth_trying = 4e9, enough = 1e12;

/* What is tried instead of the first has to be so much faster. */
static const float gain = 0.98f;

/* Where a matrix may begin: at the start of blocks, which are aligned to 16
 * bytes, and as many steps further. */
static int alignment(const nb_gemm *g, const nb_gemm_part *p)
{
    int64_t item = (int64_t)nb_dtype_size(p->dtype), all = p->offset * item;
    for (int i = 0; i < g->nouter; i++)
        all |= p->step[i] * item;
    int n = 16;
    while (all % n)
        n /= 2;
    return n;
}

static bool prefer(const nb_blaslt_call *b, void *preference)
{
    const nb_gemm *g = &b->g;
    size_t most = NB_BLASLT_WORKSPACE;
    uint32_t reduction = REDUCTION_COMPUTE;
    int x = alignment(g, &g->a), y = alignment(g, &g->b);
    int c = alignment(g, &g->c);
    int align[4] = {b->swapped ? y : x, b->swapped ? x : y, c, c};
    bool ok = nb_blaslt_check(
                  b->api->MatmulPreferenceSetAttribute(
                      preference, PREFERENCE_WORKSPACE, &most, sizeof most),
                  "a preference") &&
              nb_blaslt_check(b->api->MatmulPreferenceSetAttribute(
                                  preference, PREFERENCE_REDUCTION, &reduction,
                                  sizeof reduction),
                              "a preference");
    for (int i = 0; ok && i < 4; i++)
        ok = nb_blaslt_check(b->api->MatmulPreferenceSetAttribute(
                                 preference, PREFERENCE_ALIGNMENT + i,
                                 &align[i], sizeof align[i]),
                             "a preference");
    return ok;
}

/* The first few, best first; none: the library has none, or says so. */
static bool list(const nb_blaslt_call *b, nb_blaslt_choice *to, int most,
                 int *n)
{
    void *preference = NULL;
    *n = 0;
    bool ok = nb_blaslt_check(b->api->MatmulPreferenceCreate(&preference),
                              "a preference") &&
              prefer(b, preference);
    if (ok &&
        b->api->MatmulAlgoGetHeuristic(b->handle, b->desc, b->first, b->second,
                                       b->c, b->c, preference, most, to, n))
        *n = 0;
    if (preference) b->api->MatmulPreferenceDestroy(preference);
    return ok;
}

bool nb_blaslt_find(nb_blaslt_call *b, bool *found)
{
    int n;
    if (!list(b, &b->choice, 1, &n)) return false;
    *found = n > 0;
    return true;
}

/* Trying */

/* Memory to try on: what the parts of one call reach over. */
typedef struct trial {
    nb_blaslt_call *b;
    char *at[PARTS], *workspace;
    size_t room[PARTS], workspace_room;
    void *from, *to;
} trial;

static int64_t reach(const nb_gemm *g, const nb_gemm_part *p, int64_t r,
                     int64_t c)
{
    int64_t n = p->offset + (r - 1) * p->row + (c - 1) * p->column + 1;
    if (g->nouter) n += (g->outer[g->nouter - 1] - 1) * p->step[g->nouter - 1];
    return n * (int64_t)nb_dtype_size(p->dtype);
}

static bool make_room(trial *t)
{
    nb_gemm *g = &t->b->g;
    int64_t whole = reach(g, &g->c, g->m, g->n);
    struct {
        int buffer;
        int64_t bytes;
    } want[] = {{g->a.buffer, reach(g, &g->a, g->m, g->k)},
                {g->b.buffer, reach(g, &g->b, g->k, g->n)},
                {g->c.buffer, whole},
                {g->add.buffer, g->add.offset * 8 + whole},
                {g->bias.buffer, (g->bias.offset + g->m + g->n) * 8},
                {g->kept.buffer, g->kept.offset * 8 + whole}};
    for (int i = 0; i < PARTS; i++) {
        int k = want[i].buffer;
        if (k < 0 || k >= PARTS) continue;
        size_t n = (size_t)want[i].bytes;
        if (n <= t->room[k]) continue;
        nb_card_free(t->b->card, t->at[k], t->room[k]);
        t->room[k] = 0;
        t->at[k] = nb_card_alloc(t->b->card, n, &t->room[k]);
        if (!t->at[k] || !nb_card_zero(t->b->card, t->at[k], n)) return false;
    }
    t->workspace =
        nb_card_alloc(t->b->card, NB_BLASLT_WORKSPACE, &t->workspace_room);
    return t->workspace;
}

static int times_of(const nb_gemm *g)
{
    double n = enough / nb_gemm_flops(g);
    return n < 1 ? 1 : n > TIMES ? TIMES : (int)n;
}

/* Milliseconds of a few, or a negative number if it does not run. */
static float time_of(trial *t, const nb_blaslt_choice *c)
{
    const nb_cuda *cu = t->b->card->api;
    void *stream = t->b->card->stream;
    int times = times_of(&t->b->g);
    float ms = -1;
    t->b->choice = *c;
    bool ok = nb_blaslt_once(t->b, t->at, t->workspace, "trying a product") &&
              !cu->EventRecord(t->from, stream);
    for (int i = 0; ok && i < times; i++)
        ok = nb_blaslt_once(t->b, t->at, t->workspace, "trying a product");
    ok = ok && !cu->EventRecord(t->to, stream) &&
         !cu->EventSynchronize(t->to) &&
         !cu->EventElapsedTime(&ms, t->from, t->to);
    if (!ok) nb_error_clear();
    return ok ? ms : -1;
}

static int fastest(trial *t, const nb_blaslt_choice *list, int n)
{
    const nb_cuda *cu = t->b->card->api;
    int best = 0;
    float least = -1;
    bool ok = !cu->EventCreate(&t->from, 0) && !cu->EventCreate(&t->to, 0) &&
              make_room(t);
    for (int i = 0; ok && i < n; i++) {
        float ms = time_of(t, &list[i]);
        if (ms < 0 || (least >= 0 && ms >= least * gain)) continue;
        least = ms;
        best = i;
    }
    if (!ok) nb_error_clear();
    return best;
}

static void free_trial(trial *t)
{
    const nb_cuda *cu = t->b->card->api;
    for (int i = 0; i < PARTS; i++)
        nb_card_free(t->b->card, t->at[i], t->room[i]);
    nb_card_free(t->b->card, t->workspace, t->workspace_room);
    if (t->from) cu->EventDestroy(t->from);
    if (t->to) cu->EventDestroy(t->to);
}

static int try_all(nb_blaslt_call *b, const nb_blaslt_choice *list, int n)
{
    trial t = {.b = b};
    nb_card_time_open(b->card);
    int best = nb_card_enter(b->card) ? fastest(&t, list, n) : 0;
    nb_card_time_close(b->card);
    free_trial(&t);
    return best;
}

/* Keeping */

static void write_part(nb_text *t, const nb_gemm *g, const nb_gemm_part *p)
{
    nb_text_add(t, "%d %lld %lld %d:", p->dtype, (long long)p->row,
                (long long)p->column, alignment(g, p));
    if (g->nouter) nb_text_add(t, "%lld ", (long long)p->step[g->nouter - 1]);
}

static void write_beside(nb_text *t, const nb_gemm_beside *v)
{
    nb_text_add(t, "%d ", v->buffer < 0 ? -1 : (int)v->dtype);
}

/* False if there is no memory to find it. */
static bool key_of(const nb_blaslt_call *b, nb_disk_key *key)
{
    const nb_gemm *g = &b->g;
    const char *tf32 = getenv("NABLA_TF32");
    nb_text t = {0};
    *key = (nb_disk_key){{0x9c0b5fd3a47e2186u, 0x27e84ac1f3d05b69u}};
    nb_text_add(&t, "%s %d.%d %d %zu %s: %lld %lld %lld %lld ", b->card->name,
                b->card->major, b->card->minor, b->card->processors,
                b->api->GetVersion(), tf32 ? tf32 : "", (long long)g->m,
                (long long)g->n, (long long)g->k,
                g->nouter ? (long long)g->outer[g->nouter - 1] : 1);
    write_part(&t, g, &g->a), write_part(&t, g, &g->b);
    write_part(&t, g, &g->c);
    write_beside(&t, &g->add), write_beside(&t, &g->bias);
    write_beside(&t, &g->kept);
    bool ok = nb_text_add(&t, "%d", g->end);
    const char *text = nb_text_get(&t);
    for (int i = 0; i < 2; i++)
        key->part[i] = nb_hash(key->part[i], text, strlen(text));
    nb_text_free(&t);
    return ok;
}

/* Choices of this process by their keys; another may take the place of one. */
static struct {
    pthread_mutex_t lock;
    struct {
        nb_disk_key key;
        nb_blaslt_choice choice;
    } at[KNOWN];
} known = {.lock = PTHREAD_MUTEX_INITIALIZER};

static bool remember(nb_disk_key key, nb_blaslt_choice *c)
{
    size_t i = key.part[0] % KNOWN;
    pthread_mutex_lock(&known.lock);
    bool there = !memcmp(&known.at[i].key, &key, sizeof key);
    if (there) *c = known.at[i].choice;
    pthread_mutex_unlock(&known.lock);
    return there;
}

static void note(nb_disk_key key, const nb_blaslt_choice *c)
{
    size_t i = key.part[0] % KNOWN;
    pthread_mutex_lock(&known.lock);
    known.at[i].key = key;
    known.at[i].choice = *c;
    pthread_mutex_unlock(&known.lock);
}

static bool recall(nb_disk_key key, nb_blaslt_choice *c)
{
    nb_object o = {0};
    if (remember(key, c)) return true;
    bool there = nb_disk_read(key, &o) && o.data && o.n == sizeof *c;
    if (there) memcpy(c, o.data, sizeof *c);
    nb_object_free(&o);
    there = there && c->workspace <= NB_BLASLT_WORKSPACE;
    if (there) note(key, c);
    return there;
}

static bool is_tuned(const nb_gemm *g)
{
    const char *tune = getenv("NABLA_TUNE");
    if (tune && !strcmp(tune, "all")) return true;
    return nb_gemm_flops(g) >= worth_trying && (!tune || strcmp(tune, "0"));
}

bool nb_blaslt_choose(nb_blaslt_call *b)
{
    nb_blaslt_choice found[TRIED] = {0};
    int n = 0, best = 0;
    bool tuned = is_tuned(&b->g);
    nb_disk_key key;
    if (tuned && !key_of(b, &key)) return false;
    if (tuned && recall(key, &b->choice)) return true;
    if (!list(b, found, tuned ? TRIED : 1, &n)) return false;
    if (!n) return nb_fail(NB_ERUNTIME, "cuBLASLt: no algorithm fits");
    if (n > 1) best = try_all(b, found, n);
    b->choice = found[best];
    if (tuned) note(key, &b->choice);
    if (tuned)
        nb_disk_write(key, &(nb_object){&b->choice, sizeof b->choice, 0});
    return true;
}
