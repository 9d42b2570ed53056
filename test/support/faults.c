/* faults.c - attempts that find no memory. */
#include "support/faults.h"

#include "base/memory.h"
#include "support/check.h"
#include "support/there.h"

#include <stdio.h>

/* Far beyond what any attempt needs: one that goes on fails for another
 * reason. */
enum { MOST = 200000 };

static bool wrong(const faults *f, const char *what, int64_t number)
{
    fprintf(stderr, "  allocation %lld: %s %lld. %s\n", (long long)f->n, what,
            (long long)number, nb_error_message());
    nb_error_clear();
    return false;
}

/* The code that the attempt may end with. */
static bool is_told(const faults *f, bool ok, bool struck)
{
    nb_status code = nb_error_code();
    if (!ok && !struck) return wrong(f, "it fails with memory, code", code);
    if (code != (ok ? NB_OK : NB_EMEMORY))
        return wrong(f, ok ? "an error beside what went well, code" : "code",
                     code);
    nb_error_clear();
    return true;
}

static bool is_undone(faults *f)
{
    int64_t more = f->keeps ? 0 : memory_left() - f->live;
    f->live += more; /* said once */
    if (more) return wrong(f, "what is left is more by", more);
    return all_closed() || wrong(f, "open, as of attempt", f->n);
}

/* The n-th allocation fails, or none if that is 0. */
static bool attempt(faults *f)
{
    nb_fault_set(f->n);
    bool opened = !f->bare && nb_scope_open() == NB_OK;
    bool runs = opened || f->bare, ok = runs && f->run(f->ctx);
    bool struck = f->n && !nb_fault_is_set();
    nb_fault_set(0);
    f->failed += !ok;
    f->done = !struck;
    bool told = is_told(f, ok, struck);
    bool held = !runs || !f->holds || f->holds(f->ctx) ||
                wrong(f, "not all holds, code", nb_error_code());
    if (opened) nb_scope_close(0, NULL);
    return told && held;
}

bool fault_survived(faults *f)
{
    if (!f->n && !f->keeps) f->live = memory_left();
    f->n = there_next(f->n + (f->sparse ? f->n / f->sparse : 0));
    bool ok = attempt(f);
    return is_undone(f) && ok;
}

bool faults_survived(faults *f)
{
    bool ok = f->fresh || attempt(f);
    for (f->done = false; ok && !f->done && f->n < MOST;)
        ok = fault_survived(f);
    return ok && (f->done || wrong(f, "and no end, attempts", f->failed));
}
