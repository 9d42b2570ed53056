"""A line through noisy points, by least squares: random numbers from a key,
lazy ops, indexing, linear algebra."""

import nabla as nb

# Points (x, 2 x - 1) with noise; a key gives the same numbers everywhere.
key, other = nb.random.split(nb.random.key(7))
x = nb.linspace(0.0, 1.0, 50)
y = 2 * x - 1 + 0.1 * nb.random.normal(key, (50,))

# Every op is recorded; shapes and dtypes are known at once.
a = nb.stack([x, nb.ones_like(x)], axis=1)
line = nb.linalg.solve(a.T @ a, a.T @ y)
print("recorded:", line.shape, line.dtype, "computed:", line.real)

# Asking for values computes what they need.
slope, offset = line
print(f"y = {slope:.3f} x + {offset:.3f}")

# Views, masks and updates read as in NumPy; data itself never changes.
error = abs(y - a @ line)
worst = error.argmax()
print("the worst point:", nb.stack([x, y], axis=1)[worst])
print("points further away than 0.2:", len(x[error > 0.2]))
print("without it:", error.at[worst].set(0.0).max() < error.max())

# Python numbers take the dtype of what they meet.
half = x.cast(nb.float16)
print("weak scalars:", (half * 2.5).dtype, "arrays:", (half * x).dtype)

# A function of several tensors, written with indices.
grid = nb.einsum("i,j->ij", x[:3], nb.arange(1, 5))
print(grid)
