/* elf.c - a small loader of ELF objects.
 *
 * The sections that a program needs go into one mapping of three parts, each
 * of whole pages: code, constants, variables.  Behind the code lies a stub for
 * each symbol, a jump through the symbol's slot, and behind the constants the
 * slots, which hold addresses: functions outside may be further away than the
 * 2 GiB a call reaches.  After relocating, code is made executable and, with
 * the constants, read-only.
 *
 * Nothing in the object is trusted.  An offset is compared to what is left of
 * its whole before it is used, structures are copied out since they may lie at
 * odd addresses, and sums of addresses are unsigned, for they may wrap. */
#define _GNU_SOURCE
#include "backend/cpu/elf.h"

#include "backend/cpu/externs.h"
#include "base/memory.h"

#include <elf.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { CODE, CONSTANTS, VARIABLES, PARTS };
enum { PAGE = 4096, STUB = 8, SLOT = 8 };
static const size_t LARGEST = (size_t)1 << 30;

#if defined(__x86_64__)
enum { MACHINE = EM_X86_64 };
#else
enum { MACHINE = EM_NONE }; /* no code is linked for others */
#endif

typedef struct section {
    Elf64_Shdr head;
    bool loaded;
    size_t at; /* in the mapping */
} section;

typedef struct loader {
    const uint8_t *bytes;
    size_t n;
    int nsections;
    section *sections;
    size_t nsymbols;
    const uint8_t *symbols; /* at an odd address, perhaps */
    const char *names;      /* ends in a zero */
    size_t names_n;
    size_t start[PARTS + 1]; /* of the parts; the last is the size */
    size_t stubs, slots;
    uint8_t *base;
} loader;

static bool corrupt(const char *what)
{
    return nb_fail(NB_ERUNTIME, "code: the object is not usable: %s", what);
}

static bool lies_within(uint64_t at, uint64_t n, uint64_t whole)
{
    return at <= whole && n <= whole - at;
}

static bool read_sections(loader *l)
{
    Elf64_Ehdr h;
    if (l->n < sizeof h) return corrupt("too short");
    memcpy(&h, l->bytes, sizeof h);
    if (memcmp(h.e_ident, ELFMAG, SELFMAG) != 0) return corrupt("not ELF");
    if (h.e_ident[EI_CLASS] != ELFCLASS64 ||
        h.e_ident[EI_DATA] != ELFDATA2LSB || h.e_type != ET_REL ||
        h.e_machine != MACHINE)
        return corrupt("not a relocatable one for this machine");
    uint64_t size = (uint64_t)h.e_shnum * sizeof(Elf64_Shdr);
    if (h.e_shnum == 0 || h.e_shentsize != sizeof(Elf64_Shdr) ||
        !lies_within(h.e_shoff, size, l->n))
        return corrupt("its section table");
    l->nsections = h.e_shnum;
    l->sections = nb_alloc_zero((size_t)l->nsections * sizeof *l->sections);
    if (!l->sections) return false;
    for (int i = 0; i < l->nsections; i++) {
        Elf64_Shdr *s = &l->sections[i].head;
        memcpy(s, l->bytes + h.e_shoff + (size_t)i * sizeof *s, sizeof *s);
        if (s->sh_type != SHT_NULL && s->sh_type != SHT_NOBITS &&
            !lies_within(s->sh_offset, s->sh_size, l->n))
            return corrupt("a section is not inside");
    }
    return true;
}

static bool read_symbols(loader *l, const Elf64_Shdr *s)
{
    if (l->symbols) return corrupt("two symbol tables");
    if (s->sh_entsize != sizeof(Elf64_Sym) || s->sh_link == 0 ||
        s->sh_link >= (uint64_t)l->nsections)
        return corrupt("its symbol table");
    const Elf64_Shdr *t = &l->sections[s->sh_link].head;
    if (t->sh_type != SHT_STRTAB || t->sh_size == 0 ||
        l->bytes[t->sh_offset + t->sh_size - 1] != 0)
        return corrupt("its names");
    l->symbols = l->bytes + s->sh_offset;
    l->nsymbols = s->sh_size / sizeof(Elf64_Sym);
    l->names = (const char *)l->bytes + t->sh_offset;
    l->names_n = t->sh_size;
    return true;
}

static int part_of(const Elf64_Shdr *s)
{
    if (s->sh_flags & SHF_EXECINSTR) return CODE;
    return s->sh_flags & SHF_WRITE ? VARIABLES : CONSTANTS;
}

/* Tables for unwinding would have to be registered; ours are not. */
static bool is_wanted(const Elf64_Shdr *s)
{
    return s->sh_flags & SHF_ALLOC && s->sh_type != SHT_X86_64_UNWIND;
}

static bool is_plain(const Elf64_Shdr *s)
{
    uint64_t strange = SHF_TLS | SHF_COMPRESSED;
    return (s->sh_type == SHT_PROGBITS || s->sh_type == SHT_NOBITS) &&
           !(s->sh_flags & strange) &&
           !(s->sh_flags & SHF_WRITE && s->sh_flags & SHF_EXECINSTR);
}

static size_t round_up(size_t n, size_t to)
{
    return (n + to - 1) / to * to;
}

/* Places the sections of a part from *at on. */
static bool place(loader *l, int part, size_t *at)
{
    for (int i = 0; i < l->nsections; i++) {
        section *s = &l->sections[i];
        if (!is_wanted(&s->head) || part_of(&s->head) != part) continue;
        if (!is_plain(&s->head)) return corrupt("a section of an odd kind");
        uint64_t align = s->head.sh_addralign ? s->head.sh_addralign : 1;
        if (align > PAGE || align & (align - 1))
            return corrupt("the alignment of a section");
        s->at = round_up(*at, align);
        if (s->at > LARGEST || s->head.sh_size > LARGEST - s->at)
            return corrupt("too large");
        s->loaded = true;
        *at = s->at + s->head.sh_size;
    }
    return true;
}

static bool lay_out(loader *l)
{
    size_t at = 0;
    if (l->nsymbols > LARGEST / 64) return corrupt("too many symbols");
    for (int part = 0; part < PARTS; part++) {
        l->start[part] = at;
        if (!place(l, part, &at)) return false;
        at = round_up(at, SLOT);
        if (part == CODE) {
            l->stubs = at;
            at += l->nsymbols * STUB;
        } else if (part == CONSTANTS) {
            l->slots = at;
            at += l->nsymbols * SLOT;
        }
        at = round_up(at, PAGE);
    }
    l->start[PARTS] = at;
    return at > 0 || corrupt("nothing in it");
}

static bool map(loader *l)
{
    size_t size = l->start[PARTS];
    void *p = mmap(NULL, size, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) return nb_fail_memory(size, "machine code");
    l->base = p;
    for (int i = 0; i < l->nsections; i++) {
        section *s = &l->sections[i];
        if (s->loaded && s->head.sh_type != SHT_NOBITS)
            memcpy(l->base + s->at, l->bytes + s->head.sh_offset,
                   s->head.sh_size);
    }
    return true;
}

static Elf64_Sym symbol_of(const loader *l, size_t i)
{
    Elf64_Sym s;
    memcpy(&s, l->symbols + i * sizeof s, sizeof s);
    return s;
}

static bool name_of(const loader *l, const Elf64_Sym *s, const char **name)
{
    if (s->st_name >= l->names_n) return corrupt("the name of a symbol");
    *name = l->names + s->st_name;
    return true;
}

static const section *home_of(const loader *l, const Elf64_Sym *s)
{
    bool known = s->st_shndx != SHN_UNDEF && s->st_shndx < l->nsections;
    const section *home = known ? &l->sections[s->st_shndx] : NULL;
    return home && home->loaded && s->st_value <= home->head.sh_size ? home
                                                                     : NULL;
}

/* The address of a symbol, and whether it lies outside. */
static bool resolve(const loader *l, size_t i, uint64_t *address, bool *outside)
{
    const char *name = NULL;
    if (i == 0 || i >= l->nsymbols) return corrupt("the number of a symbol");
    Elf64_Sym s = symbol_of(l, i);
    int type = ELF64_ST_TYPE(s.st_info);
    if (type == STT_TLS || type == STT_GNU_IFUNC)
        return corrupt("a symbol of an odd kind");
    if (!name_of(l, &s, &name)) return false;
    *outside = s.st_shndx == SHN_UNDEF;
    if (*outside) {
        *address = (uint64_t)(uintptr_t)nb_extern_find(name);
        return *address ||
               nb_fail(NB_ERUNTIME, "code: no function %s to call", name);
    }
    const section *home = home_of(l, &s);
    if (!home) return corrupt("a symbol is nowhere");
    *address = (uint64_t)(uintptr_t)(l->base + home->at) + s.st_value;
    return true;
}

static uint64_t slot_for(const loader *l, size_t i, uint64_t address)
{
    uint8_t *slot = l->base + l->slots + i * SLOT;
    memcpy(slot, &address, sizeof address);
    return (uint64_t)(uintptr_t)slot;
}

/* jmp *slot(%rip) */
static uint64_t stub_for(const loader *l, size_t i, uint64_t address)
{
    uint8_t *stub = l->base + l->stubs + i * STUB;
    uint64_t slot = slot_for(l, i, address);
    int32_t far = (int32_t)(slot - (uint64_t)(uintptr_t)stub - 6);
    memcpy(stub, (uint8_t[]){0xff, 0x25}, 2);
    memcpy(stub + 2, &far, sizeof far);
    memcpy(stub + 6, (uint8_t[]){0xcc, 0xcc}, 2);
    return (uint64_t)(uintptr_t)stub;
}

/* Bytes that a relocation writes, 0 for those we do not know. */
static size_t width_of(uint32_t type)
{
    switch (type) {
    case R_X86_64_64:
    case R_X86_64_PC64: return 8;
    case R_X86_64_32:
    case R_X86_64_32S:
    case R_X86_64_PC32:
    case R_X86_64_PLT32:
    case R_X86_64_GOTPCREL:
    case R_X86_64_GOTPCRELX:
    case R_X86_64_REX_GOTPCRELX: return 4;
    default: return 0;
    }
}

/* What to write at the address p, by the formulas of the x86-64 ABI: S the
 * symbol's address, A the addend. */
static uint64_t value_of(const loader *l, const Elf64_Rela *r, uint64_t s,
                         bool outside, uint64_t p)
{
    size_t i = ELF64_R_SYM(r->r_info);
    uint64_t a = (uint64_t)r->r_addend;
    switch (ELF64_R_TYPE(r->r_info)) {
    case R_X86_64_PC64: return s + a - p;
    case R_X86_64_PC32:
    case R_X86_64_PLT32: return (outside ? stub_for(l, i, s) : s) + a - p;
    case R_X86_64_GOTPCREL:
    case R_X86_64_GOTPCRELX:
    case R_X86_64_REX_GOTPCRELX: return slot_for(l, i, s) + a - p;
    default: return s + a;
    }
}

static bool relocate(const loader *l, const section *to, const Elf64_Rela *r)
{
    uint32_t type = ELF64_R_TYPE(r->r_info);
    size_t width = width_of(type);
    uint64_t s = 0;
    bool outside = false;
    if (type == R_X86_64_NONE) return true;
    if (width == 0)
        return nb_fail(NB_ERUNTIME, "code: relocation %u is not known", type);
    if (!lies_within(r->r_offset, width, to->head.sh_size))
        return corrupt("a relocation is outside its section");
    if (!resolve(l, ELF64_R_SYM(r->r_info), &s, &outside)) return false;
    uint8_t *at = l->base + to->at + r->r_offset;
    uint64_t v = value_of(l, r, s, outside, (uint64_t)(uintptr_t)at);
    bool fits = type == R_X86_64_32 ? v <= UINT32_MAX
                                    : (int64_t)v == (int64_t)(int32_t)v;
    if (width == 4 && !fits) return corrupt("an address is out of reach");
    memcpy(at, &v, width);
    return true;
}

static bool relocate_all(loader *l, const Elf64_Shdr *table)
{
    if (table->sh_info == 0 || table->sh_info >= (uint64_t)l->nsections ||
        table->sh_entsize != sizeof(Elf64_Rela))
        return corrupt("a table of relocations");
    const section *to = &l->sections[table->sh_info];
    if (!to->loaded) return true;
    for (size_t i = 0; i < table->sh_size / sizeof(Elf64_Rela); i++) {
        Elf64_Rela r;
        memcpy(&r, l->bytes + table->sh_offset + i * sizeof r, sizeof r);
        if (!relocate(l, to, &r)) return false;
    }
    return true;
}

static bool protect(const loader *l, int part, int how)
{
    size_t n = l->start[part + 1] - l->start[part];
    return n == 0 || mprotect(l->base + l->start[part], n, how) == 0 ||
           nb_fail(NB_ERUNTIME,
                   "code: the system does not let memory be executable");
}

static bool link_sections(loader *l)
{
    for (int i = 1; i < l->nsections; i++) {
        const Elf64_Shdr *s = &l->sections[i].head;
        if (s->sh_type == SHT_REL) return corrupt("relocations of a rare form");
        if (s->sh_type == SHT_RELA && !relocate_all(l, s)) return false;
    }
    return protect(l, CODE, PROT_READ | PROT_EXEC) &&
           protect(l, CONSTANTS, PROT_READ);
}

int nb_function_compare(const void *a, const void *b)
{
    return strcmp(((const nb_function *)a)->name,
                  ((const nb_function *)b)->name);
}

static bool list_functions(const loader *l, nb_image *m)
{
    m->names = nb_alloc(l->names_n);
    m->functions = nb_alloc(l->nsymbols * sizeof *m->functions);
    if (!m->names || !m->functions) return false;
    memcpy(m->names, l->names, l->names_n);
    for (size_t i = 1; i < l->nsymbols; i++) {
        const char *name = NULL;
        Elf64_Sym s = symbol_of(l, i);
        const section *home = home_of(l, &s);
        if (!name_of(l, &s, &name)) return false;
        if (!home || part_of(&home->head) != CODE ||
            ELF64_ST_TYPE(s.st_info) != STT_FUNC ||
            ELF64_ST_BIND(s.st_info) == STB_LOCAL)
            continue;
        m->functions[m->n++] = (nb_function){m->names + s.st_name,
                                             l->base + home->at + s.st_value};
    }
    qsort(m->functions, (size_t)m->n, sizeof *m->functions,
          nb_function_compare);
    return true;
}

static bool read_object(loader *l)
{
    if (!read_sections(l)) return false;
    for (int i = 1; i < l->nsections; i++) {
        const Elf64_Shdr *s = &l->sections[i].head;
        if (s->sh_type == SHT_SYMTAB && !read_symbols(l, s)) return false;
    }
    return l->symbols || corrupt("no symbols");
}

static bool load(loader *l, nb_image *m)
{
    if (!read_object(l) || !lay_out(l) || !map(l)) return false;
    m->base = l->base;
    m->size = l->start[PARTS];
    return link_sections(l) && list_functions(l, m);
}

bool nb_elf_load(const void *object, size_t n, nb_image *m)
{
    loader l = {.bytes = object, .n = n};
    *m = (nb_image){0};
    bool ok = load(&l, m);
    nb_free(l.sections);
    if (!ok) nb_image_free(m);
    return ok;
}

void nb_image_free(nb_image *m)
{
    if (m->base) munmap(m->base, m->size);
    nb_free(m->functions);
    nb_free(m->names);
    *m = (nb_image){0};
}
