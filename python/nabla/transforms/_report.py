"""What compiled functions say of themselves."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class CompilationStats:
    """What became of the calls of a compiled function."""

    hits: int = 0
    misses: int = 0
    fallbacks: int = 0
    total_compile_time_ms: float = 0.0
    total_cached_exec_time_ms: float = 0.0
    cache_size: int = 0

    @property
    def hit_rate(self) -> float:
        """Hits among all calls, in percent."""
        calls = self.hits + self.misses + self.fallbacks
        return 100.0 * self.hits / calls if calls else 0.0

    def __repr__(self) -> str:
        return (
            f"CompilationStats(hits={self.hits}, misses={self.misses}, "
            f"fallbacks={self.fallbacks}, hit_rate={self.hit_rate:.1f}%)"
        )


@dataclass(frozen=True)
class MemoryPlan:
    """Bytes that one run needs, known before it, and what is alive when the
    most is: pairs of what it is and its bytes, the largest first."""

    peak: int
    arguments: int
    results: int
    temporaries: int
    constants: int
    donated: int
    buffers: list[tuple[str, int]] = field(default_factory=list, repr=False)


@dataclass(frozen=True)
class Cost:
    """Work of one run: arithmetic operations, bytes of arguments and results,
    steps, and those of them that are fused loops."""

    flops: float
    bytes: int
    steps: int
    loops: int


@dataclass(frozen=True)
class Collective:
    """One thing that devices say to each other, and why.

    bytes        that a device receives, at most, each of `times` times
    seconds      by the mesh's costs; a byte is one unless they were set
    op, source   who wants the value, and where that was called
    of           who made it; before and after are its types and layouts
    move         collectives of one number take one value to where it is wanted,
                 which `bound` and `cheaper` are about
    bound        no way of doing that can do with fewer bytes
    cheaper      bytes if one thing were otherwise, which `alternative` says;
                 None: none is known
    reading      of a result that is left pending: when it is used or read
    """

    kind: str
    axes: tuple[str, ...]
    bytes: int
    times: int
    seconds: float
    op: str
    source: str
    reason: str
    of: str
    before: str
    after: str
    move: int
    bound: int
    cheaper: int | None
    alternative: str
    reading: bool

    def __post_init__(self) -> None:
        axes: object = self.axes
        if isinstance(axes, str):
            object.__setattr__(self, "axes", tuple(axes.split(",")))
        if self.cheaper == -1:
            object.__setattr__(self, "cheaper", None)


@dataclass(frozen=True)
class Verification:
    """Values that were compared, and the greatest difference among them,
    relative to the greatest element."""

    compared: int
    error: float


@dataclass(frozen=True)
class Explanation:
    """How a program runs; prints as a table."""

    kernels: list[str]
    peak_bytes: int
    collectives: list[Collective] = field(default_factory=list)
    total_bytes: int = 0
    table: str = field(default="", repr=False)
    retraces: list[str] = field(default_factory=list)
    uncompiled: str = ""
    fixed: str = ""
    device: str = "cpu"

    def rows(self) -> list[str]:
        """The collectives as lines of text."""
        return self.table.splitlines() if self.collectives else []

    def __str__(self) -> str:
        rows = [
            f"kernels      {len(self.kernels)}",
            *(f"  {line}" for line in self.kernels),
            f"collectives  {len(self.collectives)}, {self.total_bytes} bytes",
            *(f"  {line}" for line in self.rows()),
            f"peak memory  {self.peak_bytes} bytes",
        ]
        if self.device != "cpu":
            rows.insert(0, f"device       {self.device}")
        if self.uncompiled:
            rows.insert(0, f"op by op     {self.uncompiled}")
        if self.fixed:
            rows.append(f"sizes fixed  {self.fixed}")
        if self.retraces:
            rows.append(f"retraces     {len(self.retraces)}")
            rows += [f"  {line}" for line in self.retraces]
        return "\n".join(rows)
