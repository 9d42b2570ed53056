"""Operations of one's own: kernels in C and CUDA C source, with one derivative
rule each, that map, differentiate to any order and compile like all the others,
on the CPU and on cards."""

from pathlib import Path

import nabla as nb

kernels = Path(__file__).parent / "kernels"


class Softsign(nb.UnaryOperation):
    name = "softsign"

    def kernel(self, x):
        return nb.call_custom_kernel("softsign", kernels, x, x.type)

    def _derivative(self, primal, output):
        return 1 / (1 + nb.abs(primal)) ** 2


class RmsNorm(nb.Operation):
    """A row over the root of its mean square."""

    name = "rms_norm"
    signature = "... n -> ... n"

    def kernel(self, x, *, epsilon=1e-6):
        return nb.call_custom_kernel(
            "rms_norm", kernels, x, x.type, epsilon=epsilon
        )

    # y = x s with s = (mean x² + ε)^-½, so ds = -s³ mean(x dx)
    def vjp_rule(self, primals, cotangents, outputs, *, epsilon=1e-6):
        (x,), (ct,) = primals, cotangents
        s = nb.rsqrt(nb.mean(x * x, -1, keepdims=True) + epsilon)
        return ct * s - x * s**3 * nb.mean(ct * x, -1, keepdims=True)


softsign, rms_norm = Softsign(), RmsNorm()

# They are compiled when first used, and found in the cache after that.
x = nb.constant([[1.0, -2.0, 3.0], [0.5, 0.0, -1.5]])
print("softsign(x) =", softsign(x))
print("rms_norm(x) =", rms_norm(x))

# The mode without a rule is the other's transpose.
u = nb.ones_like(x)
print("how rms_norm moves along ones:", nb.jvp(rms_norm, (x,), (u,))[1])
print("third derivative of softsign at 1:", end=" ")
print(nb.grad(nb.grad(nb.grad(softsign)))(nb.constant(1.0)))

# A batch is rows: one call of the kernel for all of it.
per_row = nb.vmap(nb.hessian(lambda row: nb.sum(rms_norm(row) ** 3)))
print("hessians of rows:", per_row(x).shape)

# A layer that learns, kernels and rules compiled with the rest.
target = nb.constant([[0.2, -0.4, 0.6], [0.3, 0.0, -0.5]])


@nb.compile
def step(w):
    def loss(w):
        return nb.mean((softsign(rms_norm(x) @ w) - target) ** 2)

    value, grad = nb.value_and_grad(loss)(w)
    return value, w - 0.5 * grad


w = nb.eye(3)
for k in range(61):
    value, w = step(w)
    if k % 20 == 0:
        print(f"step {k:2d}  loss {value:.5f}")

# On a card the .cu files beside the .c files are the kernels.
if len(nb.devices()) > 1:
    there = nb.to_device(x, "gpu")
    y, want = rms_norm(softsign(there)), rms_norm(softsign(x))
    print("on", y.device, "the same:", bool(nb.all(abs(y.cpu() - want) < 1e-6)))
else:
    print("on a card: there is none here")
