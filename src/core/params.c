/* params.c - reading the declaration of an op's arguments, and packing values
 * for them into words. */
#include "core/apply.h"

#include <ctype.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static const char *const kinds[] = {"tensor", "tensors", "int",  "bool",
                                    "float",  "axis",    "axes", "newaxis",
                                    "dtype",  "text",    "ints"};

static const char *word(const char *s, size_t *n)
{
    while (*s == ' ')
        s++;
    *n = 0;
    while (isalnum((unsigned char)s[*n]) || s[*n] == '_')
        ++*n;
    return s;
}

static const char *read_kind(const char *s, nb_param *p)
{
    size_t n;
    if (*s != ':') return s;
    s = word(s + 1, &n);
    for (int k = 0; k < (int)(sizeof kinds / sizeof kinds[0]); k++)
        if (strlen(kinds[k]) == n && !strncmp(kinds[k], s, n)) {
            p->kind = (nb_param_kind)k;
            p->nullable = s[n] == '?';
            return s + n + p->nullable;
        }
    return NULL;
}

static int64_t bits_of(double f)
{
    int64_t bits;
    memcpy(&bits, &f, sizeof bits);
    return bits;
}

static bool is_list(nb_param_kind k)
{
    return k == NB_P_AXES || k == NB_P_INTS;
}

/* One default: None, True, False, a number, "text", a dtype's name, (1, 1). */
static const char *read_default(const char *s, nb_param *p)
{
    size_t n;
    int64_t *to = p->value;
    const char *w = word(s, &n);
    p->has_default = true;
    p->ndefault = 1;
    if (!strncmp(w, "None", 4) || !strncmp(w, "True", 4) ||
        !strncmp(w, "False", 5)) {
        to[0] = *w == 'N' ? NB_NONE : *w == 'T';
        p->nullable = p->nullable || *w == 'N';
        return w + n;
    }
    if (p->kind == NB_P_TEXT) {
        const char *end = strchr(w + 1, '"');
        to[0] = (int64_t)(intptr_t)nb_intern(w + 1, (size_t)(end - w - 1));
        return end + 1;
    }
    if (p->kind == NB_P_DTYPE) {
        to[0] = nb_dtype_find(nb_intern(w, n));
        return w + n;
    }
    if (p->kind == NB_P_FLOAT) {
        to[0] = bits_of(strtod(w, (char **)&w));
        return w;
    }
    if (is_list(p->kind) && *w == '(') {
        to[0] = 0;
        if (w[1] == ')') return w + 2;
        for (; *w != ')'; p->ndefault++) {
            to[++to[0]] = strtoll(w + 1, (char **)&w, 10);
            if (p->ndefault == 7) return NULL;
        }
        return w + 1;
    }
    to[0] = strtoll(w, (char **)&w, 10);
    if (is_list(p->kind)) {
        to[1] = to[0];
        to[0] = 1;
        p->ndefault = 2;
    }
    return w;
}

bool nb_params_parse(nb_params *p, const char *who, const char *text)
{
    bool keyword_only = false;
    *p = (nb_params){0};
    for (const char *s = text; s && *s;) {
        size_t n;
        s = word(s, &n);
        if (*s == '*') {
            keyword_only = true;
            s++;
        } else {
            if (p->n == NB_MAX_PARAMS || n == 0) goto wrong;
            nb_param *q = &p->param[p->n++];
            q->keyword_only = keyword_only;
            if (!(q->name = nb_intern(s, n))) return false;
            if (!(s = read_kind(s + n, q))) goto wrong;
            while (*s == ' ')
                s++;
            if (*s == '=' && !(s = read_default(s + 1, q))) goto wrong;
            bool tensor = q->kind == NB_P_TENSOR || q->kind == NB_P_TENSORS;
            p->list = p->list || q->kind == NB_P_TENSORS;
            p->ntensors += tensor;
            p->nrequired += tensor && !q->has_default;
        }
        while (*s == ' ')
            s++;
        if (*s == ',') s++;
    }
    return true;
wrong:
    return nb_fail(NB_EVALUE, "%s: cannot read its parameters \"%s\"", who,
                   text);
}

/* Arguments that need no declaration: as many tensors as the signature has. */
static const char *named(const nb_sig *sig)
{
    static const char *const names[] = {"", "x", "x, y", "x, y, z"};
    return sig && sig->nin <= 3 ? names[sig->nin] : "";
}

/* Ops are prepared at first use, by one thread. */
bool nb_op_ready(nb_op *op)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    if (atomic_load_explicit(&op->ready, memory_order_acquire)) return true;
    pthread_mutex_lock(&lock);
    bool ok = true;
    if (!op->ready) {
        nb_params *p = nb_alloc_forever(sizeof *p);
        ok = p && (!op->sig || (op->static_sig = nb_sig_parse(op->sig)));
        if (ok && !op->params) op->params = named(op->static_sig);
        ok = ok && nb_params_parse(p, op->name, op->params);
        if (ok) op->parsed = p;
        if (ok) atomic_store_explicit(&op->ready, true, memory_order_release);
    }
    pthread_mutex_unlock(&lock);
    return ok;
}

static const char *expected(nb_param_kind k)
{
    switch (k) {
    case NB_P_AXES:
    case NB_P_INTS: return "a list of integers";
    case NB_P_TEXT: return "a text";
    case NB_P_FLOAT: return "a number";
    case NB_P_DTYPE: return "a dtype";
    default: return "an integer";
    }
}

static bool pack_one(const nb_op *op, const nb_param *p, const nb_value *v,
                     words *w)
{
    bool list = is_list(p->kind);
    bool fits = v->kind == NB_VALUE_INT ||
                (v->kind == NB_VALUE_FLOAT && p->kind == NB_P_FLOAT) ||
                (v->kind == NB_VALUE_LIST && list) ||
                (v->kind == NB_VALUE_TEXT && p->kind == NB_P_TEXT) ||
                (v->kind == NB_VALUE_NONE && p->nullable);
    int n = v->kind == NB_VALUE_LIST ? v->n : 1;
    if (!fits || (p->kind == NB_P_TEXT && v->kind == NB_VALUE_INT))
        return nb_fail(NB_ETYPE, "%s: %s must be %s", op->name, p->name,
                       expected(p->kind));
    if (w->n + n + 1 > NB_MAX_WORDS)
        return nb_fail(NB_EVALUE, "%s: %s has too many values (%d)", op->name,
                       p->name, n);
    if (v->kind == NB_VALUE_NONE) {
        w->at[w->n++] = NB_NONE;
        return true;
    }
    if (p->kind == NB_P_TEXT) {
        const char *text = nb_intern(v->text, strlen(v->text));
        w->at[w->n++] = (int64_t)(intptr_t)text;
        return text;
    }
    if (p->kind == NB_P_FLOAT) {
        w->at[w->n++] = bits_of(v->kind == NB_VALUE_INT ? (double)v->i : v->f);
        return true;
    }
    if (list) w->at[w->n++] = n;
    for (int k = 0; k < n; k++)
        w->at[w->n++] = v->kind == NB_VALUE_LIST ? v->list[k] : v->i;
    return true;
}

bool nb_pack(const nb_op *op, int nval, const nb_value *val, words *w)
{
    const nb_params *ps = op->parsed;
    int k = 0;
    w->n = 0;
    for (int i = 0; i < ps->n; i++) {
        const nb_param *p = &ps->param[i];
        if (p->kind == NB_P_TENSOR || p->kind == NB_P_TENSORS) continue;
        const nb_value *v = k < nval ? &val[k] : NULL;
        k++;
        if (v && v->kind != NB_VALUE_DEFAULT) {
            if (!pack_one(op, p, v, w)) return false;
            continue;
        }
        if (!p->has_default)
            return nb_fail(NB_ETYPE, "%s: %s is missing", op->name, p->name);
        memcpy(w->at + w->n, p->value, (size_t)p->ndefault * sizeof *w->at);
        w->n += p->ndefault;
    }
    return true;
}

const int64_t *nb_arg_find(const nb_call *c, int k, const nb_param **param)
{
    const nb_params *ps = c->op->parsed;
    const int64_t *at = c->attr;
    for (int i = 0; i < ps->n; i++) {
        const nb_param *p = &ps->param[i];
        if (p->kind == NB_P_TENSOR || p->kind == NB_P_TENSORS) continue;
        *param = p;
        if (k-- == 0) return at;
        at += is_list(p->kind) && *at != NB_NONE ? *at + 1 : 1;
    }
    return NULL;
}

int64_t nb_arg_int(const nb_call *c, int k)
{
    const nb_param *p;
    return *nb_arg_find(c, k, &p);
}

double nb_arg_float(const nb_call *c, int k)
{
    const nb_param *p;
    double f;
    memcpy(&f, nb_arg_find(c, k, &p), sizeof f);
    return f;
}

const char *nb_arg_text(const nb_call *c, int k)
{
    int64_t at = nb_arg_int(c, k);
    return at == NB_NONE ? NULL : (const char *)(intptr_t)at;
}

const int64_t *nb_arg_list(const nb_call *c, int k, int *n)
{
    const nb_param *p;
    const int64_t *at = nb_arg_find(c, k, &p);
    *n = *at == NB_NONE ? -1 : (int)*at;
    return at + 1;
}

int64_t *nb_arg_words(nb_call *c, int k)
{
    const nb_param *p;
    return (int64_t *)nb_arg_find(c, k, &p);
}

static bool settle_axis(const nb_op *op, int64_t *axis, int rank)
{
    if (*axis == NB_NONE) return true;
    if (*axis < -rank || *axis >= rank)
        return nb_fail(NB_EAXIS, "%s: axis %lld is out of range for rank %d",
                       op->name, (long long)*axis, rank);
    if (*axis < 0) *axis += rank;
    return true;
}

/* Axes are stored counted from the front of the visible axes of input 0. */
bool nb_settle_axes(nb_call *c)
{
    const nb_params *ps = c->op->parsed;
    int64_t *at = c->attr;
    int rank = c->nin ? c->in[0]->rank : 0;
    for (int i = 0; i < ps->n; i++) {
        const nb_param *p = &ps->param[i];
        if (p->kind == NB_P_TENSOR || p->kind == NB_P_TENSORS) continue;
        if (p->kind == NB_P_AXIS && !settle_axis(c->op, at, rank)) return false;
        if (p->kind == NB_P_NEWAXIS && !settle_axis(c->op, at, rank + 1))
            return false;
        int n = is_list(p->kind) && *at != NB_NONE ? (int)*at : 0;
        for (int k = 1; k <= n && p->kind == NB_P_AXES; k++) {
            if (!settle_axis(c->op, at + k, rank)) return false;
            for (int j = 1; j < k; j++)
                if (at[j] == at[k])
                    return nb_fail(NB_EVALUE, "%s: axis %lld is given twice",
                                   c->op->name, (long long)at[k]);
        }
        at += n + 1;
    }
    return true;
}

void nb_arg_value(nb_text *t, const nb_param *p, const int64_t *at)
{
    double f;
    if (*at == NB_NONE) {
        nb_text_add(t, "None");
    } else if (p->kind == NB_P_AXES && *at == 1) {
        nb_text_add(t, "%lld", (long long)at[1]);
    } else if (is_list(p->kind)) {
        nb_text_add(t, "(");
        for (int k = 1; k <= *at; k++)
            nb_text_add(t, "%s%lld", k > 1 ? ", " : "", (long long)at[k]);
        nb_text_add(t, *at == 1 ? ",)" : ")");
    } else if (p->kind == NB_P_FLOAT) {
        memcpy(&f, at, sizeof f);
        nb_text_add(t, "%.17g", f);
    } else if (p->kind == NB_P_BOOL) {
        nb_text_add(t, *at ? "True" : "False");
    } else if (p->kind == NB_P_DTYPE) {
        nb_text_add(t, "@%s", nb_dtype_name((nb_dtype)*at));
    } else if (p->kind == NB_P_TEXT) {
        nb_text_add(t, "\"%s\"", (const char *)(intptr_t)*at);
    } else
        nb_text_add(t, "%lld", (long long)*at);
}

bool nb_arg_print(const nb_call *c, int k, nb_text *t)
{
    const nb_param *p = NULL;
    if (!c->op || !c->op->parsed) return false;
    const int64_t *at = nb_arg_find(c, k, &p);
    if (!at) return false;
    nb_text_add(t, "%s=", p->name);
    nb_arg_value(t, p, at);
    return true;
}
