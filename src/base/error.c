/* error.c - the pending error of each thread: code and first message; and
 * who hears of warnings. */
#include "base/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static _Thread_local struct {
    nb_status code;
    char message[4096], notes[512];
} pending;

static void *put(nb_status code, const char *format, va_list ap)
{
    if (pending.code) return NULL;
    pending.code = code;
    vsnprintf(pending.message, sizeof pending.message, format, ap);
    return NULL;
}

void *nb_fail(nb_status code, const char *format, ...)
{
    va_list ap;
    va_start(ap, format);
    put(code, format, ap);
    va_end(ap);
    return NULL;
}

void nb_error_note(const char *format, ...)
{
    size_t n = strlen(pending.notes);
    va_list ap;
    if (!pending.code) return;
    va_start(ap, format);
    vsnprintf(pending.notes + n, sizeof pending.notes - n, format, ap);
    va_end(ap);
}

static struct {
    nb_warning *f;
    void *ctx;
} warning;

void nb_warning_set(nb_warning *f, void *ctx)
{
    warning.f = f;
    warning.ctx = ctx;
}

bool nb_warn(const char *format, ...)
{
    char text[512];
    va_list ap;
    if (!warning.f) return true;
    va_start(ap, format);
    vsnprintf(text, sizeof text, format, ap);
    va_end(ap);
    return warning.f(warning.ctx, text) || nb_fail(NB_EVALUE, "%s", text);
}

void *nb_error_raise(nb_status code, const char *format, ...)
{
    va_list ap;
    va_start(ap, format);
    put(code ? code : NB_ERUNTIME, format, ap);
    va_end(ap);
    return NULL;
}

void *nb_fail_memory(size_t bytes, const char *what)
{
    return nb_fail(NB_EMEMORY, "out of memory: %zu bytes for %s", bytes, what);
}

bool nb_failed(void)
{
    return pending.code != NB_OK;
}

nb_status nb_status_of(bool ok)
{
    if (!ok && !pending.code) nb_fail(NB_EVALUE, "an argument is NULL");
    return ok ? NB_OK : pending.code;
}

nb_status nb_error_code(void)
{
    return pending.code;
}

const char *nb_error_message(void)
{
    return pending.code ? pending.message : "";
}

const char *nb_error_notes(void)
{
    return pending.code ? pending.notes : "";
}

void nb_error_clear(void)
{
    pending.code = NB_OK;
    pending.notes[0] = '\0';
    pending.message[0] = '\0';
}

const char *nb_version(void)
{
    return "0.1.0";
}
