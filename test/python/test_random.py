"""Random numbers in Python: the values, against Philox written out again; the
forms of the calls; the generator of the process.  Distributions are tested in
C, and here once more for what Python adds."""

import math
import threading

import numpy as np
import pytest

import nabla as nb

WORD = 0xFFFFFFFF
FLOATS = ["float16", "bfloat16", "float32", "float64"]


def philox(key, counter):
    """Four words of Philox 4x32-10, as published."""
    k0, k1 = key
    c0, c1, c2, c3 = counter
    for _ in range(10):
        a, b = 0xD2511F53 * c0, 0xCD9E8D57 * c2
        c0, c1, c2, c3 = (
            b >> 32 ^ c1 ^ k0,
            b & WORD,
            a >> 32 ^ c3 ^ k1,
            a & WORD,
        )
        k0, k1 = k0 + 0x9E3779B9 & WORD, k1 + 0xBB67AE85 & WORD
    return [c0, c1, c2, c3]


def words(seed, n, stream=0):
    """The first n words of a stream of the key of a seed."""
    key = (seed >> 32 & WORD, seed & WORD)
    blocks = [philox(key, (i, 0, stream, 0)) for i in range(-(-n // 4))]
    return np.array(sum(blocks, []), np.uint64)[:n]


def doubles(seed, n, stream=0):
    w = words(seed, 2 * n, stream).reshape(n, 2)
    return w[:, 0] << np.uint64(32) | w[:, 1]


def inside(seed, n, stream=0):
    """Numbers in (0, 1) that float64 draws are made from."""
    return ((doubles(seed, n, stream) >> np.uint64(12)) + 0.5) * 2.0**-52


def key(seed=7):
    return nb.random.key(seed)


def values(x):
    return np.array(x.tolist())


def test_the_published_words_of_philox():
    zero = [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]
    assert philox((0, 0), (0, 0, 0, 0)) == zero
    ones = [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]
    assert philox((WORD, WORD), (WORD,) * 4) == ones


def test_keys():
    assert key(5).tolist() == [0, 5]
    assert key(2**32 + 5).tolist() == [1, 5]
    assert key(-1).tolist() == [WORD, WORD]
    assert key(5).dtype is nb.uint32 and key(5).real
    for bad in (1.5, "a", None):
        with pytest.raises(TypeError):
            key(bad)
    with pytest.raises(OverflowError):
        key(2**64)


def test_split_and_fold_in():
    a, b, c = nb.random.split(key(7), 3)
    assert [a.tolist(), b.tolist(), c.tolist()] == (
        words(7, 6, 2).reshape(3, 2).tolist()
    )
    assert nb.random.split(key(7)).shape == (2, 2)
    assert (
        nb.random.fold_in(key(7), 9).tolist()
        == (philox((0, 7), (9, 0, 0, 1))[:2])
    )
    assert (
        nb.random.fold_in(key(7), -1).tolist()
        == (philox((0, 7), (WORD, WORD, 0, 1))[:2])
    )
    many = nb.random.fold_in(key(7), nb.arange(4))
    assert many.shape == (4, 2)
    assert many[3].tolist() == nb.random.fold_in(key(7), 3).tolist()


def test_uniform_values():
    u = (words(7, 10) >> np.uint64(8)) * 2.0**-24
    x = nb.random.uniform(key(), (2, 5))
    assert x.dtype is nb.float32 and not x.real
    assert values(x).ravel().tolist() == u.tolist()
    y = nb.random.uniform(key(), 10, -2.0, 6.0)
    assert (values(y) == (-2 + 8 * u).astype(np.float32)).all()
    u = (doubles(7, 10) >> np.uint64(11)) * 2.0**-53
    z = nb.random.uniform(key(), 10, dtype="float64")
    assert values(z).tolist() == u.tolist()


def test_normal_values():
    for dtype, far, angle in [
        ("float64", inside(7, 9), inside(7, 9, 1)),
        (
            "float32",
            (words(7, 9) + 0.5) * 2.0**-32,
            (words(7, 9, 1) + 0.5) * 2.0**-32,
        ),
    ]:
        z = np.sqrt(-2 * np.log(far)) * np.cos(2 * np.pi * angle)
        x = nb.random.normal(key(), 9, 3.0, 0.5, dtype)
        np.testing.assert_allclose(
            values(x), 3 + z / 2, rtol=1e-6 if dtype == "float32" else 1e-14
        )


def test_truncated_normal_values():
    def below(x):
        return math.erfc(-x / math.sqrt(2)) / 2

    x = nb.random.truncated_normal(key(), -1.0, 0.5, 50, "float64")
    p = [(below(v) - below(-1)) / (below(0.5) - below(-1)) for v in x.tolist()]
    np.testing.assert_allclose(p, inside(7, 50), atol=1e-14)


def test_bernoulli_randint_and_permutation_values():
    assert (
        values(nb.random.bernoulli(key(), 0.25, 20)) == (words(7, 20) < 2**30)
    ).all()
    x = nb.random.randint(key(), (4, 5), -3, 1000, "int16")
    expected = [-3 + (int(w) * 1003 >> 64) for w in doubles(7, 20)]
    assert x.dtype is nb.int16 and values(x).ravel().tolist() == expected
    order = np.argsort(doubles(7, 8)).tolist()
    assert nb.random.permutation(key(), 8).tolist() == order
    rows = nb.arange(16).reshape(8, 2)
    assert nb.random.permutation(key(), rows).tolist() == [
        [2 * i, 2 * i + 1] for i in order
    ]
    assert nb.random.permutation(key(), rows.T, axis=-1).T.tolist() == [
        [2 * i, 2 * i + 1] for i in order
    ]


def test_categorical_values():
    logits = np.log([[1.0, 2.0, 3.0], [3.0, 1.0, 1.0]])
    noise = -np.log(-np.log(inside(7, 30))).reshape(5, 2, 3)
    x = nb.random.categorical(key(), logits, shape=(5, 2))
    assert values(x).tolist() == (logits + noise).argmax(-1).tolist()
    assert nb.random.categorical(key(), logits).shape == (2,)
    assert nb.random.categorical(key(), logits, axis=0).shape == (3,)


@pytest.mark.parametrize("dtype", FLOATS)
def test_every_float_dtype_has_its_bounds(dtype):
    x = values(nb.random.uniform(key(), 20000, -1.0, 1.0, dtype))
    assert x.min() >= -1 and x.max() < 1 and x.max() > 0.98
    x = values(nb.random.truncated_normal(key(), -2, 1, 2000, dtype))
    assert x.min() >= -2 and x.max() <= 1
    x = nb.random.normal(key(), (), dtype=dtype)
    assert x.dtype.name == dtype and x.shape == ()


def test_shapes_do_not_matter():
    for draw in (
        nb.random.uniform,
        nb.random.normal,
        lambda k, s: nb.random.randint(k, s, 0, 100),
        lambda k, s: nb.random.bernoulli(k, 0.5, s),
        lambda k, s: nb.random.truncated_normal(k, -1, 1, s),
    ):
        flat = draw(key(), (24,))
        for shape in [(2, 12), (2, 3, 4), (24, 1), (1, 1, 24)]:
            assert draw(key(), shape).shape == shape
            assert draw(key(), shape).flatten().tolist() == flat.tolist()


def test_the_default_dtype_is_taken():
    with nb.default_dtype("float64"):
        assert nb.random.uniform(key()).dtype is nb.float64
        assert nb.random.normal(key()).dtype is nb.float64
        assert nb.uniform().dtype is nb.float64
    assert nb.random.randint(key(), 2, 0, 5).dtype is nb.int64
    assert nb.random.bernoulli(key()).dtype is nb.bool


def test_probabilities_may_be_tensors():
    p = nb.constant([0.0, 1.0])
    assert nb.random.bernoulli(key(), p).tolist() == [False, True]
    x = nb.random.bernoulli(key(), p=p, shape=(50, 2))
    assert values(x).all(0).tolist() == [False, True]


@pytest.mark.parametrize(
    "call, error",
    [
        (lambda: nb.random.uniform(3, (2,)), TypeError),
        (lambda: nb.random.uniform(nb.ones(2), (2,)), TypeError),
        (lambda: nb.random.uniform(nb.random.split(key()), 2), ValueError),
        (lambda: nb.random.uniform(key(), (-1,)), ValueError),
        (lambda: nb.random.uniform(key(), (2,) * 17), ValueError),
        (lambda: nb.random.uniform(key(), 2, 1.0, 0.0), ValueError),
        (lambda: nb.random.uniform(key(), 2, dtype="int32"), TypeError),
        (lambda: nb.random.normal(key(), 2, std=-1.0), ValueError),
        (lambda: nb.random.truncated_normal(key(), 2, 1), ValueError),
        (lambda: nb.random.bernoulli(key(), 1.5), ValueError),
        (lambda: nb.random.bernoulli(key(), nb.ones(3), (2,)), ValueError),
        (lambda: nb.random.randint(key(), 2, 5, 5), ValueError),
        (lambda: nb.random.randint(key(), 2, 0, 300, "uint8"), ValueError),
        (lambda: nb.random.randint(key(), 2, 0, 3, "float32"), TypeError),
        (lambda: nb.random.randint(key(), 2, 0.5, 3), TypeError),
        (lambda: nb.random.categorical(key(), nb.ones(3), 1), nb.AxisError),
        (lambda: nb.random.categorical(key(), nb.ones((2, 0))), ValueError),
        (lambda: nb.random.permutation(key(), 2.5), TypeError),
        (lambda: nb.random.permutation(key(), -2), ValueError),
        (lambda: nb.random.permutation(key(), nb.ones(3), 1), nb.AxisError),
        (lambda: nb.random.split(key(), -1), ValueError),
        (lambda: nb.random.fold_in(key(), 1.5), TypeError),
        (lambda: nb.manual_seed(1.5), TypeError),
        (lambda: nb.manual_seed(2**70), OverflowError),
    ],
)
def test_what_makes_no_sense_is_refused(call, error):
    with pytest.raises(error):
        call()


# The generator of the process.


def test_a_seed_restarts_the_generator():
    nb.manual_seed(3)
    a, b = nb.uniform((4,)), nb.gaussian((4,))
    c = nb.randint(0, 100, (4,))
    nb.manual_seed(3)
    assert nb.uniform((4,)).tolist() == a.tolist()
    assert nb.gaussian((4,)).tolist() == b.tolist()
    assert nb.randint(0, 100, (4,)).tolist() == c.tolist()
    nb.manual_seed(4)
    assert nb.uniform((4,)).tolist() != a.tolist()


def test_a_key_is_taken_when_the_function_is_called():
    nb.manual_seed(0)
    x = nb.uniform((4,))
    y = nb.uniform((4,))
    late, early = y.tolist(), x.tolist()
    nb.manual_seed(0)
    assert nb.uniform((4,)).tolist() == early != late
    assert nb.uniform((4,)).tolist() == late
    assert x.tolist() == early


def test_seed_zero_is_where_it_begins():
    nb.manual_seed(0)
    word = philox((0, 0), (0, 0, 0, 2))[:2]
    assert nb._nabla.next_key().tolist() == word


def test_threads_share_one_sequence():
    nb.manual_seed(1)
    alone = {tuple(nb._nabla.next_key().tolist()) for _ in range(400)}
    nb.manual_seed(1)
    found = []

    def work():
        for _ in range(100):
            found.append(tuple(nb._nabla.next_key().tolist()))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(alone) == 400 and set(found) == alone
