/* text.c - a scan of CUDA C by words: comments and strings are stepped over,
 * nothing is parsed that need not be. */
#include "text.h"
#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_THREADS = 1024 };

void sim_text_part(sim_text *t, const char *from, size_t n)
{
    if (t->failed) return;
    if (t->count + n + 1 > t->room) {
        size_t room = 2 * (t->count + n + 512);
        char *chars = realloc(t->chars, room);
        t->failed = !chars;
        if (t->failed) return;
        t->chars = chars, t->room = room;
    }
    memcpy(t->chars + t->count, from, n);
    t->count += n;
    t->chars[t->count] = 0;
}

void sim_text_add(sim_text *t, const char *format, ...)
{
    char line[4096];
    va_list args;
    va_start(args, format);
    int n = vsnprintf(line, sizeof line, format, args);
    va_end(args);
    t->failed |= n < 0 || n >= (int)sizeof line;
    if (!t->failed) sim_text_part(t, line, (size_t)n);
}

void sim_text_free(sim_text *t)
{
    free(t->chars);
    *t = (sim_text){0};
}

static bool word_char(char c)
{
    return isalnum((unsigned char)c) || c == '_';
}

/* Past a comment or a string that begins here. */
static const char *skip(const char *p)
{
    if (p[0] == '/' && p[1] == '/') return p + strcspn(p, "\n");
    if (p[0] == '/' && p[1] == '*') {
        const char *end = strstr(p + 2, "*/");
        return end ? end + 2 : p + strlen(p);
    }
    if (*p != '"') return p;
    for (p++; *p && *p != '"'; p++)
        if (*p == '\\' && p[1]) p++;
    return *p ? p + 1 : p;
}

const char *sim_word(const char *p, const char **end)
{
    for (;;) {
        while (isspace((unsigned char)*p))
            p++;
        const char *past = skip(p);
        if (past == p) break;
        p = past;
    }
    const char *e = p;
    while (word_char(*e))
        e++;
    *end = e == p && *p ? p + 1 : e;
    return p;
}

bool sim_word_is(const char *p, const char *end, const char *word)
{
    size_t n = strlen(word);
    return (size_t)(end - p) == n && !memcmp(p, word, n);
}

const char *sim_past(const char *p)
{
    int deep = 0;
    const char *end;
    for (p = sim_word(p, &end); *p; p = sim_word(end, &end)) {
        deep += *p == '(';
        deep -= *p == ')';
        if (!deep) return end;
    }
    return p;
}

static bool takes_brackets(const char *p, const char *end)
{
    return sim_word_is(p, end, "__launch_bounds__") ||
           sim_word_is(p, end, "__attribute__") ||
           sim_word_is(p, end, "__cluster_dims__") ||
           sim_word_is(p, end, "__maxnreg__");
}

/* After __global__: the name, unless only declared. */
static const char *kernel(const char *p, sim_found *found)
{
    const char *end, *name = NULL, *name_end = NULL;
    found->threads = MOST_THREADS;
    for (p = sim_word(p, &end); *p && *p != ';' && *p != '{';
         p = sim_word(p, &end)) {
        bool brackets = takes_brackets(p, end);
        if (brackets && sim_word_is(p, end, "__launch_bounds__")) {
            int n = atoi(end + strspn(end, " ("));
            if (n > 0) found->threads = n;
        }
        if (!brackets && *p == '(') break;
        if (!brackets) name = p, name_end = end;
        p = brackets ? sim_past(end) : end;
    }
    found->name[0] = 0;
    if (*p != '(' || !name) return p;
    p = sim_past(p);
    const char *after = sim_word(p, &end);
    if (*after == '{')
        snprintf(found->name, sizeof found->name, "%.*s",
                 (int)(name_end - name), name);
    return p;
}

int sim_text_kernels(const char *text, sim_found *list, int room)
{
    int count = 0;
    bool template = false;
    const char *end;
    for (const char *p = sim_word(text, &end); *p; p = sim_word(end, &end)) {
        if (sim_word_is(p, end, "template")) template = true;
        if (*p == ';' || *p == '}') template = false;
        if (!sim_word_is(p, end, "__global__")) continue;
        sim_found found;
        end = kernel(end, &found);
        if (found.name[0] && !template && count < room) list[count++] = found;
        template = false;
    }
    return count;
}

static bool meets_in_assembly(const char *text)
{
    return strstr(text, "bar.sync") || strstr(text, "barrier.sync") ||
           strstr(text, "bar.warp") || strstr(text, "mma.sync") ||
           strstr(text, "ldmatrix");
}

bool sim_text_meets(const char *text)
{
    static const char *const words[] = {
        "__syncthreads",       "__syncthreads_count", "__syncthreads_or",
        "__syncthreads_and",   "__syncwarp",          "__shfl_sync",
        "__shfl_up_sync",      "__shfl_down_sync",    "__shfl_xor_sync",
        "__ballot_sync",       "__any_sync",          "__all_sync",
        "__match_any_sync",    "__reduce_add_sync",   "__reduce_min_sync",
        "__reduce_max_sync",   "__reduce_and_sync",   "__reduce_or_sync",
        "__reduce_xor_sync",   "__nanosleep",         "__threadfence",
        "__threadfence_block", "__threadfence_system"};
    const char *end;
    for (const char *p = sim_word(text, &end); *p; p = sim_word(end, &end))
        for (size_t i = 0; i < sizeof words / sizeof *words; i++)
            if (sim_word_is(p, end, words[i])) return true;
    return meets_in_assembly(text);
}

/* From behind `extern`: the declaration of dynamic memory, or NULL. */
static const char *dynamic(sim_text *to, const char *p)
{
    const char *end, *word = sim_word(p, &end);
    if (!sim_word_is(word, end, "__shared__")) return NULL;
    const char *stop = end + strcspn(end, ";");
    sim_text_add(to, "extern ");
    sim_text_part(to, end, (size_t)(stop - end));
    sim_text_add(to, " __asm__(\"sim_dynamic\")");
    return stop;
}

void sim_text_bind(sim_text *to, const char *text)
{
    const char *end, *from = text;
    for (const char *p = sim_word(text, &end); *p; p = sim_word(end, &end)) {
        bool assembly =
            sim_word_is(p, end, "asm") || sim_word_is(p, end, "__asm__");
        if (!assembly && !sim_word_is(p, end, "extern")) continue;
        sim_text_part(to, from, (size_t)(p - from));
        const char *done = assembly ? sim_ptx(to, end) : dynamic(to, end);
        from = done ? done : p;
        if (done) end = done;
    }
    sim_text_part(to, from, strlen(from));
}
