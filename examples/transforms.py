"""Functions to functions, then the imperative style: the Hessian of a mapped
function as jacfwd of jacrev of vmap, and a perceptron that learns to tell the
sides of a line."""

import nabla as nb


def sum_of_sines(row):
    return nb.sum(nb.sin(row))


# No op has a rule for any of these nestings.
x = nb.arange(6.0).reshape(2, 3)
rows = nb.vmap(sum_of_sines)
hessian = nb.jacfwd(nb.jacrev(rows))(x)
print("vmap(f)(x) =", rows(x))
print("jacfwd(jacrev(vmap(f)))(x) has shape", hessian.shape)
# -sin(x) where all indices agree, zero elsewhere
print("its sum over all but the last two axes =", hessian.sum((0, 1, 2)))
print("-sin(x) =", -nb.sin(x))

# The gradient of every sample by itself, without a loop.
per_sample = nb.vmap(nb.grad(lambda w, row: sum_of_sines(w * row)), (None, 0))
print("gradients of samples:", per_sample(nb.ones(3), x).shape)

# Points of a grid, labelled by which side of a line they are on.
i = nb.arange(64)
points = nb.stack([i % 8, i // 8], axis=1) / 4 - 1
labels = (2 * points[:, :1] - points[:, 1:] > 0.2).cast(nb.float32)

# Parameters stay leaves: updating them in place is not recorded.
w = nb.zeros((2, 1), requires_grad=True)
b = nb.zeros((), requires_grad=True)
for step in range(201):
    p = nb.sigmoid(points @ w + b)
    loss = nb.mean((p - labels) ** 2)
    loss.backward()
    if step % 50 == 0:
        print(f"step {step:3d}  loss {loss:.4f}")
    w -= 2.0 * w.grad
    b -= 2.0 * b.grad
print("w =", w)
print("b =", b)

# What was recorded, to be read.
print(nb.xpr(nb.grad(lambda a: nb.sum(nb.tanh(a))))(nb.ones(2)))
