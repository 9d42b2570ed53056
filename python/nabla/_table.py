"""Names: what is called how, and where it can be imported from."""

# Other spellings.
ALIASES = {
    "sum": "reduce_sum",
    "max": "reduce_max",
    "min": "reduce_min",
    "transpose": "swap_axes",
    "swapaxes": "swap_axes",
    "take": "gather",
    "subtract": "sub",
    "multiply": "mul",
    "divide": "div",
    "negative": "neg",
    "remainder": "mod",
    "power": "pow",
    "log_softmax": "logsoftmax",
    "isinf": "is_inf",
    "isnan": "is_nan",
    "permute_dims": "permute",
    "expand_dims": "unsqueeze",
    "normal": "gaussian",
    "transfer_to": "to_device",
    "_clear_caches": "clear_caches",
    "jit": "compile",
}

# Ops that are parts of functions, and ops that are found in submodules.
PARTS = """
arange_float arange_int conv1d_transpose conv3d_transpose iota slice
triangular_solve

random_key random_split random_fold_in random_key_like random_uniform
random_normal random_truncated_normal random_bernoulli random_randint
random_categorical random_permutation

cholesky qr svd svdvals eigh eigvalsh solve inv pinv det slogdet vector_norm
matrix_norm matrix_power matrix_rank cross
"""

# Functions of Python, by themselves not ops, that are methods too.
METHODS = """
accelerator all_reduce astype broadcast_to_physical cast clip cpu
cumulative_prod cumulative_sum decr_batch_dims diff empty_like full_like gpu
incr_batch_dims matrix_transpose mean_physical minmax move_axis_from_batch_dims
move_axis_to_batch_dims nonzero norm ones_like pad ppermute rebind
reduce_sum_physical slice_update squeeze_physical tensordot unique_all
unique_counts unique_inverse unsqueeze_physical unstack zeros_like
"""

# Rules and what is done with them, and where they are.
RULES = """
OpShardingRule OpShardingRuleTemplate infer_from_rule propagate_sharding
"""
RULES_IN = "core.sharding.spmd core.sharding.propagation"

# The families of ops, by the submodule of nabla.ops.
FAMILIES = {
    "unary": """
        relu sigmoid tanh exp neg abs log sqrt acos atanh cos erf floor is_inf
        is_nan log1p rsqrt silu sin trunc round gelu cast softmax logsoftmax
        acosh asin asinh atan tan sinh cosh ceil expm1 exp2 log2 log10 sign
        signbit square reciprocal isfinite isinf isnan positive nan_to_num
        bitwise_invert logical_not""",
    "binary": """
        add sub mul div mod pow matmul outer atan2 copysign logaddexp hypot
        maximum minimum floor_divide nextafter bitwise_and bitwise_or
        bitwise_xor bitwise_left_shift bitwise_right_shift einsum tensordot
        vecdot""",
    "comparison": """
        equal not_equal greater greater_equal less less_equal logical_and
        logical_or logical_xor logical_not""",
    "creation": """
        constant asarray from_dlpack full zeros ones empty arange linspace eye
        meshgrid uniform gaussian normal randn rand randint hann_window triu
        tril zeros_like ones_like full_like empty_like one_hot""",
    "reduction": """
        reduce_sum reduce_max reduce_min mean argmax argmin cumsum cumprod sum
        max min reduce_sum_physical mean_physical reduce_max_physical
        reduce_min_physical prod all any var std count_nonzero logsumexp
        norm""",
    "multi_output": "split chunk unbind minmax topk unstack",
    "control_flow": """
        where cond switch while_loop fori_loop scan map associative_scan""",
    "convolution": "conv1d conv2d conv3d conv2d_transpose",
    "pooling": "avg_pool2d max_pool2d",
    "view": """
        unsqueeze squeeze swap_axes transpose flip moveaxis broadcast_to
        reshape flatten rebind pad as_interleaved_complex
        view_as_real_interleaved gather take scatter slice_tensor slice_update
        slice_update_inplace concatenate stack permute roll repeat tile
        diagonal broadcast_arrays take_along_axis moveaxis_physical
        unsqueeze_physical squeeze_physical broadcast_to_physical
        broadcast_batch_dims incr_batch_dims decr_batch_dims
        move_axis_to_batch_dims move_axis_from_batch_dims""",
    "view.batch": """
        incr_batch_dims decr_batch_dims move_axis_to_batch_dims
        move_axis_from_batch_dims moveaxis_physical unsqueeze_physical
        squeeze_physical broadcast_to_physical broadcast_batch_dims""",
    "communication": """
        shard reshard all_gather gather_all_axes all_reduce pmean
        pvary reduce_scatter pscatter all_to_all ppermute pbroadcast
        distributed_broadcast axis_index broadcast to_device transfer_to cpu
        gpu accelerator""",
}

PYTREE = """
PyTreeDef register_pytree_node tensor_leaves traced untraced tree_flatten
tree_leaves tree_map tree_structure tree_unflatten with_batch_dims
"""

# Types of sharding, by the submodule of nabla.core.
SHARDING = """
DeviceMesh DimSpec P PartitionSpec ShardingSpec compute_global_shape
compute_local_shape get_num_shards needs_reshard parse_sub_axis
"""
LATE = {
    "core.sharding": SHARDING,
    "core.sharding.spec": SHARDING,
    "core.sharding.propagation": "",
    "core.sharding.spmd": "create_replicated_spec compute_local_shape "
    "compute_global_shape get_num_shards needs_reshard ReshardPlan "
    "ReshardStep reshard_plan",
}

# What is taken from the extension as it stands.
EXTENSION = """
AxisError PyTreeDef Tensor can_cast manual_seed realize_all register_pytree_node
result_type tensor_leaves tree_flatten tree_leaves tree_map tree_structure
tree_unflatten
"""

# nabla.__all__, in this order; a name that is not there yet is left out.
NAMES = f"""
defaults default_device default_dtype defaults_like manual_seed devices
synchronize memory_stats reset_peak_memory empty_cache DType CPU Accelerator
TensorType AxisError Tensor realize_all trace xpr backward forward is_tensor
clear_caches _clear_caches cache_stats

Operation UnaryOperation BinaryOperation ReduceOperation CreationOperation
call_custom_kernel

constant asarray from_dlpack full zeros ones empty arange linspace eye meshgrid
uniform gaussian normal randn rand randint hann_window triu tril zeros_like
ones_like full_like empty_like

relu sigmoid tanh exp neg abs log sqrt softmax logsoftmax acos atanh cos erf
floor is_inf is_nan log1p rsqrt silu sin trunc gelu round cast add mul sub div
matmul mod pow outer equal not_equal greater greater_equal less less_equal
logical_and logical_or logical_xor logical_not where

reduce_sum reduce_max reduce_min mean argmax argmin cumsum cumprod sum max min
minmax reduce_sum_physical mean_physical

unsqueeze squeeze swap_axes transpose flip moveaxis broadcast_to reshape flatten
rebind pad as_interleaved_complex view_as_real_interleaved gather take scatter
slice_tensor slice_update concatenate stack permute split chunk unbind
incr_batch_dims decr_batch_dims move_axis_to_batch_dims
move_axis_from_batch_dims unsqueeze_physical squeeze_physical
broadcast_to_physical

conv1d conv2d conv3d conv2d_transpose avg_pool2d max_pool2d cond switch
while_loop fori_loop scan map associative_scan

shard all_gather all_reduce all_to_all distributed_broadcast reduce_scatter
reshard ppermute to_device transfer_to cpu gpu accelerator DeviceMesh DimSpec
ShardingSpec P PartitionSpec compute_local_shape get_num_shards
visualize_sharding

grad value_and_grad vjp jvp jacrev jacfwd hessian hvp linearize vmap checkpoint
remat custom_vjp custom_jvp stop_gradient shard_map auto_shard compile jit
CompiledFunction CompilationStats

{PYTREE}

explain verify profile save load
nn random linalg fft debug distributed config testing ops core transforms

e inf nan newaxis pi
acosh asin asinh atan atan2 tan sinh cosh ceil clip copysign expm1 exp2 log2
log10 logaddexp hypot sign signbit square reciprocal maximum minimum
floor_divide nextafter isfinite isinf isnan positive nan_to_num bitwise_and
bitwise_or bitwise_xor bitwise_invert bitwise_left_shift bitwise_right_shift
conj real imag
subtract multiply divide negative remainder concat permute_dims
matrix_transpose expand_dims swapaxes unstack cumulative_sum cumulative_prod
astype power log_softmax
prod all any var std count_nonzero logsumexp norm
einsum tensordot vecdot
roll repeat tile diagonal diff broadcast_arrays take_along_axis one_hot
sort argsort topk searchsorted nonzero
unique_all unique_counts unique_inverse unique_values
finfo iinfo isdtype result_type can_cast
bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 bfloat16 float32
float64 float8_e4m3fn float8_e5m2 complex64 complex128
"""
