/* compiler.c - running the compiler, and opening what it makes.
 *
 * Either happens in a folder of its own that is removed again: a library is
 * open by then, and needs its name no more.  Names are never the same twice, so
 * that what is opened is never taken for what was opened before. */
#define _GNU_SOURCE
#include "run/compiler.h"

#include "run/kernel_files.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

const char nb_compiler_flags[] = "-O3 -march=native -shared -fPIC";

/* A folder, and the names of files in it. */
typedef struct place {
    char folder[PATH_MAX - 16], log[PATH_MAX], library[PATH_MAX];
} place;

static bool place_make(place *p, const char *who)
{
    const char *tmp = getenv("TMPDIR");
    int n = snprintf(p->folder, sizeof p->folder, "%s/nabla-XXXXXX",
                     tmp && *tmp ? tmp : "/tmp");
    if (n >= (int)sizeof p->folder || !mkdtemp(p->folder))
        return nb_fail(NB_ERUNTIME, "%s: cannot make %s: %s", who, p->folder,
                       strerror(errno));
    snprintf(p->log, sizeof p->log, "%s/log", p->folder);
    snprintf(p->library, sizeof p->library, "%s/kernel.so", p->folder);
    return true;
}

static void place_remove(const place *p)
{
    unlink(p->log);
    unlink(p->library);
    rmdir(p->folder);
}

/* Words of a command, and the text they lie in. */
typedef struct command {
    char *text, **word;
    int n, room;
} command;

static bool add(command *c, const char *word)
{
    if (!nb_grow(&c->word, &c->room, c->n + 2, sizeof *c->word)) return false;
    c->word[c->n++] = (char *)word;
    c->word[c->n] = NULL;
    return true;
}

static bool add_words(command *c, char *text)
{
    char *rest = NULL;
    for (char *w = strtok_r(text, " \t", &rest); w;
         w = strtok_r(NULL, " \t", &rest))
        if (!add(c, w)) return false;
    return true;
}

static const char *name_of_compiler(void)
{
    const char *cc = getenv("CC");
    return cc && cc[strspn(cc, " \t")] ? cc : "cc";
}

static bool begin(command *c)
{
    *c = (command){.text = nb_copy_text(name_of_compiler())};
    return c->text && add_words(c, c->text);
}

static void end(command *c)
{
    nb_free(c->text);
    nb_free(c->word);
}

/* Waits; a program that ignores its children has nobody to ask, and the file
 * that should be there tells. */
static bool went_well(pid_t child)
{
    int status = 0;
    pid_t got;
    do
        got = waitpid(child, &status, 0);
    while (got < 0 && errno == EINTR);
    return got < 0 ? errno == ECHILD
                   : WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

/* Runs it with what it says in the log; *ok: whether it succeeded. */
static bool run(const command *c, const place *p, const char *who, bool *ok)
{
    posix_spawn_file_actions_t files;
    pid_t child;
    if (posix_spawn_file_actions_init(&files) != 0)
        return nb_fail_memory(sizeof files, "a command");
    int flags = O_WRONLY | O_CREAT | O_TRUNC;
    int bad =
        posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0) ||
        posix_spawn_file_actions_addopen(&files, 1, p->log, flags, 0600) ||
        posix_spawn_file_actions_adddup2(&files, 1, 2);
    if (!bad)
        bad = posix_spawnp(&child, c->word[0], &files, NULL, c->word, environ);
    posix_spawn_file_actions_destroy(&files);
    if (bad)
        return nb_fail(NB_ERUNTIME,
                       "%s: cannot run the C compiler %s: %s (CC says which)",
                       who, c->word[0], strerror(bad));
    *ok = went_well(child);
    return true;
}

static bool read_log(const place *p, const char *who, nb_text *to)
{
    return nb_file_text(p->log, who, to);
}

static const char *ask_version(const char *who)
{
    command c;
    place p;
    nb_text said = {0};
    const char *version = NULL;
    bool ok = false, well = false;
    if (place_make(&p, who)) {
        ok = begin(&c) && add(&c, "--version") && run(&c, &p, who, &well) &&
             read_log(&p, who, &said);
        place_remove(&p);
        end(&c);
    }
    if (ok && !well)
        nb_fail(NB_ERUNTIME, "%s: the C compiler %s does not work:\n%s", who,
                name_of_compiler(), nb_text_get(&said));
    else if (ok)
        version = nb_intern(nb_text_get(&said), (size_t)said.n);
    nb_text_free(&said);
    return version;
}

/* Asked once for every value of CC. */
const char *nb_compiler_version(const char *who)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static const char *of, *version;
    pthread_mutex_lock(&lock);
    const char *cc = nb_intern(name_of_compiler(), strlen(name_of_compiler()));
    if (cc && cc != of) {
        const char *now = ask_version(who);
        if (now) version = now;
        of = now ? cc : NULL;
    }
    const char *found = cc && cc == of ? version : NULL;
    pthread_mutex_unlock(&lock);
    return found;
}

static bool compile(const char *who, int n, char *const *path,
                    const char *headers, const place *p, nb_text *to)
{
    command c;
    char *flags = nb_copy_text(nb_compiler_flags);
    nb_text said = {0};
    bool well = false, ok = begin(&c) && flags && add_words(&c, flags) &&
                            add(&c, "-I") && add(&c, headers) &&
                            add(&c, "-o") && add(&c, p->library);
    for (int i = 0; ok && i < n; i++)
        ok = add(&c, path[i]);
    ok = ok && add(&c, "-lm") && run(&c, p, who, &well) &&
         read_log(p, who, &said);
    if (ok && (!well || access(p->library, R_OK) != 0))
        ok = nb_fail(NB_ERUNTIME, "%s: %s failed:\n%s", who, name_of_compiler(),
                     nb_text_get(&said));
    ok = ok && nb_file_text(p->library, who, to);
    nb_text_free(&said);
    nb_free(flags);
    end(&c);
    return ok;
}

bool nb_compiler_run(const char *who, int n, char *const *path,
                     const char *headers, nb_text *to)
{
    place p;
    if (!place_make(&p, who)) return false;
    bool ok = compile(who, n, path, headers, &p, to);
    place_remove(&p);
    return ok;
}

static bool write_file(const char *path, const void *bytes, size_t n)
{
    FILE *f = fopen(path, "wb");
    bool ok = f && fwrite(bytes, 1, n, f) == n;
    if (f) ok = fclose(f) == 0 && ok;
    return ok;
}

void *nb_library_open(const char *who, const void *bytes, size_t n)
{
    place p;
    void *lib = NULL;
    if (!place_make(&p, who)) return NULL;
    if (!write_file(p.library, bytes, n))
        nb_fail(NB_ERUNTIME, "%s: cannot write %s: %s", who, p.library,
                strerror(errno));
    else if (!(lib = dlopen(p.library, RTLD_NOW | RTLD_LOCAL))) {
        const char *why = dlerror();
        nb_fail(NB_ERUNTIME, "%s: cannot load the kernel: %s", who,
                why ? why : "");
    }
    place_remove(&p);
    return lib;
}
