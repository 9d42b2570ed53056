/* ptx.c - assembly in a kernel: each instruction becomes a call of a function
 * in shim_ptx.h named after it, with its operands in order.  One that is not
 * there is an error of the compiler that names it. */
#include "text.h"
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

enum { OPERANDS = 64 };

typedef struct assembly {
    sim_text code; /* the template, unescaped */
    const char *operand[OPERANDS];
    size_t length[OPERANDS];
    int count;
} assembly;

/* Strings that follow each other; where they end. */
static const char *strings(assembly *a, const char *p)
{
    for (;;) {
        while (isspace((unsigned char)*p))
            p++;
        if (*p != '"') return p;
        for (p++; *p && *p != '"'; p++) {
            bool escaped = *p == '\\' && p[1];
            if (escaped) p++;
            sim_text_part(&a->code, escaped ? " " : p, 1);
        }
        p += *p == '"';
    }
}

/* "constraint"(expression), ... from one colon to the next or the end. */
static const char *operands(assembly *a, const char *p, const char *stop)
{
    while (p < stop && *p != ':') {
        if (*p == '"') p += 1 + strcspn(p + 1, "\"");
        if (*p == '(' && a->count < OPERANDS) {
            const char *end = sim_past(p);
            a->operand[a->count] = p;
            a->length[a->count++] = (size_t)(end - p);
            p = end - 1;
        }
        p++;
    }
    return p;
}

static bool name_char(char c)
{
    return isalnum((unsigned char)c) || c == '_' || c == '.' || c == ':';
}

static void operand_text(sim_text *to, const assembly *a, const char *p,
                         const char *stop)
{
    while (p < stop) {
        char *end = NULL;
        bool number = *p == '%' && isdigit((unsigned char)p[1]);
        long i = number ? strtol(p + 1, &end, 10) : 0;
        if (number && i < a->count)
            sim_text_part(to, a->operand[i], a->length[i]);
        else if (*p == '%' && p[1] == '%')
            sim_text_add(to, "sim_special_");
        else if (*p == '[')
            sim_text_add(to, "(sim_address");
        else if (*p == ']')
            sim_text_add(to, ")");
        else if (!strchr("{}", *p))
            sim_text_part(to, p, 1);
        p = number ? end : p + 1 + (*p == '%' && p[1] == '%');
    }
}

static void instruction(sim_text *to, const assembly *a, const char *p,
                        const char *stop)
{
    sim_text_add(to, "sim_ptx_");
    for (; p < stop && name_char(*p); p++)
        sim_text_part(to, isalnum((unsigned char)*p) ? p : "_", 1);
    sim_text_add(to, "(");
    operand_text(to, a, p, stop);
    sim_text_add(to, ")");
}

static void instructions(sim_text *to, const assembly *a)
{
    const char *p = a->code.chars ? a->code.chars : "";
    bool first = true;
    sim_text_add(to, "(");
    while (*p) {
        const char *stop = p + strcspn(p, ";");
        while (p < stop && (isspace((unsigned char)*p) || strchr("{}", *p)))
            p++;
        if (p < stop && !first) sim_text_add(to, ", ");
        if (p < stop) {
            instruction(to, a, p, stop);
            first = false;
        }
        p = stop + (*stop == ';');
    }
    sim_text_add(to, first ? "(void)0)" : ")");
}

const char *sim_ptx(sim_text *to, const char *p)
{
    const char *end, *word = sim_word(p, &end);
    assembly a = {0};
    while (sim_word_is(word, end, "volatile") ||
           sim_word_is(word, end, "__volatile__"))
        word = sim_word(end, &end);
    if (*word != '(') return NULL;
    const char *stop = sim_past(word);
    const char *at = strings(&a, word + 1);
    for (int part = 0; part < 2 && *at == ':'; part++)
        at = operands(&a, at + 1, stop - 1);
    instructions(to, &a);
    for (const char *c = p; c < stop; c++)
        if (*c == '\n') sim_text_part(to, "\n", 1);
    to->failed |= a.code.failed;
    sim_text_free(&a.code);
    return stop;
}
