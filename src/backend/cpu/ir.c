/* ir.c - writing LLVM IR: names, types, constants, loops. */
#include "backend/cpu/ir.h"

#include <string.h>

static const struct {
    const char *name, *suffix;
    int bytes;
} types[] = {
    [NB_IR_I1] = {"i1", "i1", 1},       [NB_IR_I8] = {"i8", "i8", 1},
    [NB_IR_I16] = {"i16", "i16", 2},    [NB_IR_I32] = {"i32", "i32", 4},
    [NB_IR_I64] = {"i64", "i64", 8},    [NB_IR_F32] = {"float", "f32", 4},
    [NB_IR_F64] = {"double", "f64", 8}, [NB_IR_F16] = {"half", "f16", 2},
    [NB_IR_PTR] = {"ptr", "p0", 8},
};

int nb_irt_bytes(nb_irt type)
{
    return types[type].bytes;
}

void nb_ir_free(nb_ir *ir)
{
    nb_text_free(&ir->body);
    nb_text_free(&ir->declare);
}

char *nb_ir_module(nb_ir *ir)
{
    nb_text_put(&ir->declare, nb_text_get(&ir->body), (size_t)ir->body.n);
    if (ir->past) nb_text_add(&ir->declare, "\n!0 = !{i32 1}\n");
    if (ir->declare.failed || ir->body.failed) return NULL;
    return nb_copy_text(nb_text_get(&ir->declare));
}

nb_v nb_ir_int(nb_irt type, int64_t value)
{
    return (nb_v){.type = (uint8_t)type, .lanes = 1, .bits = value};
}

nb_v nb_ir_float(nb_irt type, double value)
{
    nb_v v = {.type = (uint8_t)type, .lanes = 1};
    if (type == NB_IR_F32) value = (double)(float)value;
    memcpy(&v.bits, &value, sizeof value);
    return v;
}

static void put_type(nb_text *t, int type, int lanes)
{
    if (lanes == 1)
        nb_text_add(t, "%s", types[type].name);
    else
        nb_text_add(t, "<%d x %s>", lanes, types[type].name);
}

static void put_number(nb_text *t, nb_v x)
{
    if (nb_ir_is_float(x))
        nb_text_add(t, "0x%016llx", (unsigned long long)x.bits);
    else if (x.type == NB_IR_I1)
        nb_text_add(t, x.bits ? "true" : "false");
    else
        nb_text_add(t, "%lld", (long long)x.bits);
}

/* The operand without its type, of that many lanes. */
static void put_value(nb_text *t, nb_v x, int lanes)
{
    if (x.id) {
        nb_text_add(t, "%%v%d", x.id);
    } else if (lanes == 1) {
        put_number(t, x);
    } else {
        nb_text_add(t, "<");
        for (int i = 0; i < lanes; i++) {
            nb_text_add(t, "%s%s ", i ? ", " : "", types[x.type].name);
            put_number(t, x);
        }
        nb_text_add(t, ">");
    }
}

static void put_operand(nb_text *t, nb_v x, int lanes)
{
    put_type(t, x.type, lanes);
    nb_text_add(t, " ");
    put_value(t, x, lanes);
}

static nb_v fresh(nb_ir *ir, int type, int lanes)
{
    return (nb_v){.id = ++ir->last, (uint8_t)type, (uint8_t)lanes, 0};
}

/* Begins "  %v7 = op ". */
static nb_v assign(nb_ir *ir, int type, int lanes, const char *op)
{
    nb_v v = fresh(ir, type, lanes);
    nb_text_add(&ir->body, "  %%v%d = %s ", v.id, op);
    return v;
}

static void finish(nb_ir *ir)
{
    nb_text_add(&ir->body, "\n");
}

nb_v nb_ir_splat(nb_ir *ir, nb_v a, int lanes)
{
    if (a.lanes == lanes) return a;
    if (!a.id) return a.lanes = (uint8_t)lanes, a;
    nb_v one = assign(ir, a.type, lanes, "insertelement");
    put_type(&ir->body, a.type, lanes);
    nb_text_add(&ir->body, " undef, ");
    put_operand(&ir->body, a, 1);
    nb_text_add(&ir->body, ", i32 0\n");
    nb_v all = assign(ir, a.type, lanes, "shufflevector");
    put_operand(&ir->body, one, lanes);
    nb_text_add(&ir->body, ", ");
    put_type(&ir->body, a.type, lanes);
    nb_text_add(&ir->body, " undef, <%d x i32> zeroinitializer\n", lanes);
    return all;
}

static int widest(int a, int b)
{
    return a > b ? a : b;
}

nb_v nb_ir_op2(nb_ir *ir, const char *op, nb_v a, nb_v b)
{
    int lanes = widest(a.lanes, b.lanes);
    a = nb_ir_splat(ir, a, lanes);
    b = nb_ir_splat(ir, b, lanes);
    nb_v v = assign(ir, a.type, lanes, op);
    put_operand(&ir->body, a, lanes);
    nb_text_add(&ir->body, ", ");
    put_value(&ir->body, b, lanes);
    finish(ir);
    return v;
}

nb_v nb_ir_op1(nb_ir *ir, const char *op, nb_v a)
{
    nb_v v = assign(ir, a.type, a.lanes, op);
    put_operand(&ir->body, a, a.lanes);
    finish(ir);
    return v;
}

nb_v nb_ir_compare(nb_ir *ir, const char *op, nb_v a, nb_v b)
{
    nb_v v = nb_ir_op2(ir, op, a, b);
    v.type = NB_IR_I1;
    return v;
}

nb_v nb_ir_select(nb_ir *ir, nb_v test, nb_v a, nb_v b)
{
    int lanes = widest(test.lanes, widest(a.lanes, b.lanes));
    test = nb_ir_splat(ir, test, lanes);
    a = nb_ir_splat(ir, a, lanes);
    b = nb_ir_splat(ir, b, lanes);
    nb_v v = assign(ir, a.type, lanes, "select");
    put_operand(&ir->body, test, lanes);
    nb_text_add(&ir->body, ", ");
    put_operand(&ir->body, a, lanes);
    nb_text_add(&ir->body, ", ");
    put_operand(&ir->body, b, lanes);
    finish(ir);
    return v;
}

nb_v nb_ir_cast(nb_ir *ir, const char *op, nb_v a, nb_irt type)
{
    if (a.type == type && strcmp(op, "bitcast")) return a;
    nb_v v = assign(ir, (int)type, a.lanes, op);
    put_operand(&ir->body, a, a.lanes);
    nb_text_add(&ir->body, " to ");
    put_type(&ir->body, (int)type, a.lanes);
    finish(ir);
    return v;
}

/* Declares a function once. */
static void declare(nb_ir *ir, const char *line)
{
    const char *all = nb_text_get(&ir->declare);
    if (!strstr(all, line)) nb_text_add(&ir->declare, "%s", line);
}

static void put_suffix(nb_text *t, nb_v a, int lanes)
{
    if (lanes > 1)
        nb_text_add(t, ".v%d%s", lanes, types[a.type].suffix);
    else
        nb_text_add(t, ".%s", types[a.type].suffix);
}

static nb_v call(nb_ir *ir, const char *name, int n, nb_v *x)
{
    int lanes = 1;
    nb_text line = {0};
    for (int i = 0; i < n; i++)
        lanes = widest(lanes, x[i].lanes);
    for (int i = 0; i < n; i++)
        x[i] = nb_ir_splat(ir, x[i], lanes);
    nb_text_add(&line, "declare ");
    put_type(&line, x[0].type, lanes);
    nb_text_add(&line, " @%s", name);
    put_suffix(&line, x[0], lanes);
    nb_v v = assign(ir, x[0].type, lanes, "call");
    put_type(&ir->body, x[0].type, lanes);
    nb_text_add(&ir->body, " @%s", name);
    put_suffix(&ir->body, x[0], lanes);
    for (int i = 0; i < n; i++) {
        nb_text_add(&line, i ? ", " : "(");
        put_type(&line, x[i].type, lanes);
        nb_text_add(&ir->body, i ? ", " : "(");
        put_operand(&ir->body, x[i], lanes);
    }
    nb_text_add(&line, ")\n");
    nb_text_add(&ir->body, ")\n");
    ir->declare.failed = ir->declare.failed || line.failed;
    declare(ir, nb_text_get(&line));
    nb_text_free(&line);
    return v;
}

nb_v nb_ir_call1(nb_ir *ir, const char *name, nb_v a)
{
    return call(ir, name, 1, &a);
}

nb_v nb_ir_call2(nb_ir *ir, const char *name, nb_v a, nb_v b)
{
    return call(ir, name, 2, (nb_v[]){a, b});
}

nb_v nb_ir_call3(nb_ir *ir, const char *name, nb_v a, nb_v b, nb_v c)
{
    return call(ir, name, 3, (nb_v[]){a, b, c});
}

nb_v nb_ir_scalef(nb_ir *ir, nb_v a, nb_v n)
{
    bool wide = a.type == NB_IR_F64;
    const char *name = wide ? "pd" : "ps", *type = types[a.type].name;
    int mask = wide ? 8 : 16; /* bits, all on */
    nb_text line = {0};
    nb_text_add(&line,
                "declare <%d x %s> @llvm.x86.avx512.mask.scalef.%s.512(<%d x "
                "%s>, <%d x %s>, <%d x %s>, i%d, i32)\n",
                mask, type, name, mask, type, mask, type, mask, type, mask);
    nb_v v = assign(ir, a.type, a.lanes, "call");
    put_type(&ir->body, a.type, a.lanes);
    nb_text_add(&ir->body, " @llvm.x86.avx512.mask.scalef.%s.512(", name);
    put_operand(&ir->body, a, a.lanes);
    nb_text_add(&ir->body, ", ");
    put_operand(&ir->body, n, a.lanes);
    nb_text_add(&ir->body, ", ");
    put_type(&ir->body, a.type, a.lanes);
    nb_text_add(&ir->body, " zeroinitializer, i%d -1, i32 4)\n", mask);
    ir->declare.failed = ir->declare.failed || line.failed;
    declare(ir, nb_text_get(&line));
    nb_text_free(&line);
    return v;
}

nb_v nb_ir_lane(nb_ir *ir, nb_v a, int lane)
{
    if (a.lanes == 1) return a;
    if (!a.id) return a.lanes = 1, a;
    nb_v v = assign(ir, a.type, 1, "extractelement");
    put_operand(&ir->body, a, a.lanes);
    nb_text_add(&ir->body, ", i32 %d\n", lane);
    return v;
}

static nb_v libm_one(nb_ir *ir, const char *name, int n, const nb_v *x)
{
    nb_text line = {0};
    nb_text_add(&line, "declare %s @%s", types[x[0].type].name, name);
    nb_v v = assign(ir, x[0].type, 1, "call");
    nb_text_add(&ir->body, "%s @%s", types[x[0].type].name, name);
    for (int i = 0; i < n; i++) {
        nb_text_add(&line, "%s%s", i ? ", " : "(", types[x[i].type].name);
        nb_text_add(&ir->body, i ? ", " : "(");
        put_operand(&ir->body, x[i], 1);
    }
    nb_text_add(&line, ")\n");
    nb_text_add(&ir->body, ")\n");
    ir->declare.failed = ir->declare.failed || line.failed;
    declare(ir, nb_text_get(&line));
    nb_text_free(&line);
    return v;
}

/* Lane i, which is known when it runs, of a vector; and the vector with it. */
static nb_v lane_at(nb_ir *ir, nb_v a, nb_v i)
{
    nb_v v = assign(ir, a.type, 1, "extractelement");
    put_operand(&ir->body, a, a.lanes);
    nb_text_add(&ir->body, ", ");
    put_operand(&ir->body, i, 1);
    finish(ir);
    return v;
}

static nb_v with_lane(nb_ir *ir, nb_v all, nb_v one, nb_v i)
{
    nb_v v = assign(ir, all.type, all.lanes, "insertelement");
    put_operand(&ir->body, all, all.lanes);
    nb_text_add(&ir->body, ", ");
    put_operand(&ir->body, one, 1);
    nb_text_add(&ir->body, ", ");
    put_operand(&ir->body, i, 1);
    finish(ir);
    return v;
}

/* A loop, as code for sixteen calls takes long to compile. */
nb_v nb_ir_libm(nb_ir *ir, const char *name, int n, const nb_v *x)
{
    int lanes = 1;
    nb_v all[3], one[3], y, i;
    nb_ir_loop l;
    for (int k = 0; k < n; k++)
        lanes = widest(lanes, x[k].lanes);
    if (lanes == 1) return libm_one(ir, name, n, x);
    for (int k = 0; k < n; k++)
        all[k] = nb_ir_splat(ir, x[k], lanes);
    y = nb_ir_splat(ir, nb_ir_float((nb_irt)x[0].type, 0), lanes);
    i = nb_ir_for(ir, &l, nb_ir_int(NB_IR_I64, 0), nb_ir_int(NB_IR_I64, lanes),
                  nb_ir_int(NB_IR_I64, 1), 1, &y);
    for (int k = 0; k < n; k++)
        one[k] = lane_at(ir, all[k], i);
    y = with_lane(ir, y, libm_one(ir, name, n, one), i);
    nb_ir_next(ir, &l);
    return y;
}

nb_v nb_ir_any(nb_ir *ir, nb_v test)
{
    if (test.lanes == 1) return test;
    nb_v bits = assign(ir, NB_IR_I1, 1, "bitcast");
    put_operand(&ir->body, test, test.lanes);
    nb_text_add(&ir->body, " to i%d\n", test.lanes);
    nb_v any = assign(ir, NB_IR_I1, 1, "icmp ne");
    nb_text_add(&ir->body, "i%d %%v%d, 0\n", test.lanes, bits.id);
    return any;
}

nb_v nb_ir_iota(nb_ir *ir, nb_irt type, int lanes)
{
    if (lanes == 1) return nb_ir_int(type, 0);
    nb_v v = assign(ir, (int)type, lanes, "add");
    put_type(&ir->body, (int)type, lanes);
    nb_text_add(&ir->body, " zeroinitializer, <");
    for (int i = 0; i < lanes; i++)
        nb_text_add(&ir->body, "%s%s %d", i ? ", " : "", types[type].name, i);
    nb_text_add(&ir->body, ">\n");
    return v;
}

nb_v nb_ir_half(nb_ir *ir, nb_v a, int first)
{
    int half = a.lanes / 2;
    if (!a.id) return a.lanes = (uint8_t)half, a;
    if (half == 1) return nb_ir_lane(ir, a, first);
    nb_v v = assign(ir, a.type, half, "shufflevector");
    put_operand(&ir->body, a, a.lanes);
    nb_text_add(&ir->body, ", ");
    put_type(&ir->body, a.type, a.lanes);
    nb_text_add(&ir->body, " undef, <%d x i32> <", half);
    for (int i = 0; i < half; i++)
        nb_text_add(&ir->body, "%si32 %d", i ? ", " : "", first + i);
    nb_text_add(&ir->body, ">\n");
    return v;
}

/* Lane i of the result is lane from[i] of a and b, one after the other. */
static nb_v shuffle(nb_ir *ir, nb_v a, nb_v b, const int *from)
{
    nb_v v = assign(ir, a.type, a.lanes, "shufflevector");
    put_operand(&ir->body, a, a.lanes);
    nb_text_add(&ir->body, ", ");
    put_operand(&ir->body, b, a.lanes);
    nb_text_add(&ir->body, ", <%d x i32> <", a.lanes);
    for (int i = 0; i < a.lanes; i++)
        nb_text_add(&ir->body, "%si32 %d", i ? ", " : "", from[i]);
    nb_text_add(&ir->body, ">\n");
    return v;
}

enum { MOST_LANES = 64 };

nb_v nb_ir_weave(nb_ir *ir, nb_v a, nb_v b, bool after)
{
    int from[MOST_LANES], first = after ? a.lanes / 2 : 0;
    for (int i = 0; i < a.lanes; i++)
        from[i] = first + i / 2 + (i % 2 ? a.lanes : 0);
    return shuffle(ir, a, b, from);
}

nb_v nb_ir_shift(nb_ir *ir, nb_v a, int n, nb_v first)
{
    int from[MOST_LANES];
    for (int i = 0; i < a.lanes; i++)
        from[i] = i < n ? a.lanes + i : i - n;
    return shuffle(ir, a, nb_ir_splat(ir, first, a.lanes), from);
}

nb_v nb_ir_reverse(nb_ir *ir, nb_v a)
{
    int from[MOST_LANES];
    if (a.lanes == 1 || !a.id) return a;
    for (int i = 0; i < a.lanes; i++)
        from[i] = a.lanes - 1 - i;
    return shuffle(ir, a, a, from);
}

nb_v nb_ir_recast(nb_ir *ir, nb_v a, nb_irt type, int lanes)
{
    nb_v v = assign(ir, (int)type, lanes, "bitcast");
    put_operand(&ir->body, a, a.lanes);
    nb_text_add(&ir->body, " to ");
    put_type(&ir->body, (int)type, lanes);
    finish(ir);
    return v;
}

/* Memory */

nb_v nb_ir_at(nb_ir *ir, nb_v base, nb_irt type, nb_v index)
{
    if (!index.id && index.bits == 0 && index.lanes == 1) return base;
    nb_v v = assign(ir, NB_IR_PTR, index.lanes, "getelementptr");
    nb_text_add(&ir->body, "%s, ", type == NB_IR_I1 ? "i8" : types[type].name);
    put_operand(&ir->body, base, 1);
    nb_text_add(&ir->body, ", ");
    put_operand(&ir->body, index, index.lanes);
    finish(ir);
    return v;
}

/* A masked access: llvm.masked.<how>, whose types are its name. */
static void masked(nb_ir *ir, const char *how, nb_irt type, int lanes, nb_v at,
                   const nb_v *value, nb_v mask)
{
    nb_text *b = &ir->body, line = {0};
    bool loads = !value, many = at.lanes > 1;
    nb_text_add(&line, "declare ");
    if (loads)
        put_type(&line, (int)type, lanes);
    else
        nb_text_add(&line, "void");
    nb_text_add(&line, " @llvm.masked.%s.v%d%s.", how, lanes,
                types[type].suffix);
    if (many)
        nb_text_add(&line, "v%dp0(", lanes);
    else
        nb_text_add(&line, "p0(");
    const char *name = strchr(nb_text_get(&line), '@');
    if (loads)
        put_type(b, (int)type, lanes);
    else
        nb_text_add(b, "void");
    nb_text_add(b, " %s", name ? name : "");
    if (!loads) {
        put_operand(b, *value, lanes);
        nb_text_add(b, ", ");
        put_type(&line, (int)type, lanes);
        nb_text_add(&line, ", ");
    }
    put_operand(b, at, at.lanes);
    put_type(&line, NB_IR_PTR, at.lanes);
    nb_text_add(b, ", i32 %d, ", types[type].bytes);
    nb_text_add(&line, ", i32, <%d x i1>", lanes);
    put_operand(b, mask, lanes);
    if (loads) {
        nb_text_add(b, ", ");
        put_type(b, (int)type, lanes);
        nb_text_add(b, " zeroinitializer");
        nb_text_add(&line, ", ");
        put_type(&line, (int)type, lanes);
    }
    nb_text_add(b, ")\n");
    nb_text_add(&line, ")\n");
    ir->declare.failed = ir->declare.failed || line.failed;
    declare(ir, nb_text_get(&line));
    nb_text_free(&line);
}

static nb_v plain_load(nb_ir *ir, nb_v at, nb_irt type, int lanes)
{
    nb_v v = assign(ir, (int)type, lanes, "load");
    put_type(&ir->body, (int)type, lanes);
    nb_text_add(&ir->body, ", ");
    put_operand(&ir->body, at, 1);
    nb_text_add(&ir->body, ", align %d\n", types[type].bytes);
    return v;
}

nb_v nb_ir_load(nb_ir *ir, nb_v at, nb_irt type, int lanes, const nb_v *mask)
{
    if (!mask || lanes == 1) return plain_load(ir, at, type, lanes);
    nb_v v = assign(ir, (int)type, lanes, "call");
    masked(ir, "load", type, lanes, at, NULL, *mask);
    return v;
}

void nb_ir_store(nb_ir *ir, nb_v at, nb_v value, const nb_v *mask)
{
    if (mask && value.lanes > 1) {
        nb_text_add(&ir->body, "  call ");
        masked(ir, "store", value.type, value.lanes, at, &value, *mask);
        return;
    }
    nb_text_add(&ir->body, "  store ");
    put_operand(&ir->body, value, value.lanes);
    nb_text_add(&ir->body, ", ");
    put_operand(&ir->body, at, 1);
    nb_text_add(&ir->body, ", align %d\n", types[value.type].bytes);
}

void nb_ir_store_past(nb_ir *ir, nb_v at, nb_v value)
{
    nb_text_add(&ir->body, "  store ");
    put_operand(&ir->body, value, value.lanes);
    nb_text_add(&ir->body, ", ");
    put_operand(&ir->body, at, 1);
    nb_text_add(&ir->body, ", align %d, !nontemporal !0\n",
                types[value.type].bytes * value.lanes);
    ir->past = true;
}

nb_v nb_ir_gather(nb_ir *ir, nb_v base, nb_irt type, nb_v index,
                  const nb_v *mask)
{
    nb_v at = nb_ir_at(ir, base, type, index);
    if (index.lanes == 1) return plain_load(ir, at, type, 1);
    nb_v on = mask ? *mask : nb_ir_int(NB_IR_I1, 1);
    nb_v v = assign(ir, (int)type, index.lanes, "call");
    masked(ir, "gather", type, index.lanes, at, NULL, on);
    return v;
}

void nb_ir_scatter(nb_ir *ir, nb_v base, nb_v index, nb_v value,
                   const nb_v *mask)
{
    nb_v at = nb_ir_at(ir, base, (nb_irt)value.type, index);
    if (index.lanes == 1) {
        nb_ir_store(ir, at, value, NULL);
        return;
    }
    nb_v on = mask ? *mask : nb_ir_int(NB_IR_I1, 1);
    value = nb_ir_splat(ir, value, index.lanes);
    nb_text_add(&ir->body, "  call ");
    masked(ir, "scatter", value.type, index.lanes, at, &value, on);
}

/* Functions and blocks */

static void label(nb_ir *ir, int block)
{
    nb_text_add(&ir->body, "b%d:\n", block);
    ir->block = block;
}

static void jump(nb_ir *ir, int block)
{
    nb_text_add(&ir->body, "  br label %%b%d\n", block);
}

static void branch(nb_ir *ir, nb_v test, int yes, int no)
{
    nb_text_add(&ir->body, "  br ");
    put_operand(&ir->body, test, 1);
    nb_text_add(&ir->body, ", label %%b%d, label %%b%d\n", yes, no);
}

void nb_ir_begin(nb_ir *ir, const char *name, int n, const nb_irt *type,
                 nb_v *argument)
{
    nb_text_add(&ir->body, "\ndefine void @%s(", name);
    for (int i = 0; i < n; i++) {
        argument[i] = fresh(ir, (int)type[i], 1);
        nb_text_add(&ir->body, i ? ", " : "");
        put_operand(&ir->body, argument[i], 1);
    }
    nb_text_add(&ir->body, ") nounwind {\n");
    label(ir, ++ir->last);
}

void nb_ir_end(nb_ir *ir)
{
    nb_text_add(&ir->body, "  ret void\n}\n");
}

/* A phi's second value is named before it is known; nb_ir_next gives it that
 * name by a cast to its own type, which is nothing. */
static nb_v phi(nb_ir *ir, nb_v first, int entry, int next, int last)
{
    nb_v v = assign(ir, first.type, first.lanes, "phi");
    put_type(&ir->body, first.type, first.lanes);
    nb_text_add(&ir->body, " [ ");
    put_value(&ir->body, first, first.lanes);
    nb_text_add(&ir->body, ", %%b%d ], [ %%v%d, %%b%d ]\n", entry, next, last);
    return v;
}

static void name_next(nb_ir *ir, int id, nb_v x)
{
    nb_text_add(&ir->body, "  %%v%d = bitcast ", id);
    put_operand(&ir->body, x, x.lanes);
    nb_text_add(&ir->body, " to ");
    put_type(&ir->body, x.type, x.lanes);
    finish(ir);
}

nb_v nb_ir_for(nb_ir *ir, nb_ir_loop *l, nb_v from, nb_v to, nb_v step, int n,
               nb_v *carry)
{
    int entry = ir->block, body, end;
    *l = (nb_ir_loop){.n = n, .to = to, .step = step, .carry = carry};
    l->head = ++ir->last;
    body = ++ir->last;
    end = ++ir->last;
    l->last = ++ir->last;
    l->first = ir->last + 1;
    ir->last += n + 1;
    jump(ir, l->head);
    label(ir, l->head);
    for (int k = 0; k < n; k++)
        carry[k] = phi(ir, carry[k], entry, l->first + k, l->last);
    l->i = phi(ir, from, entry, l->first + n, l->last);
    branch(ir, nb_ir_compare(ir, "icmp slt", l->i, to), body, end);
    label(ir, body);
    return l->i;
}

/* The blocks were numbered head, body, end, last. */
void nb_ir_next(nb_ir *ir, nb_ir_loop *l)
{
    jump(ir, l->last);
    label(ir, l->last);
    for (int k = 0; k < l->n; k++)
        name_next(ir, l->first + k, l->carry[k]);
    name_next(ir, l->first + l->n, nb_ir_op2(ir, "add", l->i, l->step));
    jump(ir, l->head);
    label(ir, l->head + 2);
    /* After the loop the carried values are those of the head's phis, which are
     * the ids just before the counter's. */
    for (int k = 0; k < l->n; k++)
        l->carry[k].id = l->i.id - l->n + k;
}

void nb_ir_when(nb_ir *ir, nb_ir_if *f, nb_v test)
{
    int yes = ++ir->last;
    f->end = ++ir->last;
    f->before = ir->block;
    branch(ir, test, yes, f->end);
    label(ir, yes);
}

void nb_ir_fi(nb_ir *ir, nb_ir_if *f)
{
    jump(ir, f->end);
    label(ir, f->end);
}

nb_v nb_ir_fi_value(nb_ir *ir, nb_ir_if *f, nb_v inside, nb_v otherwise)
{
    int from = ir->block;
    nb_ir_fi(ir, f);
    nb_v v = assign(ir, inside.type, inside.lanes, "phi");
    put_type(&ir->body, inside.type, inside.lanes);
    nb_text_add(&ir->body, " [ ");
    put_value(&ir->body, inside, inside.lanes);
    nb_text_add(&ir->body, ", %%b%d ], [ ", from);
    put_value(&ir->body, otherwise, inside.lanes);
    nb_text_add(&ir->body, ", %%b%d ]\n", f->before);
    return v;
}
