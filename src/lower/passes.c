/* passes.c - the list, and what the environment says about it. */
#include "lower/passes.h"

#include "core/debug.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const nb_pass nb_passes[] = {
    {"inline", nb_pass_inline,
     "programs that run once stand in the place of their call"},
    {"canonicalise", nb_pass_canonicalise,
     "looks at everything as it is, and copies to the same dtype, are gone"},
    {"fold", nb_pass_fold, "what is known is computed, if it is small"},
    {"simplify", nb_pass_simplify, "algebra, by the facts of facts.def"},
    {"pick", nb_pass_pick,
     "few elements are picked before they are computed with, not after"},
    {"cse", nb_pass_cse, "equal calls become one"},
    {"again", nb_pass_again,
     "what held recomputation apart from the first time is gone"},
    {"dead", nb_pass_dead, "lines that no result needs are gone"},
    {"attention", nb_pass_attention,
     "on a card, scores of attention are never stored"},
    {"recompute", nb_pass_recompute,
     "what products make large is made again where it is needed late"},
    {"cheap", nb_pass_cheap,
     "what is cheap is computed again rather than stored"},
    {"fuse", NULL, "calls become loop programs that share their points"},
    {"schedule", NULL, "what frees memory runs as soon as it can"},
    {"ends", NULL, "products on a card take in what follows them"},
    {"share", NULL,
     "on a card, sums over the same memory are one loop program"},
    {"chain", NULL, "what passes between steps stays in tiles of rows"},
    {"batch", NULL,
     "on a card, steps alike that need not wait for each other are neighbours"},
    {"memory", NULL, "blocks whose time is over make room for others"},
    {"solo", NULL, "on a card, small loops are one launch"},
    {"code", NULL, "loop programs become machine code"},
    {0},
};

const nb_pass *nb_pass_find(const char *name)
{
    for (const nb_pass *p = nb_passes; p->name; p++)
        if (!strcmp(p->name, name)) return p;
    return NULL;
}

/* The next of the names between commas, cut to what a pass may be called. */
static bool next_name(const char **list, char *name, size_t room)
{
    size_t n = strcspn(*list, ",");
    if (!**list) return false;
    snprintf(name, room, "%.*s", (int)n, *list);
    *list += n + ((*list)[n] == ',');
    return true;
}

static bool names(const char *variable, const char *wanted)
{
    const char *list = getenv(variable);
    char name[32];
    while (list && next_name(&list, name, sizeof name))
        if (!strcmp(name, wanted)) return true;
    return false;
}

static bool check(const char *variable, const char *also)
{
    const char *list = getenv(variable);
    char name[32];
    while (list && next_name(&list, name, sizeof name)) {
        nb_text known = {0};
        if (!*name || !strcmp(name, also) || nb_pass_find(name)) continue;
        for (const nb_pass *p = nb_passes; p->name; p++)
            nb_text_add(&known, "%s%s", p == nb_passes ? "" : ", ", p->name);
        nb_fail(NB_EVALUE, "%s: no pass is called %s: %s", variable, name,
                nb_text_get(&known));
        nb_text_free(&known);
        return false;
    }
    return true;
}

bool nb_pass_is_on(const char *name)
{
    return !names("NABLA_DISABLE", name);
}

bool nb_pass_is_dumped(const char *name)
{
    return names("NABLA_DUMP", name) || names("NABLA_DUMP", "all");
}

void nb_pass_dump(const char *name, const char *text)
{
    fprintf(stderr, "# after %s\n%s", name, text ? text : "");
}

static bool run(const nb_pass *p, nb_graph *g)
{
    if (nb_pass_is_on(p->name) && !p->run(g)) return false;
    if (!nb_pass_is_dumped(p->name)) return true;
    char *text = nb_graph_text(g);
    if (text) nb_pass_dump(p->name, text);
    nb_free(text);
    return text;
}

/* What is made again is for chains, which plans for any size do not have; and
 * masks are looked at as they are at one size. */
static bool lower(nb_graph *g, const char *name, bool any_size)
{
    if (!check("NABLA_DISABLE", "") || !check("NABLA_DUMP", "all"))
        return false;
    unsigned watched = nb_debug_flags; /* those who run it watch */
    bool ok = true;
    nb_debug_flags = 0;
    for (const nb_pass *p = nb_passes; ok && p->name; p++) {
        bool left_out = any_size && (p->run == nb_pass_recompute ||
                                     p->run == nb_pass_attention);
        ok = !p->run || left_out || run(p, g);
        if (name && !strcmp(p->name, name)) break;
    }
    nb_debug_flags = watched;
    return ok;
}

bool nb_lower_until(nb_graph *g, const char *name)
{
    return lower(g, name, false);
}

bool nb_lower_graph(nb_graph *g)
{
    return lower(g, NULL, false);
}

bool nb_lower_any_size(nb_graph *g)
{
    return lower(g, NULL, true);
}
